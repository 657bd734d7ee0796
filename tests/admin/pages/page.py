"""Opens pages, sends forms and parses the HTML: elements, forms, links, and what a strict CSP would block."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

import aiohttp

Attributes = dict[str, str | None]
_EMPTY = {"area", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
_UNREAD = ("script", "style", "title")


@dataclass
class Element:
    tag: str
    attributes: Attributes
    words: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text of the element with single spaces; table cells are separated."""
        return " ".join(" ".join(self.words).split())


@dataclass
class Page(HTMLParser):
    """A page or a part of one, with its elements in order. ``location``: the redirect after a form."""

    source: str
    location: str = ""
    elements: list[Element] = field(default_factory=list)
    _open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _EMPTY:
            self._open.append(self.elements[-1])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if any(element.tag == tag for element in self._open):
            while self._open.pop().tag != tag:
                pass

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.words.append(data)

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """Elements of this tag that have these attributes (``data_x`` for ``data-x``)."""
        wanted = {name.replace("_", "-"): value for name, value in attributes.items()}
        return [e for e in self.elements if e.tag == tag and wanted.items() <= e.attributes.items()]

    def one(self, tag: str, **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found

    @property
    def text(self) -> str:
        """The visible text, with single spaces."""
        read = self.all("body") or [element for element in self.elements if element.tag not in _UNREAD]
        return " ".join(element.text for element in read)

    @property
    def links(self) -> set[str]:
        """URLs of pages and files in this page."""
        named = (e.attributes.get(name) for e in self.elements for name in ("href", "src", "hx-get", "data-chart"))
        return {address for address in named if address and not address.startswith("#")}

    @property
    def hrefs(self) -> list[str]:
        """Link targets, in order."""
        return [element.attributes.get("href") or "" for element in self.all("a")]

    @property
    def changes(self) -> set[str]:
        """Targets of the forms that change something, without the sign-out."""
        forms = self.all("form", method="post")
        return {form.attributes.get("action") or "" for form in forms} - {"/sign-out"}

    @property
    def torrents(self) -> list[str]:
        """Linked info hashes, in order."""
        found = (
            href.removeprefix("/torrents/").partition("?")[0] for href in self.hrefs if href.startswith("/torrents/")
        )
        return [rest for rest in found if len(rest) == 40]

    def inline(self) -> list[str]:
        """Inline scripts and styles, which script-src 'self' and style-src 'self' block."""
        found = []
        for element in self.elements:
            if element.tag == "style" or (element.tag == "script" and not element.attributes.get("src")):
                found.append(element.tag)
            found += [
                f"{element.tag} {name}"
                for name, value in element.attributes.items()
                if name == "style" or name.startswith(("on", "hx-on")) or "javascript:" in (value or "").lower()
            ]
        return found


async def get(session: aiohttp.ClientSession, path: str, status: int = 200, *, part: bool = False) -> Page:
    """The page at ``path``, or the part for htmx. Fails for another status."""
    headers = {"HX-Request": "true"} if part else {}
    async with session.get(path, headers=headers, allow_redirects=False) as response:
        assert response.content_type == "text/html" or status != 200
        return await read(response, status)


async def send(session: aiohttp.ClientSession, path: str, data: object = None, status: int = 303) -> Page:
    """The response to a form; a redirect has only a location."""
    async with session.post(path, data=data or {}, allow_redirects=False) as response:
        return await read(response, status)


async def post_form(session: aiohttp.ClientSession, path: str, **fields: str) -> Page:
    """The page after a form."""
    return await get(session, (await send(session, path, fields)).location)


async def read(response: aiohttp.ClientResponse, status: int) -> Page:
    page = Page(await response.text(), response.headers.get("Location", ""))
    assert response.status == status, f"{response.url}: {page.text[:300]}"
    assert not page.inline()
    return page
