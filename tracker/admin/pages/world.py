"""The pages of unique users by place: the map of the world, and tables of countries, cities, postcodes and torrents."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.desk import Desk
from tracker.admin.pages.forms import page_number
from tracker.admin.pages.rendering import render
from tracker.admin.problems import Problem
from tracker.admin.world import country_name, world
from tracker.bittorrent import parse_info_hash
from tracker.errors import ClientError
from tracker.store.metrics import unescape
from tracker.store.months import ALL_TIME, MONTHS_KEPT, month_start
from tracker.store.uniques import BOARDS, Standing

FEW = 10
"""Lines of a table on the first page; the page of each has more."""
PAGE = 100
COUNTRIES = 300
"""More than there are."""
CLASSES = 5
DAY = 86_400
LEAST_DAYS = 14
"""A chart of one day is a point on an axis that says nothing."""
LABELS = {"countries": "Countries", "cities": "Cities", "postcodes": "Postcodes", "torrents": "Torrents"}
_MONTH = re.compile(r"[1-9][0-9]{3}-(0[1-9]|1[0-2])", re.ASCII)


class Line(NamedTuple):
    """A place or a torrent in a table; ``above`` says where it is, ``href`` is its page if it has one."""

    name: str
    above: str
    users: int
    href: str = ""


class Shade(NamedTuple):
    """A class of the map: from ``least`` to ``most`` users."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A country on the map. ``path`` is empty for a dot at ``x``, ``y``; ``shade`` is 0 where nobody was seen, else up to
    CLASSES, which the countries with most users have."""

    code: str
    name: str
    users: int
    shade: int
    path: str = ""
    x: int = 0
    y: int = 0


class WorldPages:
    """Handlers of the map and of each table."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._uniques = desk.stores.uniques

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/world", self.show),
            web.get("/world/chart", self.chart),
            web.get("/world/{board}", self.board),
        ]

    async def show(self, request: web.Request) -> web.Response:
        period = _period(request)
        countries = await self._uniques.top("countries", period, COUNTRIES)
        shades = shades_of([users for _, users in countries])
        context = {
            "period": period,
            "spoken": _spoken(period),
            "periods": await self._periods("/world", period),
            "countries": [await self._line("countries", one) for one in countries],
            "counted": sum(users for _, users in countries),
            "shades": shades,
            "shapes": shapes_of(countries, shades),
            "world": world(),
            "tables": [
                (board, LABELS[board], await self._lines(board, period, FEW))
                for board in ("cities", "postcodes", "torrents")
            ],
            "query": _query(period),
            **self._database(),
        }
        return render(request, "world.html", context)

    def _database(self) -> dict[str, Any]:
        """What to say where nobody is counted by place."""
        settings = self._desk.settings
        return {
            "enabled": settings.uniques.enabled,
            "database": settings.geoip.database,
            "problem": self._desk.places.problem,
            "described": self._desk.places.describe(),
        }

    async def board(self, request: web.Request) -> web.Response:
        """One table, page by page."""
        board, period = request.match_info["board"], _period(request)
        if board not in BOARDS:
            raise Problem(404, detail="there is no such table")
        number = page_number(request.query.get("page", ""))
        first = (number - 1) * PAGE
        lines = await self._lines(board, period, PAGE + 1, first)
        context = {
            "board": board,
            "label": LABELS[board],
            "period": period,
            "spoken": _spoken(period),
            "periods": await self._periods(f"/world/{board}", period),
            "lines": lines[:PAGE],
            "first": first + 1,
            "earlier": _address(f"/world/{board}", period, number - 1) if number > 1 else "",
            "later": _address(f"/world/{board}", period, number + 1) if len(lines) > PAGE else "",
            "query": _query(period),
        }
        return render(request, "world_table.html", context)

    async def chart(self, request: web.Request) -> web.Response:
        """Joins and new users by day since there are any, and at least a fortnight, as charts.js reads them."""
        del request
        counters = self._desk.stores.counters
        joins = await counters.series("joins", DAY, fill=True)
        fresh = dict(await counters.series("unique.new", DAY, fill=True))
        days = [(at, number, fresh.get(at, 0)) for at, number in joins]
        first = next((place for place, (_, *figures) in enumerate(days) if any(figures)), None)
        first = len(days) if first is None else max(0, min(first, len(days) - LEAST_DAYS))
        found = {
            "x": [at for at, _, _ in days[first:]],
            "series": [
                {"name": "Joins", "values": [number for _, number, _ in days[first:]]},
                {"name": "New to a torrent", "values": [new for _, _, new in days[first:]]},
            ],
        }
        return web.json_response(found)

    async def _periods(self, path: str, chosen: str) -> list[tuple[str, str, bool]]:
        """(address, label, whether it is shown now): all time, and the months that anybody was counted in."""
        now = self._desk.clock()
        months = [month_start(now, -back).strftime("%Y-%m") for back in range(MONTHS_KEPT + 1)]
        kept = [month for month in months if month == chosen or await self._any(month)]
        return [(_address(path, period), _spoken(period), period == chosen) for period in (ALL_TIME, *kept)]

    async def _any(self, month: str) -> bool:
        boards = ("countries", "torrents")  # who has no place still has a torrent, but that may be gone since
        return any([await self._uniques.top(board, month, 1) for board in boards])

    async def _lines(self, board: str, period: str, count: int, offset: int = 0) -> list[Line]:
        return [await self._line(board, one) for one in await self._uniques.top(board, period, count, offset)]

    async def _line(self, board: str, standing: Standing) -> Line:
        if board == "torrents":
            return await self._torrent(standing)
        country, _, rest = standing.name.partition("/")
        if not rest:
            return Line(country_name(country), country, standing.users)
        *above, name = (readable(part) for part in rest.split("/"))
        return Line(name, ", ".join([*above, country_name(country)]), standing.users)

    async def _torrent(self, standing: Standing) -> Line:
        try:
            info_hash = parse_info_hash(standing.name)
        except ClientError:  # somebody else wrote it
            return Line(standing.name, "", standing.users)
        found = await self._desk.stores.torrents.get(info_hash)
        if found is None:
            return Line(standing.name, "no longer registered", standing.users)
        above = standing.name if found.name else ""
        return Line(found.name or standing.name, above, standing.users, f"/torrents/{standing.name}")


def readable(part: str) -> str:
    """A part of a place's name as people write it; as it is stored where that would hide something."""
    try:
        text = unescape(part)
        text.encode()
    except ValueError:
        return part
    return text if text.isprintable() else part


def shades_of(figures: list[int]) -> list[Shade]:
    """At most CLASSES classes, each so many times larger than the one before: a few countries have most of the users."""
    most = max(figures, default=0)
    if most < 1:
        return []
    bounds = sorted({_round(most ** (step / CLASSES)) for step in range(CLASSES)} | {1})
    bounds = [bound for bound in bounds if bound <= most]
    return [Shade(low, high - 1) for low, high in zip(bounds, [*bounds[1:], most + 1], strict=True)]


def _round(number: float) -> int:
    """Down to one digit, so that a legend is easy to read."""
    magnitude: int = 10 ** (len(str(int(number))) - 1)
    return int(number) // magnitude * magnitude


def shapes_of(countries: list[Standing], shades: list[Shade]) -> list[Shape]:
    """Every outline, and dots for small countries that have users."""
    users = dict(countries)
    earth = world()

    def shade(number: int) -> int:
        reached = sum(number >= each.least for each in shades)
        return CLASSES - len(shades) + reached if number > 0 else 0

    lands = [
        Shape(code, country_name(code), users.get(code, 0), shade(users.get(code, 0)), path)
        for code, path in earth.outlines.items()
    ]
    dots = [
        Shape(code, country_name(code), users[code], shade(users[code]), x=x, y=y)
        for code, (x, y) in earth.dots.items()
        if users.get(code, 0) > 0
    ]
    return [*lands, *dots]


def _period(request: web.Request) -> str:
    asked = request.query.get("month", "")
    return asked if _MONTH.fullmatch(asked) else ALL_TIME


def _query(period: str) -> str:
    return "" if period == ALL_TIME else f"?month={period}"


def _address(path: str, period: str, page: int = 1) -> str:
    parts = {"month": "" if period == ALL_TIME else period, "page": str(page) if page > 1 else ""}
    query = urlencode({name: value for name, value in parts.items() if value})
    return f"{path}?{query}" if query else path


def _spoken(period: str) -> str:
    """``2026-11`` -> ``November 2026``."""
    if period == ALL_TIME:
        return "All time"
    return datetime.strptime(f"{period}+0000", "%Y-%m%z").strftime("%B %Y")


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    return WorldPages(desk).routes()
