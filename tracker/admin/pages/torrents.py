"""The list of torrents, with search, sorting and paging, and the page that adds torrents."""

from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.auth.recording import CHANGE
from tracker.admin.context import AdminContext
from tracker.admin.http.multipart import File
from tracker.admin.pages.announce_urls import announce_urls
from tracker.admin.pages.forms import Form, clean, page_number, read_form
from tracker.admin.pages.rendering import Heading, done, render, wants_part
from tracker.errors import ClientError
from tracker.operations.torrents import Added, add_file, add_torrent, parse_hash, state_of, torrent_fields

PAGE = 50
MAX_FILES = 100
"""Max files per upload; `tracker import` takes any number."""
_MAX_SEARCH_LENGTH = 200
SORTS = {"seeders": "Seeders", "leechers": "Leechers", "snatches": "Snatches", "score": "Score"}
"""Sort orders of the list, with their column headings."""


class Refused(NamedTuple):
    """A refused file or info hash, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Query:
    """The list options in the URL: search text, sorting, page. Invalid values become defaults."""

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
            text=clean(asked.get("q", ""), _MAX_SEARCH_LENGTH),
            cursor=clean(asked.get("cursor", ""), _MAX_SEARCH_LENGTH),
            sort=sort if sort in SORTS else "seeders",
            ascending=asked.get("order") == "asc",
            page=page_number(asked.get("page", "")),
        )

    def href(self, **changes: Any) -> str:
        """The URL of this list with changes; defaults are left out."""
        now = {"sort": self.sort, "ascending": self.ascending, "page": self.page, **changes}
        parts = {"q": self.text, "cursor": now.get("cursor", "")} if self.text else {}
        if not self.text:
            parts["sort"] = now["sort"] if now["sort"] != "seeders" else ""
            parts["order"] = "asc" if now["ascending"] else ""
            parts["page"] = now["page"] if now["page"] > 1 else ""
        query = urlencode({name: value for name, value in parts.items() if value})
        return f"/torrents?{query}" if query else "/torrents"

    def headings(self) -> list[Heading]:
        """The first click sorts descending, the second ascending."""
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
    """Handlers of /torrents and /torrents/add."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._torrents = context.store.torrents

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/torrents", self.show),
            web.get("/torrents/add", self.form),
            web.post("/torrents/add", self.add),
        ]

    def _announced_to(self, request: web.Request) -> dict[str, Any]:
        return {
            "accounts": self._context.settings.users.private,
            "announce_urls": announce_urls(self._context.listening, self._context.udp, request.host),
        }

    async def show(self, request: web.Request) -> web.Response:
        query = Query.read(request)
        variables = {
            "query": query,
            "state_of": state_of,
            "now": self._context.clock(),
            "mode": self._context.settings.torrents.mode,
            "registered": await self._torrents.count(),
            **self._announced_to(request),
            **(await self._found(query) if query.text else await self._sorted(query)),
        }
        template = "parts/torrent_list.html" if wants_part(request) else "torrents.html"
        return render(request, template, variables)

    async def _found(self, query: Query) -> dict[str, Any]:
        """Search results are unordered and have no known total."""
        after, torrents = await self._torrents.search(query.text, PAGE, query.cursor)
        return {
            "torrents": torrents,
            "headings": [],
            "previous_url": query.href() if query.cursor else "",
            "next_url": query.href(cursor=after) if after else "",
            "first": 0,
            "total": None,
        }

    async def _sorted(self, query: Query) -> dict[str, Any]:
        scores = self._context.store.scores
        total = await scores.count() if query.sort == "score" else await self._torrents.count()
        first = (query.page - 1) * PAGE
        torrents = await self._torrents.top(query.sort, PAGE, first, ascending=query.ascending)
        return {
            "torrents": torrents,
            "headings": query.headings(),
            "previous_url": query.href(page=query.page - 1) if query.page > 1 else "",
            "next_url": query.href(page=query.page + 1) if first + PAGE < total else "",
            "first": first + 1,
            "total": total,
        }

    async def form(self, request: web.Request) -> web.Response:
        return self._answer(request, [], [], 200)

    async def add(self, request: web.Request) -> web.Response:
        """Registers the uploaded files and the info hash of the form. Valid ones are added if others fail."""
        form = await read_form(request)
        added: list[Added] = []
        refused: list[Refused] = []
        files = form.files("file")
        if len(files) > MAX_FILES:
            why = f"at most {MAX_FILES} at a time; `tracker import` takes any number"
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
        for one in (one for one in added if one.new):
            request[CHANGE].created("torrent", one.info_hash.hex())
        request[CHANGE].count(added=sum(one.new for one in added), known=sum(not one.new for one in added))
        if not added and not refused:
            refused.append(Refused("", "Choose .torrent files or enter an info hash."))
        if added and not refused and len({one.name for one in added}) == 1:
            return done(request, f"/torrents/{added[0].info_hash.hex()}", "added")
        return self._answer(request, added, refused, 200 if added else 422)

    async def _add_file(self, file: File, form: Form) -> list[Added]:
        limit = self._context.settings.admin.max_upload_bytes
        return await add_file(
            self._torrents,
            file.content,
            private=form.ticked("private"),
            labels=_labels(form),
            files=self._context.torrent_files,
            max_bytes=limit,
        )

    async def _add_hash(self, text: str, form: Form) -> Added:
        fields = torrent_fields(
            name=form.text("name") or None, private=form.ticked("private") or None, labels=_labels(form)
        )
        return await add_torrent(self._torrents, parse_hash(text), fields)

    def _answer(
        self, request: web.Request, added: list[Added], refused: list[Refused], status: int
    ) -> web.Response:
        variables = {
            "added": added,
            "refused": refused,
            "max_files": MAX_FILES,
            "max_bytes": self._context.settings.admin.max_upload_bytes,
            **self._announced_to(request),
        }
        return render(request, "torrents_add.html", variables, status=status)


def _labels(form: Form) -> list[str] | None:
    text = form.text("labels")
    return [text] if text else None


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    return TorrentPages(context).routes()
