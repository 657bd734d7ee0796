"""Going to pages and sending their forms, as these tests do it; elements.py reads what comes back."""

import aiohttp

from tests.admin.pages import elements


class Page(elements.Page):
    """A page, or a part of one. ``location`` is where a form's answer leads to."""

    location = ""

    def handle_endtag(self, tag: str) -> None:
        """Also of a shape that has a title, and is therefore not empty."""
        if any(element.tag == tag for element in self._open):
            super().handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        """Cells and the like stand apart."""
        super().handle_data(f"{data} ")

    @property
    def text(self) -> str:
        """What is read on it, with single spaces."""
        unread = ("script", "style", "title")
        return " ".join(" ".join(self._words(unread)).split())

    def _words(self, unread: tuple[str, ...]) -> list[str]:
        outermost = self.all("body") or [e for e in self.elements if e.tag not in unread]
        return [element.text for element in outermost]

    @property
    def hrefs(self) -> list[str]:
        """Where it leads, in order."""
        return [element.attributes.get("href") or "" for element in self.all("a")]

    @property
    def changes(self) -> set[str]:
        """Where the forms go that change something, but for signing out."""
        return {form.attributes.get("action") or "" for form in self.all("form", method="post")} - {
            "/sign-out"
        }

    @property
    def torrents(self) -> list[str]:
        """The info hashes linked to, in order."""
        found = (
            href.removeprefix("/torrents/").partition("?")[0]
            for href in self.hrefs
            if href.startswith("/torrents/")
        )
        return [rest for rest in found if len(rest) == 40]


async def get(session: aiohttp.ClientSession, path: str, status: int = 200, *, part: bool = False) -> Page:
    """The page at ``path``, or the part of it that htmx asks for; fails unless its status is this one."""
    headers = {"HX-Request": "true"} if part else {}
    async with session.get(path, headers=headers, allow_redirects=False) as answer:
        return await _read(answer, status)


async def send(session: aiohttp.ClientSession, path: str, data: object = None, status: int = 303) -> Page:
    """What a form is answered with; a redirect has no words, but a location."""
    async with session.post(path, data=data or {}, allow_redirects=False) as answer:
        return await _read(answer, status)


async def _read(answer: aiohttp.ClientResponse, status: int) -> Page:
    page = Page(await answer.text())
    page.location = answer.headers.get("Location", "")
    assert answer.status == status, page.text
    assert not page.inline()
    return page
