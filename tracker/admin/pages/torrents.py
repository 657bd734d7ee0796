"""The list of torrents, with filters, search, sorting and actions on several; the page that adds torrents; and the deny
list: info hashes that are refused even if registered."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from aiohttp import web

from tracker.admin.auth.recording import CHANGE
from tracker.admin.http.form_body import File
from tracker.admin.http.problems import Problem
from tracker.admin.pages.announce_urls import announce_urls
from tracker.admin.pages.forms import Form, page_number, read_form
from tracker.admin.pages.paging import SIZES, ListQuery, turned
from tracker.admin.pages.rendering import Pages, done, get, post, render, wants_part
from tracker.errors import ClientError
from tracker.operations.bulk import TORRENT_ACTIONS, change_torrents
from tracker.operations.torrents import (
    NOT_SERVED,
    Added,
    add_file,
    add_torrent,
    allow_torrent,
    deny_torrent,
    find_torrents,
    parse_hash,
    torrent_fields,
)
from tracker.store.torrents.filter import Order, TorrentFilter
from tracker.store.torrents.records import Enabled

MAX_FILES = 100
"""Max files per upload; `tracker import` takes any number."""
SORTS: dict[Order, str] = {
    "name": "Name",
    "size": "Size",
    "seeders": "Seeders",
    "leechers": "Leechers",
    "snatches": "Snatches",
    "score": "Score",
    "added": "Added",
    "last_activity": "Last activity",
}
"""Sort orders of the list, with their column headings."""
FILTERS: dict[str, tuple[str, dict[str, str]]] = {
    "state": ("State", {"": "All states", "enabled": "Enabled", "pending": "Pending", "disabled": "Disabled"}),
    "seeders": ("Seeders", {"": "Any seeders", "none": "No seeders", "some": "With seeders"}),
    "private": ("Private", {"": "Public and private", "yes": "Private", "no": "Public"}),
}
"""Filters of the list: label, and values with their labels."""
_FLAGS = {"some": True, "none": False, "yes": True, "no": False}
_STATES: dict[str, Enabled] = {"enabled": True, "pending": "pending", "disabled": False}


class Refused(NamedTuple):
    """A refused file or info hash, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Query(ListQuery):
    """The options of the list of torrents."""

    path: ClassVar[str] = "/torrents"
    sorts: ClassVar[Mapping[Order, str]] = SORTS
    choices: ClassVar[Mapping[str, Mapping[str, str]]] = {name: values for name, (_, values) in FILTERS.items()}
    lowest_first: ClassVar[tuple[str, ...]] = ("name",)

    sort: Order = "seeders"
    descending: bool = True
    state: str = ""
    seeders: str = ""
    private: str = ""

    @property
    def filter(self) -> TorrentFilter:
        """The filter without the search text."""
        private, seeded = _FLAGS.get(self.private), _FLAGS.get(self.seeders)
        return TorrentFilter(self.sort, self.descending, _STATES.get(self.state), private, seeded)

    @property
    def is_selective(self) -> bool:
        return bool(self.text) or self.filter.is_selective

    @property
    def flags(self) -> Mapping[str, object]:
        wanted = self.filter
        return {"enabled": wanted.enabled, "private": wanted.private, "seeded": wanted.seeded}


class TorrentPages(Pages):
    """Handlers of /torrents and /torrents/add."""

    def _announced_to(self, request: web.Request) -> dict[str, Any]:
        return {"announce_urls": announce_urls(self._context, request.host)}

    @get("/torrents")
    async def show(self, request: web.Request) -> web.Response:
        query, listing = Query.read(request), self._store.torrent_listing
        registered, complete, page = await asyncio.gather(
            self._store.torrents.count(),
            listing.is_complete(),
            self._filtered(query) if query.is_selective else self._sorted(query),
        )
        variables = {
            "query": query,
            "filters": FILTERS,
            "sizes": SIZES,
            "headings": query.headings(),
            "registered": registered,
            "complete": complete,
            **self._announced_to(request),
            **page,
        }
        if not wants_part(request):
            return render(request, "torrents.html", variables)
        response = render(request, "parts/torrent_list.html", variables)
        response.headers["HX-Push-Url"] = f"/torrents{query.here}"
        return response

    async def _filtered(self, query: Query) -> dict[str, Any]:
        """Pages have numbers if an index has the matching torrents."""
        cursor = query.cursor or (
            f"f{(query.page - 1) * query.size}" if query.page > 1 and query.filter.is_selective else ""
        )
        page = await find_torrents(self._store, query.filter, query.text, cursor, query.size)
        shown = len(page.torrents)
        if page.total is not None and page.first is not None:
            return {"torrents": page.torrents, **query.numbered(shown, page.total)}
        return {"torrents": page.torrents, "matching": page.total, **query.unnumbered(0, page.cursor)}

    async def _sorted(self, query: Query) -> dict[str, Any]:
        first = (query.page - 1) * query.size
        page = await self._store.torrent_listing.page(query.filter, first, query.size)
        return {"torrents": page.torrents, **query.numbered(len(page.torrents), page.total)}

    @post("/torrents/bulk", "torrent.bulk")
    async def change(self, request: web.Request, form: Form) -> web.Response:
        """Applies one action to all selected torrents; returns to the same page of the list."""
        back = Query.read(request).here
        action = next((each for each in TORRENT_ACTIONS if each == form.text("action")), None)
        if action is None:
            raise Problem(422, detail="unknown action")
        try:
            chosen = [parse_hash(text) for text in form.texts("info_hash")]
        except ClientError as error:
            raise Problem(422, detail=str(error)) from error
        if not chosen:
            return done(request, f"/torrents{back}", "unselected")
        change = request[CHANGE]
        await change.touch_all("torrent", [info_hash.hex() for info_hash in chosen])
        change.note(action=action)
        reason = form.text(f"{action}_reason") or NOT_SERVED
        files = self._context.torrent_files
        change.count(selected=len(chosen), changed=await change_torrents(self._store, files, action, chosen, reason))
        return done(request, f"/torrents{back}", "changed")

    @get("/torrents/add")
    async def form(self, request: web.Request) -> web.Response:
        return self._answer(request, [], [], 200)

    @post("/torrents/add", "torrent.add")
    async def add(self, request: web.Request, form: Form) -> web.Response:
        """Registers the uploaded files and the info hash of the form. Valid ones are added if others fail."""
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
            self._store,
            file.content,
            private=form.ticked("private"),
            pending=form.ticked("pending"),
            labels=_labels(form),
            files=self._context.torrent_files,
            max_bytes=limit,
        )

    async def _add_hash(self, text: str, form: Form) -> Added:
        fields = torrent_fields(
            name=form.text("name") or None,
            private=form.ticked("private") or None,
            enabled="pending" if form.ticked("pending") else None,
            labels=_labels(form),
        )
        return await add_torrent(self._store, parse_hash(text), fields)

    def _answer(self, request: web.Request, added: list[Added], refused: list[Refused], status: int) -> web.Response:
        variables = {"added": added, "refused": refused, "max_files": MAX_FILES, **self._announced_to(request)}
        return render(request, "torrents_add.html", variables, status=status)


def _labels(form: Form) -> list[str] | None:
    text = form.text("labels")
    return [text] if text else None


PAGE = 50


class DenyListPage(Pages):
    @get("/torrents/denied", "torrents_denied.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        number, torrents = page_number(request.query.get("page", "")), self._store.torrents
        return {
            "denials": await torrents.denials((number - 1) * PAGE, PAGE),
            **turned("/torrents/denied", number, PAGE, await torrents.denial_count()),
            "info_hash": (await read_form(request)).text("info_hash"),
        }

    @post("/torrents/denied", "denial.add", errors_on="show")
    async def deny(self, request: web.Request, form: Form) -> web.Response:
        await deny_torrent(self._store, parse_hash(form.text("info_hash")), form.text("reason") or NOT_SERVED)
        return done(request, "/torrents/denied", "added")

    @post("/torrents/denied/allow", "denial.remove", errors_on="show")
    async def allow(self, request: web.Request, form: Form) -> web.Response:
        await allow_torrent(self._store, parse_hash(form.text("info_hash")))
        return done(request, "/torrents/denied", "removed")
