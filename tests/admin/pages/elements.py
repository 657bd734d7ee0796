"""A page as a test reads it: its elements, forms and links, and what a strict Content-Security-Policy would refuse."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

import aiohttp

Attributes = dict[str, str | None]
_EMPTY = {
    "area",
    "br",
    "col",
    "hr",
    "img",
    "input",
    "link",
    "meta",
    "source",
    "wbr",
    "path",
    "circle",
    "rect",
}


@dataclass
class Element:
    """``text`` is all text inside it."""

    tag: str
    attributes: Attributes
    text: str = ""


@dataclass
class Page(HTMLParser):
    """Every element of a page in order."""

    source: str
    elements: list[Element] = field(default_factory=list)
    _open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.elements.append(element)
        if tag not in _EMPTY:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """Elements of this tag that have these attributes (``data_x`` for ``data-x``)."""
        wanted = {name.replace("_", "-"): value for name, value in attributes.items()}
        return [e for e in self.elements if e.tag == tag and wanted.items() <= e.attributes.items()]

    def one(self, tag: str, **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found

    @property
    def text(self) -> str:
        """What is in the body."""
        return self.one("body").text

    @property
    def links(self) -> set[str]:
        """Addresses of pages and files that this one names."""
        named = (
            e.attributes.get(name) for e in self.elements for name in ("href", "src", "hx-get", "data-chart")
        )
        return {address for address in named if address and not address.startswith("#")}

    def inline(self) -> list[str]:
        """Whatever a policy of script-src 'self' and style-src 'self' refuses."""
        found = []
        for element in self.elements:
            if element.tag == "style" or (element.tag == "script" and not element.attributes.get("src")):
                found.append(element.tag)
            found += [
                f"{element.tag} {name}"
                for name, value in element.attributes.items()
                if name == "style"
                or name.startswith(("on", "hx-on"))
                or "javascript:" in (value or "").lower()
            ]
        return found


async def open_page(browser: aiohttp.ClientSession, path: str, status: int = 200) -> Page:
    async with browser.get(path) as answer:
        text = await answer.text()
        assert answer.status == status, f"{path}: {answer.status}: {text[:300]}"
        assert answer.content_type == "text/html"
        return Page(text)


async def posted(browser: aiohttp.ClientSession, path: str, **fields: str) -> Page:
    """The page that a form leads to."""
    async with browser.post(path, data=fields, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        location = answer.headers["Location"]
    return await open_page(browser, location)
