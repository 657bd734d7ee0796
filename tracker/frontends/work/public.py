"""What is public of a project: figures, the state of an item, needed torrents, the page."""

from collections.abc import Mapping
from email.utils import formatdate
from importlib.resources import files

from aiohttp import web

from tracker.core.work import Refused, WorkRequests
from tracker.core.work_figures import CACHED_SECONDS, Figures, Needed, WorkFigures, columns_of, counts_of
from tracker.frontends.work.links import Links
from tracker.frontends.work.live import order_of, shown
from tracker.frontends.work.rendering import FeedItem, environment, rss
from tracker.frontends.work.replies import PRIVATE, json_reply
from tracker.frontends.work.requests import Fields, Senders

FEED_ITEMS = 50
LISTED_ITEMS = 1000
SHARED = f"public, max-age={CACHED_SECONDS:.0f}"
_TITLES = {"seconds": "verified", "items": "items", "bytes": "reported"}
SHOWN_ROWS = 20
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
STATIC: Mapping[str, str] = {"work.js": "text/javascript", "work.css": "text/css"}


class Public:
    """``default`` is the project of paths without a name."""

    def __init__(self, work: WorkRequests, figures: WorkFigures, senders: Senders, links: Links, default: str) -> None:
        self._work = work
        self._figures = figures
        self._senders = senders
        self._links = links
        self._default = default
        self._page = environment().get_template("project.html")
        folder = files("tracker.frontends.work") / "static"
        self._static = {name: folder.joinpath(name).read_bytes() for name in STATIC}

    def _name(self, request: web.Request) -> str:
        return request.match_info.get("project", self._default)

    async def stats(self, request: web.Request) -> web.Response:
        project = await self._work.project(self._name(request))
        return _shared(json_reply(await self._figures.stats(project)))

    async def charts(self, request: web.Request) -> web.Response:
        project = await self._work.project(self._name(request))
        return _shared(json_reply(_charts(await self._figures.figures(project))))

    async def figures(self, request: web.Request) -> web.Response:
        """What the page shows, for its script."""
        project = await self._work.project(self._name(request))
        return _shared(json_reply(_figures(await self._figures.figures(project))))

    async def update_status(self, request: web.Request) -> web.Response:
        project = await self._work.project(self._name(request))
        return _shared(json_reply(await self._figures.update_status(project)))

    async def item(self, request: web.Request) -> web.Response:
        project = await self._work.project(self._name(request))
        status, claimant = await self._figures.item(project, request.match_info["item"])
        return json_reply({"status": status, "downloader": claimant})

    async def needed(self, request: web.Request) -> web.Response:
        """The open list, where the project has one."""
        project = await self._work.project(self._name(request))
        if project.kind != "seeding" or not project.public:
            raise Refused("no project", "this project has no open list")
        found = await self._figures.needed(project, LISTED_ITEMS)
        return _shared(json_reply([_needed(each) for each in found]))

    async def feed(self, request: web.Request) -> web.Response:
        name = self._name(request)
        sender = self._senders.sender(request, Fields(), passkey=request.query.get("passkey", ""))
        project = await self._work.project(name)
        if project.kind != "seeding":
            raise Refused("no project", "this project has no feed")
        claimant = None
        if project.by_name and not project.public:
            raise Refused("no project", "this project has no feed")
        if not project.by_name and (sender.passkey or not project.public):
            claimant = await self._work.claimant(name, sender)
            await self._work.check_blocked(claimant)
        max_size = _size(request.query.get("max_size"))
        found = await self._figures.needed(
            project, FEED_ITEMS, claimant=claimant.id if claimant else "", max_size=max_size
        )
        announce_url = self._links.announce_url(request, claimant.passkey if claimant else "")
        items = [self._feed_item(each, announce_url) for each in found]
        page = self._links.page_url(request, name)
        reply = web.Response(body=rss(project.title or project.name, page, items))
        reply.headers["Content-Type"] = "application/rss+xml; charset=utf-8"
        reply.headers["Cache-Control"] = PRIVATE
        return reply

    def _feed_item(self, needed: Needed, announce_url: str | None) -> FeedItem:
        torrent = needed.torrent
        info_hash = torrent.info_hash.hex()
        magnet = self._links.magnet(info_hash, torrent.name, torrent.size, announce_url)
        return FeedItem(
            info_hash=info_hash,
            title=torrent.name or info_hash,
            url=self._links.torrent_url(info_hash) or magnet,
            size=torrent.size or 0,
            about=f"{torrent.seeders} seeders, {torrent.leechers} leechers",
            date=formatdate(torrent.added, usegmt=True) if torrent.added else "",
        )

    async def page(self, request: web.Request) -> web.Response:
        project = await self._work.project(self._name(request))
        figures = await self._figures.figures(project)
        text = self._page.render(
            project=project,
            url=self._links.page_url(request, project.name).rstrip("/"),
            stats=figures.stats,
            ranks=figures.ranks,
            columns=columns_of(project),
            titles=_TITLES,
            domain_bytes=figures.domain_bytes,
            shown=SHOWN_ROWS,
            last=figures.last,
        )
        reply = web.Response(text=text, content_type="text/html")
        reply.headers["Content-Security-Policy"] = POLICY
        return _shared(reply)

    async def to_page(self, request: web.Request) -> web.Response:
        """The links of the page are relative to its own folder."""
        project = await self._work.project(self._name(request))
        return web.Response(status=308, headers={"Location": f"/{project.name}/"})

    async def static(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in self._static:
            raise web.HTTPNotFound
        reply = web.Response(body=self._static[name], content_type=STATIC[name], charset="utf-8")
        reply.headers["Cache-Control"] = "public, max-age=3600"
        return reply


def _charts(figures: Figures) -> dict[str, object]:
    """Sums over time in the form of 2020: a point is [epoch s, sum]."""
    return {
        "items_done_chart": [[point.at, point.items] for point in figures.chart],
        "bytes_chart": [[point.at, point.bytes] for point in figures.chart],
        "downloader_chart": {
            name: [[point.at, point.bytes] for point in points] for name, points in figures.charts.items()
        },
        "downloader_items_chart": {
            name: [[point.at, point.items] for point in points] for name, points in figures.charts.items()
        },
    }


def _figures(figures: Figures) -> dict[str, object]:
    stats, until = figures.stats, order_of(figures.id)
    return {
        "id": figures.id,
        "counts": counts_of(stats),
        "totals": {"items": stats.totals.get("done", 0), "bytes": stats.totals.get("bytes", 0)},
        "domain_bytes": figures.domain_bytes,
        "ranks": {
            span: [
                {"name": rank.claimant, "items": rank.items, "bytes": rank.bytes, "seconds": rank.seconds}
                for rank in ranks
            ]
            for span, ranks in figures.ranks.items()
        },
        "last": [shown(entry) for entry in figures.last if order_of(entry.id) <= until],
        **_charts(figures),
    }


def _shared(reply: web.Response) -> web.Response:
    """The reply is the same for all, so shared caches may keep it for a moment."""
    reply.headers["Cache-Control"] = SHARED
    return reply


def _needed(needed: Needed) -> dict[str, object]:
    torrent = needed.torrent
    return {
        "name": torrent.name,
        "info_hash": torrent.info_hash.hex(),
        "size": torrent.size,
        "seeders": torrent.seeders,
        "average": None if needed.average is None else round(needed.average, 2),
        "leechers": torrent.leechers,
        "added": torrent.added,
    }


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise Refused("malformed", "max_size is a number of bytes")
    return int(text)
