"""A page as a test reads it: its words, links and forms, and whatever a Content-Security-Policy would refuse."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

import aiohttp

_VOID = frozenset({"br", "circle", "hr", "img", "input", "link", "meta", "path", "rect"})


@dataclass
class Form:
    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class Page(HTMLParser):
    def __init__(self, markup: str, status: int = 200) -> None:
        super().__init__()
        self.status = status
        self.markup = markup
        self.links: list[str] = []
        self.forms: list[Form] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.refused: list[str] = []
        """Inline scripts, styles and handlers."""
        self._words: list[str] = []
        self._open: list[str] = []
        self.feed(markup)
        self.close()

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._words).split())

    @property
    def changes(self) -> set[str]:
        """Where the forms go that change something, but for signing out."""
        return {form.action for form in self.forms if form.method == "post"} - {"/sign-out"}

    def torrents(self) -> list[str]:
        """The info hashes linked to, in order."""
        found = (link.removeprefix("/torrents/") for link in self.links if link.startswith("/torrents/"))
        return [rest for rest in found if len(rest) == 40]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given))
        self.refused += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]
        self.refused += [f"{tag} {name}" for name, value in given.items() if value.startswith("javascript:")]
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get")))
        if tag in ("input", "button") and "name" in given and self.forms and "form" in self._open:
            self.forms[-1].fields[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("script", "style"):
            self.refused += [data] if data.strip() else []
        else:
            self._words.append(data)


async def get(session: aiohttp.ClientSession, path: str, status: int = 200, **options: object) -> Page:
    """The page at ``path``; fails unless its status is this one."""
    async with session.get(path, allow_redirects=False, **options) as answer:  # type: ignore[arg-type]  # as given
        return await _read(answer, status)


async def send(session: aiohttp.ClientSession, path: str, data: object = None, status: int = 303) -> Page:
    """What a form's answer is; a redirect has no words."""
    async with session.post(path, data=data or {}, allow_redirects=False) as answer:
        page = await _read(answer, status)
        page.links += [answer.headers["Location"]] if "Location" in answer.headers else []
        return page


async def _read(answer: aiohttp.ClientResponse, status: int) -> Page:
    page = Page(await answer.text(), answer.status)
    assert answer.status == status, page.text
    assert not page.refused
    return page
