"""The pages of the past: charts of a range of time that links and the mouse zoom, and each chart as a table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
from aiohttp import web

from tracker.admin.context import AdminContext
from tracker.admin.http.problems import Problem
from tracker.admin.pages.formats import NOTHING, milliseconds, number, rate, size
from tracker.admin.pages.history_data import UNITS, chart_data
from tracker.admin.pages.rendering import render
from tracker.operations import history
from tracker.operations.history import CHARTS, MIN_SPAN, RANGES, Chart, Range, Slices, Unit, Window

_DEFAULT = RANGES["24h"]
_MAX_DIGITS = 12
FORMATS: dict[Unit, Callable[[float | None], str]] = {
    "per second": rate,
    "bytes per second": lambda value: NOTHING if value is None else f"{size(value)}/s",
    "seconds": milliseconds,
    "count": lambda value: number(None if value is None else round(value, 1)),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """The range of time that a request names: one that ends now, or from ``since`` to ``until`` (epoch s)."""

    now: float
    range: Range | None
    since: int
    until: int

    def window(self, min_step: int = 1) -> Window:
        return history.window_between(self.since, self.until, self.now, min_step)

    @property
    def query(self) -> str:
        if self.range is not None:
            return urlencode({"range": self.range.name})
        return _query(self.since, self.until)

    def links(self) -> list[tuple[str, str, str]]:
        """(id, label, URL) of each change of the range; the URL is empty where it would change nothing."""
        window = self.window()
        since, until, half = window.since, window.until, window.span // 2
        quarter, newest, oldest = window.span // 4, int(self.now), history.oldest(self.now)
        return [
            ("earlier", "Earlier", _url(since - half, until - half) if since - half >= oldest else ""),
            ("later", "Later", _url(since + half, until + half) if until + half <= newest else ""),
            ("in", "Zoom in", _url(since + quarter, until - quarter) if half >= 2 * MIN_SPAN else ""),
            (
                "out",
                "Zoom out",
                _url(max(oldest, since - half), min(newest, until + half))
                if window.span < newest - oldest
                else "",
            ),
        ]


def shown_of(request: web.Request, now: float) -> Shown:
    """Of a wrong query, the default range."""
    since, until = (_number(request.query.get(name, "")) for name in ("since", "until"))
    if since is not None and until is not None:
        window = history.window_between(since, until, now)
        return Shown(now, None, window.since, window.until)
    chosen = RANGES.get(request.query.get("range", ""), _DEFAULT)
    return Shown(now, chosen, int(now) - chosen.seconds, int(now))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def _query(since: int, until: int) -> str:
    return urlencode({"since": since, "until": until})


def _url(since: int, until: int) -> str:
    return f"/history?{_query(since, until)}"


class HistoryPages:
    """Handlers."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/history", self.show),
            web.get("/history/{chart}.json", self.data),
            web.get("/history/{chart}", self.table),
        ]

    async def show(self, request: web.Request) -> web.Response:
        """The query has ``range``, or ``since`` and ``until`` (epoch s)."""
        shown = shown_of(request, self._context.clock())
        has_users = self._context.settings.users.private != "off"
        charts = [chart for chart in CHARTS.values() if chart.name != "users" or has_users]
        return render(request, "history.html", {"charts": charts, "units": UNITS, **_variables(shown)})

    async def data(self, request: web.Request) -> web.Response:
        chart = _chart(request)
        slices = await self._read(chart, shown_of(request, self._context.clock()))
        return web.Response(body=orjson.dumps(chart_data(chart, slices)), content_type="application/json")

    async def table(self, request: web.Request) -> web.Response:
        chart, shown = _chart(request), shown_of(request, self._context.clock())
        slices = await self._read(chart, shown)
        return render(
            request,
            "history_table.html",
            {"chart": chart, "rows": _rows(chart, slices), **_variables(shown, chart.min_step)},
        )

    async def _read(self, chart: Chart, shown: Shown) -> Slices:
        window = shown.window(chart.min_step)
        return await history.read(self._context.store.counters, chart.lines, window, shown.now)


def _chart(request: web.Request) -> Chart:
    chart = CHARTS.get(request.match_info["chart"])
    if chart is None:
        raise Problem(404, detail="unknown chart")
    return chart


def _variables(shown: Shown, min_step: int = 1) -> Mapping[str, Any]:
    return {
        "shown": shown,
        "window": shown.window(min_step),
        "ranges": RANGES.values(),
        "links": shown.links(),
    }


def _rows(chart: Chart, slices: Slices) -> list[tuple[int, bool, list[str]]]:
    """(start, whether the slice has not ended, values), newest first."""
    written = FORMATS[chart.unit]
    last = len(slices.starts) - 1
    rows = [
        (
            start,
            slices.incomplete and place == last,
            [written(slices.values[e.name][place]) for e in chart.lines],
        )
        for place, start in enumerate(slices.starts)
    ]
    return rows[::-1]


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    return HistoryPages(context).routes()
