"""The pages of all torrents: searched, sorted, page by page; and registering new ones, from files or info hashes."""

from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin import operations
from tracker.admin.desk import Desk
from tracker.admin.multipart import File
from tracker.admin.operations import Added, state_of
from tracker.admin.pages.addresses import announce_urls
from tracker.admin.pages.forms import Form, clean, page_number, read_form
from tracker.admin.pages.rendering import done, render, wants_part
from tracker.errors import ClientError

PAGE = 50
MOST_FILES = 100
"""Files in one upload; `tracker import` takes any number."""
_LONGEST_SEARCH = 200
SORTS = {"seeders": "Seeders", "leechers": "Leechers", "snatches": "Snatches", "score": "Score"}
"""What the list can be sorted by, with the heading of its column."""


class Heading(NamedTuple):
    """A column that sorts; ``order`` is ``ascending`` or ``descending`` for the one in force, as in aria-sort."""

    name: str
    label: str
    href: str
    order: str


class Refused(NamedTuple):
    """A file or info hash that was not registered, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Query:
    """What of the list is looked at, as it stands in the address. What makes no sense there is left out."""

    text: str = ""
    cursor: str = ""
    sort: str = "seeders"
    ascending: bool = False
    page: int = 1

    @classmethod
    def read(cls, request: web.Request) -> "Query":
        asked = request.query
        sort = asked.get("sort", "")
        return cls(
            text=clean(asked.get("q", ""), _LONGEST_SEARCH),
            cursor=clean(asked.get("cursor", ""), _LONGEST_SEARCH),
            sort=sort if sort in SORTS else "seeders",
            ascending=asked.get("order") == "asc",
            page=page_number(asked.get("page", "")),
        )

    def href(self, **changes: Any) -> str:
        """The same list, changed; the address names only what is not the default."""
        now = {"sort": self.sort, "ascending": self.ascending, "page": self.page, **changes}
        parts = {"q": self.text, "cursor": now.get("cursor", "")} if self.text else {}
        if not self.text:
            parts["sort"] = now["sort"] if now["sort"] != "seeders" else ""
            parts["order"] = "asc" if now["ascending"] else ""
            parts["page"] = now["page"] if now["page"] > 1 else ""
        query = urlencode({name: value for name, value in parts.items() if value})
        return f"/torrents?{query}" if query else "/torrents"

    def headings(self) -> list[Heading]:
        """A click sorts with the most first; a second one turns the order round."""
        return [
            Heading(
                name,
                label,
                self.href(sort=name, ascending=name == self.sort and not self.ascending, page=1),
                ("ascending" if self.ascending else "descending") if name == self.sort else "",
            )
            for name, label in SORTS.items()
        ]


class TorrentPages:
    """Handlers of the list."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._torrents = desk.stores.torrents

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/torrents", self.show),
            web.get("/torrents/add", self.form),
            web.post("/torrents/add", self.add),
        ]

    def _announced_to(self, request: web.Request) -> dict[str, Any]:
        return {
            "private_mode": self._desk.settings.users.private,
            "announce_urls": announce_urls(self._desk.listening, request.host),
        }

    async def show(self, request: web.Request) -> web.Response:
        query = Query.read(request)
        context = {
            "query": query,
            "state_of": state_of,
            "mode": self._desk.settings.torrents.mode,
            "registered": await self._torrents.count(),
            **self._announced_to(request),
            **(await self._found(query) if query.text else await self._sorted(query)),
        }
        template = "parts/torrent_list.html" if wants_part(request) else "torrents.html"
        return render(request, template, context)

    async def _found(self, query: Query) -> dict[str, Any]:
        """A search comes in no order that people know: it cannot be sorted, and nobody knows how many there are."""
        after, torrents = await self._torrents.search(query.text, PAGE, query.cursor)
        return {
            "torrents": torrents,
            "headings": [],
            "earlier": query.href() if query.cursor else "",
            "later": query.href(cursor=after) if after else "",
            "first": 0,
            "total": None,
        }

    async def _sorted(self, query: Query) -> dict[str, Any]:
        scores = self._desk.stores.scores
        total = await scores.count() if query.sort == "score" else await self._torrents.count()
        first = (query.page - 1) * PAGE
        torrents = await self._torrents.top(query.sort, PAGE, first, ascending=query.ascending)
        return {
            "torrents": torrents,
            "headings": query.headings(),
            "earlier": query.href(page=query.page - 1) if query.page > 1 else "",
            "later": query.href(page=query.page + 1) if first + PAGE < total else "",
            "first": first + 1,
            "total": total,
        }

    async def form(self, request: web.Request) -> web.Response:
        return self._answer(request, [], [], 200)

    async def add(self, request: web.Request) -> web.Response:
        """Registers the uploaded files and the info hash in the form. What is wrong with one does not stop the others."""
        form = await read_form(request)
        added: list[Added] = []
        refused: list[Refused] = []
        files = form.files("file")
        if len(files) > MOST_FILES:
            why = f"at most {MOST_FILES} at a time: `tracker import` takes any number"
            refused, files = [Refused(f"{len(files)} files", why)], []
        for file in files:
            try:
                added += await self._add_file(file, form)
            except ClientError as error:
                refused.append(Refused(file.name, str(error)))
        if text := form.text("info_hash"):
            try:
                added.append(await self._add_hash(text, form))
            except ClientError as error:
                refused.append(Refused(text, str(error)))
        if not added and not refused:
            refused.append(Refused("", "Choose .torrent files, or write an info hash."))
        if added and not refused and len({one.name for one in added}) == 1:
            return done(request, f"/torrents/{added[0].info_hash.hex()}", "added")
        return self._answer(request, added, refused, 200 if added else 422)

    async def _add_file(self, file: File, form: Form) -> list[Added]:
        limit = self._desk.settings.admin.max_upload_bytes
        return await operations.add_file(
            self._torrents, file.content, private=form.ticked("private"), max_bytes=limit
        )

    async def _add_hash(self, text: str, form: Form) -> Added:
        fields = operations.torrent_fields(
            name=form.text("name") or None, private=form.ticked("private") or None
        )
        return await operations.add_torrent(self._torrents, operations.parse_hash(text), fields)

    def _answer(
        self, request: web.Request, added: list[Added], refused: list[Refused], status: int
    ) -> web.Response:
        context = {
            "added": added,
            "refused": refused,
            "most_files": MOST_FILES,
            "most_bytes": self._desk.settings.admin.max_upload_bytes,
            **self._announced_to(request),
        }
        return render(request, "torrents_add.html", context, status=status)


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    return TorrentPages(desk).routes()
