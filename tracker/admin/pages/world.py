"""The pages of unique users by location: a world map, and tables of countries, cities, postcodes and torrents. The
folder `tracker/admin/world/` has the outlines of countries, and their sources."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.http.problems import Problem
from tracker.admin.pages.forms import Form, page_number
from tracker.admin.pages.rendering import Pages, country_name, done, get, post
from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import ClientError
from tracker.geoip import COUNTRY_NAMES, UNKNOWN
from tracker.store.schema.keys import BOARDS, SCOPES
from tracker.store.stats.metric_names import unescape
from tracker.store.stats.slices import ALL_TIME, MONTHS_KEPT
from tracker.store.stats.unique_users import LeaderboardEntry
from tracker.store.torrents.torrents import Torrent
from tracker.store.work.periods import months_ago

FEW = 10
"""Rows of a table on the main page; each table has its own page with more."""
PAGE = 100
COUNTRIES = 300
"""Above the number of countries."""
CANDIDATES = 1000
"""Torrents that the page of a place looks at: those with the most users."""
CLASSES = 5
DAY = 86_400
MIN_DAYS = 14
"""A chart of fewer days shows too little."""
LABELS = {board: board.capitalize() for board in BOARDS}
_FOLDER = Path(__file__).parents[1] / "world"
_MONTH = re.compile(r"[1-9][0-9]{3}-(0[1-9]|1[0-2])", re.ASCII)


@dataclass(frozen=True, slots=True)
class World:
    """Countries by ISO 3166-1 alpha-2 code, and XK for Kosovo. ``outlines`` are SVG paths in a view box of ``width`` by
    ``height``. Countries too small for an outline are in ``dots``, as points in the same units. Some have neither."""

    width: int
    height: int
    outlines: dict[str, str]
    dots: dict[str, tuple[int, int]]


@cache
def world() -> World:
    """Read at the first call."""
    return World(**json.loads((_FOLDER / "countries.json").read_text("utf-8")))


def country_code(name: str) -> str:
    """The code of a country by any of its English names; empty for an unknown name."""
    return _country_codes().get(_plain_name(name), "")


@cache
def _country_codes() -> dict[str, str]:
    aliases: dict[str, list[str]] = json.loads((_FOLDER / "country_aliases.json").read_text("utf-8"))
    found = {_plain_name(name): code for code, names in aliases.items() for name in names}
    return found | {_plain_name(name): code for code, name in COUNTRY_NAMES.items()}


def _plain_name(name: str) -> str:
    """Removes accents, punctuation, capitals, "the" and "and"."""
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    letters = "".join(char if char.isalpha() else " " for char in decomposed if not unicodedata.combining(char))
    words = {"saint": "st", "the": "", "and": ""}
    return " ".join(filter(None, (words.get(word, word) for word in letters.split())))


class Line(NamedTuple):
    """A table row. ``above``: the country of a city, or the info hash of a named torrent; ``href``: its page."""

    name: str
    above: str
    users: int
    href: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """A country on the map. ``path``: empty for a dot at ``x``, ``y``. ``shade``: 0 without users, up to CLASSES."""

    name: str
    users: int
    shade: int
    path: str = ""
    x: int = 0
    y: int = 0


class WorldPages(Pages):
    @get("/world", "world.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        period = _period(request)
        countries = await self._store.unique_users.top("countries", period, COUNTRIES)
        unknown = sum(users for name, users in countries if name == UNKNOWN.country_name)
        countries = [each for each in countries if each.name != UNKNOWN.country_name]
        shades = shades_of([users for _, users in countries])
        return {
            "countries": [_place(one, "countries") for one in countries],
            "counted": sum(users for _, users in countries),
            "unknown": unknown,
            "shades": shades,
            "shapes": shapes_of(countries, shades),
            "world": world(),
            "tables": [(board, LABELS[board], await self._lines(board, period, FEW)) for board in BOARDS[1:]],
            "problem": self._context.places.problem,
            "described": self._context.places.describe(),
            **await self._of_period("/world", period),
        }

    async def _of_period(self, path: str, period: str) -> dict[str, Any]:
        """Variables of each page of a period. ``periods``: (URL, label, whether selected). The last two are counting
        errors because the store was short of memory."""
        totals, now = await self._store.counters.totals(), self._clock()
        months = months_ago(now, range(MONTHS_KEPT + 1))
        known = await self._store.unique_users.with_users(months)
        kept = [month for month in months if month == period or month in known]
        return {
            "period": period,
            "period_label": _label_of(period),
            "periods": [(_address(path, each), _label_of(each), each == period) for each in (ALL_TIME, *kept)],
            "query": _address("", period),
            "skipped": totals["unique_skipped"],
            "may_exceed": await self._store.unique_users.may_exceed(period),
        }

    @post("/world/update", "places.update")
    async def update(self, request: web.Request, form: Form) -> web.Response:
        """Fetches a newer database, which takes some seconds to minutes."""
        try:
            is_newer = await self._context.update_places()
        except ClientError as error:
            raise Problem(409, detail=str(error)) from error
        self._context.places.refresh()
        return done(request, "/world", "places" if is_newer else "places_newest")

    @get("/world/chart")
    async def chart(self, request: web.Request) -> web.Response:
        """Daily joins and new users from the first day with any, at least 14 days, in the format of charts.js."""
        del request
        counters = self._store.counters
        joins = await counters.series("joins", DAY, fill=True)
        fresh = dict(await counters.series("unique.new", DAY, fill=True))
        days = [(at, number, fresh.get(at, 0)) for at, number in joins]
        first = next((place for place, (_, *counts) in enumerate(days) if any(counts)), None)
        first = len(days) if first is None else max(0, min(first, len(days) - MIN_DAYS))
        found = {
            "x": [at for at, _, _ in days[first:]],
            "incomplete": first < len(days),  # today
            "series": [
                {"name": "Joins", "values": [number for _, number, _ in days[first:]]},
                {"name": "New to a torrent", "values": [new for _, _, new in days[first:]]},
            ],
        }
        return web.json_response(found)

    @get("/world/{board}", "world_table.html")
    async def board(self, request: web.Request) -> dict[str, Any]:
        board, period = request.match_info["board"], _period(request)
        if board not in BOARDS:
            raise Problem(404, detail="unknown table")
        number = page_number(request.query.get("page", ""))
        first = (number - 1) * PAGE
        lines = await self._lines(board, period, PAGE + 1, first)
        return {
            "board": board,
            "label": LABELS[board],
            "lines": lines[:PAGE],
            "first": first + 1,
            "previous_url": _address(f"/world/{board}", period, number - 1) if number > 1 else "",
            "next_url": _address(f"/world/{board}", period, number + 1) if len(lines) > PAGE else "",
            **await self._of_period(f"/world/{board}", period),
        }

    @get("/world/{board}/place", "world_place.html")
    async def place(self, request: web.Request) -> dict[str, Any]:
        """The torrents with users from a place, of all time. The query has ``name``, as on the leaderboard."""
        board, name = request.match_info["board"], request.query.get("name", "")
        if board not in SCOPES or not name:
            raise Problem(404, detail="unknown table")
        found = await self._store.unique_users.torrents_at(board, name, CANDIDATES)
        if not found:
            raise Problem(404, detail="no torrent has users from there")
        country, _, below = name.partition("/")
        return {
            "board": board,
            "label": LABELS[board],
            "place": f"{readable(below)}, {readable(country)}" if below else readable(country),
            "lines": await self._torrents(found[:PAGE]),
            "more": max(0, len(found) - PAGE),
            "candidates": CANDIDATES,
        }

    async def _lines(self, board: str, period: str, count: int, offset: int = 0) -> list[Line]:
        entries = await self._store.unique_users.top(board, period, count, offset)
        return await self._torrents(entries) if board == "torrents" else [_place(one, board) for one in entries]

    async def _torrents(self, entries: Sequence[LeaderboardEntry]) -> list[Line]:
        hashes = [found for entry in entries if (found := info_hash_of(entry.name)) is not None]
        known = {each.info_hash: each for each in await self._store.torrents.get_all(hashes)}
        return [_torrent(entry, known) for entry in entries]


def info_hash_of(text: str) -> InfoHash | None:
    """None for text that is no info hash."""
    try:
        return parse_info_hash(text)
    except ClientError:
        return None


def _torrent(entry: LeaderboardEntry, known: Mapping[InfoHash, Torrent]) -> Line:
    info_hash = info_hash_of(entry.name)
    found = None if info_hash is None else known.get(info_hash)
    if found is None:
        return Line(entry.name, "" if info_hash is None else "no longer registered", entry.users)
    above = entry.name if found.name else ""
    return Line(found.name or entry.name, above, entry.users, f"/torrents/{entry.name}")


def _place(entry: LeaderboardEntry, board: str) -> Line:
    country, _, below = entry.name.partition("/")
    href = f"/world/{board}/place?{urlencode({'name': entry.name})}"
    return Line(readable(below or country), readable(country) if below else "", entry.users, href)


def readable(part: str) -> str:
    """The unescaped name of a location; the stored form if it is not printable."""
    try:
        text = unescape(part)
        text.encode()
    except ValueError:
        return part
    return text if text.isprintable() else part


def shades_of(user_counts: list[int]) -> list[tuple[int, int]]:
    """(fewest, most users) of up to CLASSES colour classes, with exponential bounds, because few countries have most of
    the users."""
    largest = max(user_counts, default=0)
    if largest < 1:
        return []
    bounds = sorted({_round(largest ** (step / CLASSES)) for step in range(CLASSES)} | {1})
    bounds = [bound for bound in bounds if bound <= largest]
    return [(low, high - 1) for low, high in zip(bounds, [*bounds[1:], largest + 1], strict=True)]


def _round(number: float) -> int:
    """Rounds down to one significant digit, for a readable legend."""
    magnitude: int = 10 ** (len(str(int(number))) - 1)
    return int(number) // magnitude * magnitude


def shapes_of(countries: list[LeaderboardEntry], shades: list[tuple[int, int]]) -> list[Shape]:
    """All outlines, and dots for small countries with users."""
    users: Counter[str] = Counter()
    for name, number in countries:
        users[country_code(readable(name))] += number
    earth = world()

    def shape(code: str, path: str = "", x: int = 0, y: int = 0) -> Shape:
        reached = sum(users[code] >= fewest for fewest, _ in shades)
        shade = CLASSES - len(shades) + reached if users[code] > 0 else 0
        return Shape(country_name(code), users[code], shade, path, x, y)

    dots = [shape(code, x=x, y=y) for code, (x, y) in earth.dots.items() if users[code] > 0]
    return [*(shape(code, path) for code, path in earth.outlines.items()), *dots]


def _period(request: web.Request) -> str:
    asked = request.query.get("month", "")
    return asked if _MONTH.fullmatch(asked) else ALL_TIME


def _address(path: str, period: str, page: int = 1) -> str:
    parts = {"month": "" if period == ALL_TIME else period, "page": str(page) if page > 1 else ""}
    query = urlencode({name: value for name, value in parts.items() if value})
    return f"{path}?{query}" if query else path


def _label_of(period: str) -> str:
    """``2026-11`` -> ``November 2026``."""
    if period == ALL_TIME:
        return "All time"
    return datetime.strptime(f"{period}+0000", "%Y-%m%z").strftime("%B %Y")
