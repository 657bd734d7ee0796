"""The page of one torrent: statistics, charts, peers and actions."""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from tracker.admin.pages.announce_urls import announce_urls
from tracker.admin.pages.forms import Form, cursor_number, read_rule
from tracker.admin.pages.rendering import Pages, done, get, post, render, wants_part
from tracker.admin.pages.world import readable
from tracker.admin.world import country_name
from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import ClientError, NotFound, existing
from tracker.operations.peers import PeerView, format_prefix, peer_views
from tracker.operations.torrents import (
    NOT_SERVED,
    allow_torrent,
    change_torrent_rule,
    deny_torrent,
    edit_torrent,
    remove_torrent,
    state_of,
    torrent_fields,
)
from tracker.store.jobs.records import DHT_LOOKUP
from tracker.store.torrents.records import Enabled
from tracker.store.torrents.torrents import Torrent
from tracker.wire.torrent_file import MEDIA_TYPE, with_announce_url

PEERS = 50
COUNTRIES = 10
_PLACES = 200
"""Max locations of a torrent searched for countries; cities and postcodes are among them."""
MIN_POINTS = 2
"""A chart needs at least two points."""
CHARTS = {"swarm": {"seeders": "Seeders", "leechers": "Leechers"}, "score": {"score": "Score"}}
"""Charts by name: fields with the labels of their lines."""
SWITCHES: Mapping[str, Enabled] = {"enable": True, "pend": "pending", "disable": False}


class TorrentPage(Pages):
    """Handlers of one torrent, at /torrents/<info hash> and below."""

    @get("/torrents/{info_hash}", "torrent.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        torrent = await self._torrent(request)
        cursor, peers = await self._peers(torrent, 0)
        points = await self._store.torrents.history(torrent)
        return {
            "torrent": torrent,
            "state": state_of(torrent),
            "peers": peers,
            "after": cursor,
            "place": await self._store.scores.place(torrent.torrent_id),
            "charted": len(points) >= MIN_POINTS,
            "scored": bool(points),
            "announce_urls": announce_urls(self._context, request.host),
            "has_file": await asyncio.to_thread(self._context.torrent_files.has, torrent.info_hash),
            **await self._unique_users(torrent),
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

    @get("/torrents/{info_hash}/peers")
    async def peers(self, request: web.Request) -> web.Response:
        """The next peers: rows for htmx, or a page."""
        torrent = await self._torrent(request)
        cursor, peers = await self._peers(torrent, cursor_number(request.query.get("cursor", "")))
        template = "parts/peer_rows.html" if wants_part(request) else "torrent_peers.html"
        variables = {"torrent": torrent, "peers": peers, "after": cursor}
        return render(request, template, variables)

    async def _peers(self, torrent: Torrent, cursor: int) -> tuple[int, list[tuple[PeerView, str, str]]]:
        """(next cursor, 0 at the end; peers with country name and peer id prefix)."""
        after, peers = await self._store.torrents.peers(torrent, cursor, PEERS)
        views = await peer_views(self._store, peers, self._context.places)
        prefixes = [format_prefix(peer.peer_id[:8]) for peer in peers]
        return after, [(view, country_name(view.country), prefix) for view, prefix in zip(views, prefixes, strict=True)]

    async def _unique_users(self, torrent: Torrent) -> dict[str, Any]:
        unique_users = self._store.unique_users
        places = await unique_users.places(torrent.info_hash, _PLACES)
        countries = [entry for scope, entry in places if scope == "countries"][:COUNTRIES]
        return {
            "users": await unique_users.users_of(f"torrents.{torrent.info_hash.hex()}.users"),
            "countries": [(readable(name), users) for name, users in countries],
        }

    @post("/torrents/{info_hash}/edit", "torrent.edit", errors_on="show")
    async def edit(self, request: web.Request, form: Form) -> web.Response:
        names = ("name", "size", "labels", *(["hybrid_of"] if form.has("hybrid_of") else []))
        fields = {name: form.text(name) for name in names}
        return await self._change(request, {**fields, "private": str(int(form.ticked("private")))})

    @post("/torrents/{info_hash}/multipliers", "torrent.edit", errors_on="show")
    @post("/torrents/{info_hash}/multipliers/remove", "torrent.edit", errors_on="show")
    async def change_rule(self, request: web.Request, form: Form) -> web.Response:
        torrent = await self._torrent(request)
        await change_torrent_rule(self._store, torrent.info_hash, read_rule(request, form, self._clock()))
        return done(request, _address(torrent.info_hash), "saved")

    @post("/torrents/{info_hash}/enable", "torrent.edit", errors_on="show")
    @post("/torrents/{info_hash}/pend", "torrent.edit", errors_on="show")
    @post("/torrents/{info_hash}/disable", "torrent.edit", errors_on="show")
    async def switch(self, request: web.Request, form: Form) -> web.Response:
        enabled = SWITCHES[request.path.rpartition("/")[2]]
        reason = form.text("reason") if enabled is False else ""
        return await self._change(request, torrent_fields(enabled=enabled, reason=reason or None))

    async def _change(self, request: web.Request, fields: Mapping[str, str]) -> web.Response:
        torrent = await self._torrent(request)
        await edit_torrent(self._store, torrent.info_hash, fields)
        return done(request, _address(torrent.info_hash), "saved")

    @post("/torrents/{info_hash}/dht-lookup", "torrent.dht_lookup", errors_on="show")
    async def look_up(self, request: web.Request, form: Form) -> web.Response:
        """Queues a lookup in the DHT."""
        torrent, store = await self._torrent(request), self._store
        payload = {"info_hash": torrent.info_hash.hex()}
        await store.dht_nodes.check_lookup(store.dht_torrents, torrent.info_hash, self._clock())
        await store.jobs.enqueue(DHT_LOOKUP, payload, max_retries=0)
        return done(request, _address(torrent.info_hash), "lookup")

    @post("/torrents/{info_hash}/deny", "denial.add")
    async def deny(self, request: web.Request, form: Form) -> web.Response:
        """Accepts unknown info hashes too."""
        info_hash = _info_hash(request)
        reason = form.text("reason")
        await deny_torrent(self._store, info_hash, reason or NOT_SERVED)
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
    try:
        return parse_info_hash(request.match_info["info_hash"])
    except ClientError as error:
        raise NotFound("unknown torrent") from error


def _address(info_hash: InfoHash) -> str:
    return f"/torrents/{info_hash.hex()}"
