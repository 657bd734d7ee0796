"""The pages of torrents: the list, with filters, search, sorting and actions on several; adding torrents; the deny
list, which refuses info hashes even if registered; and one torrent: statistics, charts, peers and actions."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from aiohttp import web

from tracker.admin.auth.recording import CHANGE
from tracker.admin.context import announce_urls
from tracker.admin.http.problems import Problem
from tracker.admin.pages.forms import Form, ListQuery, cursor_number, page_number, read_rule, turned
from tracker.admin.pages.rendering import Pages, country_name, done, get, post, render, wants_part
from tracker.admin.pages.world import info_hash_of, readable
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, existing
from tracker.operations import service
from tracker.operations.peers import PeerView, format_prefix, peer_views
from tracker.operations.torrents import (
    NOT_SERVED,
    TORRENT_ACTIONS,
    Added,
    add_file,
    add_torrent,
    allow_torrent,
    change_torrent_rule,
    change_torrents,
    deny_torrent,
    edit_torrent,
    find_torrents,
    parse_hash,
    remove_torrent,
    state_of,
    torrent_fields,
)
from tracker.store.torrents.listing import ORDERS, Order, TorrentFilter
from tracker.store.torrents.records import Enabled
from tracker.store.torrents.torrents import Torrent
from tracker.wire.torrent_file import MEDIA_TYPE, with_announce_url

PAGE = 50
MAX_FILES = 100
"""Max files per upload; `tracker import` takes any number."""
SORTS: dict[Order, str] = {order: order.capitalize().replace("_", " ") for order in ORDERS}
"""Sort orders of the list, with their column headings."""
FILTERS: dict[str, tuple[str, dict[str, str]]] = {
    "state": ("State", {"": "All states", "enabled": "Enabled", "pending": "Pending", "disabled": "Disabled"}),
    "seeders": ("Seeders", {"": "Any seeders", "none": "No seeders", "some": "With seeders"}),
    "private": ("Private", {"": "Public and private", "yes": "Private", "no": "Public"}),
}
"""Filters of the list: label, and values with their labels."""
_FLAGS = {"some": True, "none": False, "yes": True, "no": False}
_STATES: dict[str, Enabled] = {"enabled": True, "pending": "pending", "disabled": False}
PEERS = 50
COUNTRIES = 10
_PLACES = 200
"""Max locations of a torrent searched for countries; cities and postcodes are among them."""
MIN_POINTS = 2
"""A chart needs at least two points."""
CHARTS = {"swarm": {"seeders": "Seeders", "leechers": "Leechers"}, "score": {"score": "Score"}}
"""Charts by name: fields with the labels of their lines."""
SWITCHES: Mapping[str, Enabled] = {"enable": True, "pend": "pending", "disable": False}
Refused = tuple[str, str]
"""A refused file or info hash, and the reason."""


@dataclass(frozen=True, slots=True)
class Query(ListQuery):
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
    @get("/torrents")
    async def show(self, request: web.Request) -> web.Response:
        query, listing = Query.read(request), self._store.torrent_listing
        registered, complete, page = await asyncio.gather(
            self._store.torrents.count(), listing.is_complete(), self._listed(query)
        )
        variables = {"query": query, "filters": FILTERS, "registered": registered, "complete": complete, **page}
        if not wants_part(request):
            return render(request, "torrents.html", variables)
        response = render(request, "parts/torrent_list.html", variables)
        response.headers["HX-Push-Url"] = f"/torrents{query.here}"
        return response

    async def _listed(self, query: Query) -> dict[str, Any]:
        """Pages have numbers if an index has the matching torrents; those of a search without a filter have none."""
        cursor = query.cursor if query.is_selective else ""
        if not query.text or query.filter.is_selective:
            cursor = cursor or query.start
        page = await find_torrents(self._store, query.filter, query.text, cursor, query.size)
        return {"torrents": page.rows, "matching": page.total, **query.paging(page)}

    @post("/torrents/bulk", "torrent.bulk")
    async def change(self, request: web.Request, form: Form) -> web.Response:
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
        files, labels = form.files("file"), [form.text("labels")] if form.text("labels") else None
        if len(files) > MAX_FILES:
            why = f"at most {MAX_FILES} at a time; `tracker import` takes any number"
            refused, files = [(f"{len(files)} files", why)], []
        for file in files:
            try:
                added += await add_file(
                    self._store,
                    file.content,
                    private=form.ticked("private"),
                    pending=form.ticked("pending"),
                    labels=labels,
                    files=self._context.torrent_files,
                    max_bytes=self._context.settings.admin.max_upload_bytes,
                )
            except ClientError as error:
                refused.append((file.name, str(error)))
        if text := form.text("info_hash"):
            try:
                fields = torrent_fields(
                    name=form.text("name") or None,
                    private=form.ticked("private") or None,
                    enabled="pending" if form.ticked("pending") else None,
                    labels=labels,
                )
                added.append(await add_torrent(self._store, parse_hash(text), fields))
            except ClientError as error:
                refused.append((text, str(error)))
        for one in (one for one in added if one.new):
            request[CHANGE].created("torrent", one.info_hash.hex())
        request[CHANGE].count(added=sum(one.new for one in added), known=sum(not one.new for one in added))
        if not added and not refused:
            refused.append(("", "Choose .torrent files or enter an info hash."))
        if added and not refused and len({one.name for one in added}) == 1:
            return done(request, f"/torrents/{added[0].info_hash.hex()}", "added")
        return self._answer(request, added, refused, 200 if added else 422)

    def _answer(self, request: web.Request, added: list[Added], refused: list[Refused], status: int) -> web.Response:
        variables = {"added": added, "refused": refused, "max_files": MAX_FILES}
        return render(request, "torrents_add.html", variables, status=status)

    @get("/torrents/denied", "torrents_denied.html")
    async def denied(self, request: web.Request) -> dict[str, Any]:
        number, torrents = page_number(request.query.get("page", "")), self._store.torrents
        return {
            "denials": await torrents.denials((number - 1) * PAGE, PAGE),
            **turned("/torrents/denied", number, PAGE, await torrents.denial_count()),
        }

    @post("/torrents/denied", "denial.add", errors_on="denied")
    async def deny_hash(self, request: web.Request, form: Form) -> web.Response:
        await deny_torrent(self._store, parse_hash(form.text("info_hash")), form.text("reason") or NOT_SERVED)
        return done(request, "/torrents/denied", "added")

    @post("/torrents/denied/allow", "denial.remove", errors_on="denied")
    async def allow_hash(self, request: web.Request, form: Form) -> web.Response:
        await allow_torrent(self._store, parse_hash(form.text("info_hash")))
        return done(request, "/torrents/denied", "removed")

    @get("/torrents/{info_hash}", "torrent.html")
    async def show_one(self, request: web.Request) -> dict[str, Any]:
        torrent = await self._torrent(request)
        cursor, peers = await self._peers(torrent, 0)
        points = await self._store.torrents.history(torrent)
        unique_users = self._store.unique_users
        places = await unique_users.places(torrent.info_hash, _PLACES)
        countries = [entry for scope, entry in places if scope == "countries"]
        return {
            "torrent": torrent,
            "state": state_of(torrent),
            "peers": peers,
            "after": cursor,
            "place": await self._store.scores.place(torrent.torrent_id),
            "charted": len(points) >= MIN_POINTS,
            "scored": bool(points),
            "has_file": await asyncio.to_thread(self._context.torrent_files.has, torrent.info_hash),
            "users": await unique_users.users_of(f"torrents.{torrent.info_hash.hex()}.users"),
            "countries": [(readable(name), users) for name, users in countries[:COUNTRIES]],
        }

    @get("/torrents/{info_hash}/charts/{chart}")
    async def chart(self, request: web.Request) -> web.Response:
        """The history of the torrent, in the format of charts.js."""
        fields = existing(CHARTS.get(request.match_info["chart"]), "chart")
        points = await self._store.torrents.history(await self._torrent(request))
        series = [
            {"name": label, "values": [getattr(point, field) for point in points]} for field, label in fields.items()
        ]
        return web.json_response({"x": [point.at for point in points], "series": series})

    @get("/torrents/{info_hash}/file")
    async def file(self, request: web.Request) -> web.Response:
        """The kept .torrent file, with an announce URL unless announces need a passkey."""
        torrent = await self._torrent(request)
        kept = await asyncio.to_thread(self._context.torrent_files.read, torrent.info_hash)
        data = existing(kept, ".torrent file")
        urls = announce_urls(self._context, request.host)
        if urls and self._context.settings.users.private != "required":
            data = with_announce_url(data, urls[0])
        disposition = f'attachment; filename="{torrent.info_hash.hex()}.torrent"'
        return web.Response(body=data, content_type=MEDIA_TYPE, headers={"Content-Disposition": disposition})

    @get("/torrents/{info_hash}/peers", "torrent_peers.html", part="parts/peer_rows.html")
    async def peers(self, request: web.Request) -> dict[str, Any]:
        """The next peers: rows for htmx, or a page."""
        torrent = await self._torrent(request)
        cursor, peers = await self._peers(torrent, cursor_number(request.query.get("cursor", "")))
        return {"torrent": torrent, "peers": peers, "after": cursor}

    async def _peers(self, torrent: Torrent, cursor: int) -> tuple[int, list[tuple[PeerView, str, str]]]:
        """(next cursor, 0 at the end; peers with country name and peer id prefix)."""
        after, peers = await self._store.torrents.peers(torrent, cursor, PEERS)
        views = await peer_views(self._store, peers, self._context.places)
        prefixes = [format_prefix(peer.peer_id[:8]) for peer in peers]
        return after, [(view, country_name(view.country), prefix) for view, prefix in zip(views, prefixes, strict=True)]

    @post("/torrents/{info_hash}/edit", "torrent.edit", errors_on="show_one")
    async def edit(self, request: web.Request, form: Form) -> web.Response:
        names = ("name", "size", "labels", *(["hybrid_of"] if form.has("hybrid_of") else []))
        fields = {name: form.text(name) for name in names}
        return await self._change(request, {**fields, "private": str(int(form.ticked("private")))})

    @post("/torrents/{info_hash}/multipliers", "torrent.edit", errors_on="show_one")
    @post("/torrents/{info_hash}/multipliers/remove", "torrent.edit", errors_on="show_one")
    async def change_rule(self, request: web.Request, form: Form) -> web.Response:
        torrent = await self._torrent(request)
        await change_torrent_rule(self._store, torrent.info_hash, read_rule(request, form, self._clock()))
        return done(request, _address(torrent.info_hash), "saved")

    @post("/torrents/{info_hash}/enable", "torrent.edit", errors_on="show_one")
    @post("/torrents/{info_hash}/pend", "torrent.edit", errors_on="show_one")
    @post("/torrents/{info_hash}/disable", "torrent.edit", errors_on="show_one")
    async def switch(self, request: web.Request, form: Form) -> web.Response:
        enabled = SWITCHES[request.path.rpartition("/")[2]]
        reason = form.text("reason") if enabled is False else ""
        return await self._change(request, torrent_fields(enabled=enabled, reason=reason or None))

    async def _change(self, request: web.Request, fields: Mapping[str, str]) -> web.Response:
        torrent = await self._torrent(request)
        await edit_torrent(self._store, torrent.info_hash, fields)
        return done(request, _address(torrent.info_hash), "saved")

    @post("/torrents/{info_hash}/dht-lookup", "torrent.dht_lookup", errors_on="show_one")
    async def look_up(self, request: web.Request, form: Form) -> web.Response:
        torrent = await self._torrent(request)
        await service.look_up(self._store, torrent.info_hash, self._clock())
        return done(request, _address(torrent.info_hash), "lookup")

    @post("/torrents/{info_hash}/deny", "denial.add")
    async def deny(self, request: web.Request, form: Form) -> web.Response:
        """Accepts unknown info hashes too."""
        info_hash = _info_hash(request)
        await deny_torrent(self._store, info_hash, form.text("reason") or NOT_SERVED)
        return done(request, _address(info_hash), "saved")

    @post("/torrents/{info_hash}/allow", "denial.remove")
    async def allow(self, request: web.Request, form: Form) -> web.Response:
        info_hash = _info_hash(request)
        await allow_torrent(self._store, info_hash)
        known = await self._store.torrents.get(info_hash) is not None
        return done(request, _address(info_hash) if known else "/torrents", "saved")

    @post("/torrents/{info_hash}/remove", "torrent.remove")
    async def remove(self, request: web.Request, form: Form) -> web.Response:
        torrent = await self._torrent(request)
        await remove_torrent(self._store, self._context.torrent_files, torrent.info_hash)
        return done(request, "/torrents", "removed")

    async def _torrent(self, request: web.Request) -> Torrent:
        """Raises NotFound."""
        return existing(await self._store.torrents.get(_info_hash(request)), "torrent")


def _info_hash(request: web.Request) -> InfoHash:
    return existing(info_hash_of(request.match_info["info_hash"]), "torrent")


def _address(info_hash: InfoHash) -> str:
    return f"/torrents/{info_hash.hex()}"
