"""The page of one torrent: its figures, its swarm over time, its peers, and what can be done to it."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from tracker.admin import operations
from tracker.admin.desk import Desk
from tracker.admin.operations import PeerView, peer_view, state_of
from tracker.admin.pages.addresses import announce_urls
from tracker.admin.pages.forms import cursor_number, read_form
from tracker.admin.pages.rendering import done, render, wants_part
from tracker.admin.problems import Problem
from tracker.admin.world import country_name
from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import ClientError
from tracker.store.torrents import Torrent

PEERS = 50
COUNTRIES = 10
_PLACES = 200
"""Places of a torrent that are looked through for countries: cities and postcodes stand among them."""
FEWEST_POINTS = 2
"""A chart of less shows nothing."""
CHARTS = {
    "swarm": {"seeders": "Seeders", "leechers": "Leechers"},
    "score": {"score": "Score"},
}
"""What is drawn together, with the names of the lines."""


class TorrentPage:
    """Handlers of one torrent, at /torrents/<info hash> and below."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._torrents = desk.stores.torrents

    def routes(self) -> list[web.AbstractRouteDef]:
        here = "/torrents/{info_hash}"
        return [
            web.get(here, self.show),
            web.get(f"{here}/peers", self.peers),
            web.get(f"{here}/charts/{{figure}}", self.chart),
            web.post(f"{here}/edit", self.edit),
            web.post(f"{here}/enable", self.enable),
            web.post(f"{here}/disable", self.disable),
            web.post(f"{here}/deny", self.deny),
            web.post(f"{here}/allow", self.allow),
            web.post(f"{here}/remove", self.remove),
        ]

    async def show(self, request: web.Request) -> web.Response:
        return await self._page(request, await self._torrent(request))

    async def _page(self, request: web.Request, torrent: Torrent, error: str = "") -> web.Response:
        cursor, peers = await self._peers(torrent, 0)
        context = {
            "torrent": torrent,
            "state": state_of(torrent),
            "error": error,
            "peers": peers,
            "after": cursor,
            "private_mode": self._desk.settings.users.private,
            "place": await self._desk.stores.scores.place(torrent.torrent_id),
            "charted": len(await self._torrents.history(torrent)) >= FEWEST_POINTS,
            "scored_every": self._desk.settings.scoring.interval_seconds,
            "announce_urls": announce_urls(self._desk.listening, request.host),
            "now": self._desk.clock(),
            **await self._unique_users(torrent),
        }
        return render(request, "torrent.html", context, status=422 if error else 200)

    async def chart(self, request: web.Request) -> web.Response:
        """The torrent over time, as charts.js reads it."""
        figures = CHARTS.get(request.match_info["figure"])
        if figures is None:
            raise Problem(404, detail="there is no such chart")
        points = await self._torrents.history(await self._torrent(request))
        series = [
            {"name": label, "values": [getattr(point, figure) for point in points]}
            for figure, label in figures.items()
        ]
        return web.json_response({"x": [point.at for point in points], "series": series})

    async def peers(self, request: web.Request) -> web.Response:
        """The next peers: rows for htmx to put below the others, or a page of their own."""
        torrent = await self._torrent(request)
        cursor, peers = await self._peers(torrent, cursor_number(request.query.get("cursor", "")))
        template = "parts/peer_rows.html" if wants_part(request) else "torrent_peers.html"
        context = {
            "torrent": torrent,
            "peers": peers,
            "after": cursor,
            "private_mode": self._desk.settings.users.private,
            "now": self._desk.clock(),
        }
        return render(request, template, context)

    async def _peers(self, torrent: Torrent, cursor: int) -> tuple[int, list[tuple[PeerView, str, str]]]:
        """(where the next ones begin, 0 at the end, and peers with the names of their countries and what their ids begin
        with)."""
        after, peers = await self._torrents.peers(torrent, cursor, PEERS)
        views = [peer_view(peer, self._desk.places) for peer in peers]
        prefixes = [operations.shown_prefix(peer.peer_id[:8]) for peer in peers]
        return after, [
            (view, country_name(view.country), prefix) for view, prefix in zip(views, prefixes, strict=True)
        ]

    async def _unique_users(self, torrent: Torrent) -> dict[str, Any]:
        uniques = self._desk.stores.uniques
        places = await uniques.places(torrent.info_hash, _PLACES)
        countries = [standing for scope, standing in places if scope == "countries"][:COUNTRIES]
        return {
            "users": await uniques.figure(f"torrents.{torrent.info_hash.hex()}.users"),
            "countries": [(country_name(name), users) for name, users in countries],
        }

    async def edit(self, request: web.Request) -> web.Response:
        form = await read_form(request)
        fields = {
            "name": form.text("name"),
            "private": str(int(form.ticked("private"))),
            "multi_up": form.text("multi_up") or "1",
            "multi_dn": form.text("multi_dn") or "1",
        }
        return await self._change(request, fields)

    async def enable(self, request: web.Request) -> web.Response:
        return await self._change(request, operations.torrent_fields(enabled=True))

    async def disable(self, request: web.Request) -> web.Response:
        reason = (await read_form(request)).text("reason")
        return await self._change(request, operations.torrent_fields(enabled=False, reason=reason or None))

    async def _change(self, request: web.Request, fields: Mapping[str, str]) -> web.Response:
        torrent = await self._torrent(request)
        try:
            await self._torrents.edit(torrent.info_hash, fields)
        except ClientError as error:
            return await self._page(request, torrent, str(error))
        return done(request, _address(torrent.info_hash), "saved")

    async def deny(self, request: web.Request) -> web.Response:
        """Also of a hash that nobody knows: that is what a deny list is for."""
        info_hash = _info_hash(request)
        reason = (await read_form(request)).text("reason")
        await self._torrents.deny(info_hash, reason or operations.NOT_SERVED)
        return done(request, _address(info_hash), "saved")

    async def allow(self, request: web.Request) -> web.Response:
        info_hash = _info_hash(request)
        await self._torrents.allow(info_hash)
        known = await self._torrents.get(info_hash) is not None
        return done(request, _address(info_hash) if known else "/torrents", "saved")

    async def remove(self, request: web.Request) -> web.Response:
        torrent = await self._torrent(request)
        await self._torrents.remove(torrent.info_hash)
        return done(request, "/torrents", "removed")

    async def _torrent(self, request: web.Request) -> Torrent:
        """Raises Problem (404)."""
        found = await self._torrents.get(_info_hash(request))
        if found is None:
            raise Problem(404, detail="there is no such torrent")
        return found


def _info_hash(request: web.Request) -> InfoHash:
    try:
        return parse_info_hash(request.match_info["info_hash"])
    except ClientError as error:
        raise Problem(404, detail="there is no such torrent") from error


def _address(info_hash: InfoHash) -> str:
    return f"/torrents/{info_hash.hex()}"


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    return TorrentPage(desk).routes()
