"""What is public of a project: figures, the state of an item, needed torrents, the page."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import cache, partial
from importlib.resources import files

import jinja2
from aiohttp import web
from aiohttp.typedefs import Handler

from tracker.core.work import Project, Refused
from tracker.core.work_figures import CACHED_SECONDS, Figures, Needed, columns_of, counts_of
from tracker.frontends.work.live import order_of
from tracker.frontends.work.requests import PRIVATE, Fields, Handlers, json_reply
from tracker.names import size_text

FEED_ITEMS = 50
FEED_MINUTES = 30
"""How long readers may keep the feed."""
TORRENT_TYPE = "application/x-bittorrent"
MAGNET_TYPE = "application/x-bittorrent;x-scheme-handler/magnet"
LISTED_ITEMS = 1000
SHARED = f"public, max-age={CACHED_SECONDS:.0f}"
_TITLES = {"seconds": "verified", "items": "items", "bytes": "reported"}
SHOWN_ROWS = 20
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
STATIC: Mapping[str, str] = {"work.js": "text/javascript", "work.css": "text/css"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


@cache
def environment() -> jinja2.Environment:
    """The templates, which escape everything. Cached, because they are slow to compile."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("tracker.frontends.work", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(size=size_text, amount=amount_text, xml=partial(_NOT_XML.sub, "\ufffd"))
    return made


def amount_text(number: int, column: str) -> str:
    if column == "items":
        return f"{number:,}"
    return size_text(number) if column == "bytes" else f"{number / 86_400:,.1f} d"


@dataclass(eq=False)
class Public(Handlers):
    def __post_init__(self) -> None:
        self._page, self._feed = map(environment().get_template, ("project.html", "feed.xml"))
        folder = files("tracker.frontends.work") / "static"
        self._static = {name: folder.joinpath(name).read_bytes() for name in STATIC}

    def shared(self, read: Callable[[Project], Awaitable[object]]) -> Handler:
        """A handler that replies with what ``read`` returns, which is the same for all clients."""

        async def handle(request: web.Request) -> web.Response:
            return _shared(json_reply(await read(await self.project(request))))

        return handle

    async def charts(self, project: Project) -> dict[str, object]:
        return _charts(await self.figures.figures(project))

    async def of_page(self, project: Project) -> dict[str, object]:
        figures = await self.figures.figures(project)
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
            "last": [entry.shown for entry in figures.last if order_of(entry.id) <= until],
            **_charts(figures),
        }

    async def item(self, request: web.Request) -> web.Response:
        project = await self.project(request)
        status, claimant = await self.figures.item(project, request.match_info["item"])
        return json_reply({"status": status, "downloader": claimant})

    async def needed(self, project: Project) -> list[dict[str, object]]:
        """The open list, where the project has one."""
        if project.kind != "seeding" or not project.public:
            raise Refused("no project", "this project has no open list")
        return [
            {
                "name": each.torrent.name,
                "info_hash": each.torrent.info_hash.hex(),
                "size": each.torrent.size,
                "seeders": each.torrent.seeders,
                "average": None if each.average is None else round(each.average, 2),
                "leechers": each.torrent.leechers,
                "added": each.torrent.added,
            }
            for each in await self.figures.needed(project, LISTED_ITEMS)
        ]

    async def feed(self, request: web.Request) -> web.Response:
        sender = self.sender(request, Fields(), passkey=request.query.get("passkey", ""))
        project = await self.project(request)
        if project.kind != "seeding" or (project.by_name and not project.public):
            raise Refused("no project", "this project has no feed")
        claimant = None
        if not project.by_name and (sender.passkey or not project.public):
            claimant = await self.work.claimant(project.name, sender)
            await self.work.check_blocked(claimant)
        max_size = _size(request.query.get("max_size"))
        found = await self.figures.needed(
            project, FEED_ITEMS, claimant=claimant.id if claimant else "", max_size=max_size
        )
        announce_url = self.links.announce_url(request, claimant.passkey if claimant else "")
        items = [self._feed_item(each, announce_url) for each in found]
        page = self.links.page_url(request, project.name)
        feed = self._feed.render(title=project.title or project.name, link=page, minutes=FEED_MINUTES, items=items)
        headers = {"Content-Type": "application/rss+xml; charset=utf-8", "Cache-Control": PRIVATE}
        return web.Response(body=feed.encode(), headers=headers)

    def _feed_item(self, needed: Needed, announce_url: str | None) -> dict[str, object]:
        """The URL is that of a .torrent file, or a magnet link."""
        torrent = needed.torrent
        info_hash = torrent.info_hash.hex()
        magnet = self.links.magnet(info_hash, torrent.name, torrent.size, announce_url)
        url = self.links.torrent_url(info_hash)
        return {
            "info_hash": info_hash,
            "title": torrent.name or info_hash,
            "url": url or magnet,
            "type": TORRENT_TYPE if url else MAGNET_TYPE,
            "size": torrent.size or 0,
            "about": f"{torrent.seeders} seeders, {torrent.leechers} leechers",
            "date": formatdate(torrent.added, usegmt=True) if torrent.added else "",
        }

    async def page(self, request: web.Request) -> web.Response:
        project = await self.project(request)
        figures = await self.figures.figures(project)
        text = self._page.render(
            project=project,
            url=self.links.page_url(request, project.name).rstrip("/"),
            stats=figures.stats,
            ranks=figures.ranks,
            columns=columns_of(project),
            titles=_TITLES,
            domain_bytes=figures.domain_bytes,
            shown=SHOWN_ROWS,
            last=[entry.shown for entry in figures.last],
        )
        return _shared(web.Response(text=text, content_type="text/html", headers={"Content-Security-Policy": POLICY}))

    async def to_page(self, request: web.Request) -> web.Response:
        """The links of the page are relative to its own folder."""
        project = await self.project(request)
        return web.Response(status=308, headers={"Location": f"/{project.name}/"})

    async def static(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in self._static:
            raise web.HTTPNotFound
        headers = {"Content-Type": f"{STATIC[name]}; charset=utf-8", "Cache-Control": "public, max-age=3600"}
        return web.Response(body=self._static[name], headers=headers)


def _charts(figures: Figures) -> dict[str, object]:
    """Sums over time in the form of 2020: a point is [epoch s, sum]."""
    of_claimants = figures.charts.items()
    return {
        "items_done_chart": [[point.at, point.items] for point in figures.chart],
        "bytes_chart": [[point.at, point.bytes] for point in figures.chart],
        "downloader_chart": {name: [[each.at, each.bytes] for each in points] for name, points in of_claimants},
        "downloader_items_chart": {name: [[each.at, each.items] for each in points] for name, points in of_claimants},
    }


def _shared(reply: web.Response) -> web.Response:
    """The reply is the same for all, so shared caches may keep it for a moment."""
    reply.headers["Cache-Control"] = SHARED
    return reply


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise Refused("malformed", "max_size is a number of bytes")
    return int(text)
