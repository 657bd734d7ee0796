"""The pages of the past: charts of a range of time that links and the mouse zoom, and each chart as a table; and of a
failure reason its requests over time, and the clients and torrents of refused announces."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
from aiohttp import web

from tracker.admin.pages.forms import digits
from tracker.admin.pages.rendering import NOTHING, Pages, get, milliseconds, number, rate, size
from tracker.errors import existing
from tracker.operations import history
from tracker.operations.history import CHARTS, MIN_SPAN, PARTS, RANGES, Chart, Line, Part, Range, Slices, Unit, Window
from tracker.refusals import CLOSED, Label, Reason, explained
from tracker.store.stats.client_software import MAX_MEMBERS, parted, shown
from tracker.store.stats.refusal_samples import MAX_KEPT

UNITS: dict[Unit, str] = {"per second": "/s", "bytes per second": "B/s", "seconds": " ms", "count": ""}
"""What charts.js shows after a value. Seconds are drawn as milliseconds."""


def rounded(values: Sequence[float | None], digits: int, factor: float = 1) -> list[float | None]:
    return [None if value is None else round(value * factor, digits) for value in values]


def chart_data(chart: Chart, slices: Slices, by: Part = "total") -> dict[str, Any]:
    """The JSON of a chart. Lines of UDP and WebSockets beside the total of all are left out while 0."""
    factor, digits = 1000 if chart.unit == "seconds" else 1, 1 if chart.unit == "count" else 3
    return {
        "x": slices.starts,
        "incomplete": slices.incomplete,
        "series": [
            {"name": line.label, "values": rounded(slices.values[line.name], digits, factor)}
            for line in chart.lines_by(by)
            if line.name not in ("udp", "ws") or by != "total" or any(slices.values[line.name])
        ],
    }


_DEFAULT, _YOUNG = RANGES["24h"], RANGES["2h"]
_MAX_DIGITS = 12
FORMATS: dict[Unit, Callable[[float | None], str]] = {
    "per second": rate,
    "bytes per second": lambda value: NOTHING if value is None else f"{size(value)}/s",
    "seconds": milliseconds,
    "count": lambda value: number(None if value is None else round(value, 1)),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What a request names: a range that ends now, or from ``since`` to ``until`` (epoch s), and the parts to show."""

    now: float
    range: Range | None
    since: int
    until: int
    by: Part

    def window(self, min_step: int = 1) -> Window:
        return history.window_between(self.since, self.until, self.now, min_step)

    def query(self, by: Part | None = None) -> str:
        """This range, perhaps with other parts."""
        if self.range is not None:
            return _query(by or self.by, range=self.range.name)
        return _query(by or self.by, since=self.since, until=self.until)

    @property
    def zoom(self) -> str:
        """The URL of a part of a chart, without its range."""
        return f"/history?{_query(self.by)}".rstrip("?")

    def in_range(self, name: str) -> str:
        """The query of the same parts in another range."""
        return _query(self.by, range=name)

    def links(self) -> list[tuple[str, str, str]]:
        """(id, label, URL) of each change of the range; the URL is empty where it would change nothing."""
        window = self.window()
        since, until, half = window.since, window.until, window.span // 2
        quarter, newest, oldest = window.span // 4, int(self.now), history.oldest(self.now)
        changes = (
            ("earlier", "Earlier", since - half, until - half, since - half >= oldest),
            ("later", "Later", since + half, until + half, until + half <= newest),
            ("in", "Zoom in", since + quarter, until - quarter, half >= 2 * MIN_SPAN),
            ("out", "Zoom out", max(oldest, since - half), min(newest, until + half), window.span < newest - oldest),
        )
        return [
            (id, label, f"/history?{_query(self.by, since=first, until=last)}" if possible else "")
            for id, label, first, last, possible in changes
        ]


def shown_of(request: web.Request, now: float, default: Range = _DEFAULT) -> Shown:
    """For an invalid query: totals of the default range."""
    by: Part = next((part for part in PARTS if part == request.query.get("by")), "total")
    since, until = (digits(request.query.get(name, ""), _MAX_DIGITS) for name in ("since", "until"))
    if since is not None and until is not None:
        window = history.window_between(since, until, now)
        return Shown(now, None, window.since, window.until, by)
    chosen = RANGES.get(request.query.get("range", ""), default)
    return Shown(now, chosen, int(now) - chosen.seconds, int(now), by)


def _query(by: Part, **named: str | int) -> str:
    return urlencode(named if by == "total" else {**named, "by": by})


class HistoryPages(Pages):
    @get("/history", "history.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        """The query has ``range``, or ``since`` and ``until`` (epoch s); and ``by``."""
        now, slices = self._clock(), await self._store.counters.series("announces", 900)
        # The default: the shortest range, of hours, that has all announces of a young tracker.
        is_young = not slices or slices[0][0] >= now - _YOUNG.seconds
        shown = shown_of(request, now, _YOUNG if is_young else _DEFAULT)
        has_users = self._context.settings.users.private != "off"
        charts = [chart for chart in CHARTS.values() if chart.name != "users" or has_users]
        return {"charts": charts, "units": UNITS, **_variables(shown, shown.window())}

    @get("/history/{chart}.json")
    async def data(self, request: web.Request) -> web.Response:
        chart, shown = _chart(request), shown_of(request, self._clock())
        lines, window = chart.lines_by(shown.by), shown.window(chart.min_step)
        slices = await history.read(self._store.counters, lines, window, shown.now)
        return web.Response(body=orjson.dumps(chart_data(chart, slices, shown.by)), content_type="application/json")

    @get("/history/{chart}", "history_table.html")
    async def table(self, request: web.Request) -> dict[str, Any]:
        chart, shown = _chart(request), shown_of(request, self._clock())
        lines, window = chart.lines_by(shown.by), shown.window(chart.min_step)
        slices = await history.read(self._store.counters, lines, window, shown.now)
        written, last = FORMATS[chart.unit], len(slices.starts) - 1
        rows = [  # (start, whether the slice has not ended, values)
            (start, slices.incomplete and place == last, [written(slices.values[e.name][place]) for e in lines])
            for place, start in enumerate(slices.starts)
        ]
        return {"table": chart, "lines": lines, "rows": rows[::-1], **_variables(shown, window)}

    @get("/failures", "failure.html")
    async def failure(self, request: web.Request) -> dict[str, Any]:
        """The query has ``reason``, and ``range`` as on the pages of the past."""
        store, reason = self._store, request.query.get("reason", "")
        total = existing((await store.counters.failures()).get(reason), "reason")
        samples = await store.refusal_samples.last(reason)
        torrents = await store.torrents.get_all(list(dict.fromkeys(sample.info_hash for sample in samples)))
        ranged = shown_of(request, self._clock())
        return {
            "reason": reason,
            "explained": [_for_page(each) for each in explained(reason)],
            "closed": CLOSED.get(Label(reason)),
            "total": total,
            "query": urlencode({"reason": reason}),
            "shown": ranged,
            "ranges": RANGES.values(),
            "clients": await self._clients(reason),
            "torrents": Counter(sample.info_hash.hex() for sample in samples).most_common(),
            "samples": samples,
            "max_samples": MAX_KEPT,
            "names": {torrent.info_hash.hex(): torrent.name for torrent in torrents},
        }

    async def _clients(self, reason: str) -> list[tuple[str, int]]:
        """(client, refused announces of all time), most first. Leaderboards keep the beginning of a long reason."""
        board = await self._store.client_software.top("failures", count=MAX_MEMBERS)
        kept = shown("", reason)[1]
        return [(parted(member)[0], count) for member, count in board if parted(member)[1] == kept]

    @get("/failures/chart.json")
    async def failure_data(self, request: web.Request) -> web.Response:
        now, reason = self._clock(), request.query.get("reason", "")
        lines = (Line("failures", "Refused", (f"failures.{reason}",)),)
        slices = await history.read(self._store.counters, lines, shown_of(request, now).window(), now)
        chart = Chart("failures", "Refused requests", "per second", lines)
        return web.Response(body=orjson.dumps(chart_data(chart, slices)), content_type="application/json")


def _chart(request: web.Request) -> Chart:
    return existing(CHARTS.get(request.match_info["chart"]), "chart")


def _variables(shown: Shown, window: Window) -> Mapping[str, Any]:
    return {"shown": shown, "window": window, "ranges": RANGES.values(), "parts": PARTS, "links": shown.links()}


def _for_page(reason: Reason) -> tuple[str, str, str]:
    """(text, meaning, remedy) without the Markdown of the documents."""
    meaning, remedy = (
        re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "") for text in (reason.meaning, reason.remedy)
    )
    return reason.text, meaning, remedy
