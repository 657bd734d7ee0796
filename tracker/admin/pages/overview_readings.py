"""Reads the values of the overview from the store and formats them for its tiles, tables and charts.

The page and the live updates both use this module, so that they show the same.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracker.admin.context import AdminContext
from tracker.admin.pages.formats import milliseconds, number, rate
from tracker.store.stats.slices import RETAINED, Distribution, start_of

COUNTED = ("announces", "announces.udp", "scrapes", "joins")
"""The counters with rates, besides failures."""
LATENCY = "announce_seconds"
_REASONS = 100
"""Above the number of fixed refusal texts; bounds what other writers of the store may add."""
_LATE_SECONDS = 2
"""Counters are flushed up to 1 s late, so the newest one-second slices are incomplete."""
_MIN_SHARE = 0.2
"""A longer slice in progress is shown once this share of it has passed."""
_RATE_SLICES = 5

Failures = list[tuple[str, int, int]]
"""(reason, count in the last two hours, total), highest recent count first."""


@dataclass(frozen=True, slots=True)
class View:
    """A time range of charts; ``precision``: slice length in seconds."""

    name: str
    label: str
    precision: int


VIEWS = {
    view.name: view for view in (View("2m", "2 min", 1), View("2h", "2 h", 60), View("5d", "5 days", 3600))
}


@dataclass(slots=True)
class Window:
    """Up to RETAINED slices, oldest first: start (epoch s) and rates per second."""

    at: list[int] = field(default_factory=list)
    rates: dict[str, list[float]] = field(default_factory=dict)
    latency: list[float | None] = field(default_factory=list)
    """Mean announce latency (s); None for slices without announces."""
    slowest: list[float | None] = field(default_factory=list)

    def rate(self, name: str) -> float:
        """Mean rate of the last few slices."""
        last = self.rates[name][-_RATE_SLICES:]
        return sum(last) / len(last) if last else 0.0


@dataclass(slots=True)
class OverviewReading:
    """The values of the overview at one time."""

    at: float
    window: Window
    """The last two minutes."""
    totals: Mapping[str, int]
    torrents: int
    failures: Failures
    mean: float | None
    """Mean announce latency of the last two minutes (s)."""
    p95: float | None


async def read_window(context: AdminContext, view: View) -> Window:
    """Read rates and latency by slices."""
    now = context.clock()
    starts = _starts(now, view.precision)
    counters = context.store.counters
    reasons = await counters.names("failures.*")
    names = [*COUNTED, *reasons[:_REASONS]]
    counts, (latencies, _) = await asyncio.gather(
        asyncio.gather(*(counters.series(name, view.precision) for name in names)),
        counters.distribution(LATENCY, view.precision),
    )
    seconds = {start: min(view.precision, max(1.0, now - start)) for start in starts}
    by_name = {name: dict(series) for name, series in zip(names, counts, strict=True)}
    window = Window(at=starts)
    for name in COUNTED:
        window.rates[name] = [by_name[name].get(start, 0) / seconds[start] for start in starts]
    window.rates["failures"] = [
        sum(by_name[reason].get(start, 0) for reason in names[len(COUNTED) :]) / seconds[start]
        for start in starts
    ]
    measured: dict[int, Distribution] = dict(latencies)
    window.latency = [measured[start].mean if start in measured else None for start in starts]
    window.slowest = [measured[start].max if start in measured else None for start in starts]
    return window


def _starts(now: float, precision: int) -> list[int]:
    """Starts of the slices to show; without the newest while it is too incomplete."""
    newest = start_of(now, precision)
    if precision == 1:
        newest -= _LATE_SECONDS
    elif now - newest < precision * _MIN_SHARE:
        newest -= precision
    oldest = start_of(now, precision) - (RETAINED - 1) * precision
    return list(range(oldest, newest + 1, precision))


async def read_failures(context: AdminContext) -> Failures:
    """Read refused requests by reason."""
    counters = context.store.counters
    ever = await counters.failures()
    names = (await counters.names("failures.*"))[:_REASONS]
    series = await asyncio.gather(*(counters.series(name, 60) for name in names))
    late = {
        name.removeprefix("failures."): sum(count for _, count in slices)
        for name, slices in zip(names, series, strict=True)
    }
    rows = [(reason, late.get(reason, 0), ever.get(reason, 0)) for reason in {*late, *ever}]
    return sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))[:_REASONS]


async def read_overview(context: AdminContext, failures: Failures, p95: float | None) -> OverviewReading:
    """Read what changes every second. Raises StoreUnavailable and RedisError."""
    window, totals, torrents = await asyncio.gather(
        read_window(context, VIEWS["2m"]), context.store.counters.totals(), context.store.torrents.count()
    )
    measured = [value for value in window.latency if value is not None]
    mean = sum(measured) / len(measured) if measured else None
    return OverviewReading(context.clock(), window, totals, torrents, failures, mean, p95)


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """The quantile ``share`` of a histogram whose last bucket is unbounded; None for an empty one.

    Interpolates within a bucket. Values above the last bound count as that bound.
    """
    wanted, so_far, lower = share * sum(counts), 0.0, 0.0
    if not wanted:
        return None
    for count, bound in zip(counts, bounds, strict=False):
        if count and so_far + count >= wanted:
            return lower + (bound - lower) * (wanted - so_far) / count
        so_far, lower = so_far + count, bound
    return bounds[-1]


def texts(reading: OverviewReading) -> dict[str, str]:
    """The texts of the tiles, by their names in the page."""
    totals, window = reading.totals, reading.window
    peers = totals["seeders"] + totals["leechers"]
    return {
        "announces": rate(window.rate("announces")),
        "announces_note": f"{number(totals['announces'])} total, {rate(window.rate('announces.udp'))}/s over UDP",
        "scrapes": rate(window.rate("scrapes")),
        "scrapes_note": f"{number(totals['scrapes'])} total",
        "joins": rate(window.rate("joins")),
        "joins_note": "peers joining",
        "failures": rate(window.rate("failures")),
        "failures_note": "refused requests",
        "latency": milliseconds(reading.mean),
        "latency_note": f"p95 {milliseconds(reading.p95)}" if reading.p95 is not None else "no data yet",
        "peers": number(peers),
        "seeders": number(totals["seeders"]),
        "leechers": number(totals["leechers"]),
        "torrents": number(reading.torrents),
        "reaped": number(totals["reaped"]),
        "repairs": number(totals["repairs"]),
        "repairs_note": "OK (0 expected)" if not totals["repairs"] else "0 expected; see Doctor",
    }


def tones(reading: OverviewReading) -> dict[str, str]:
    """The colours of tiles that signal good or bad."""
    return {"repairs": "bad" if reading.totals["repairs"] else "good"}


def request_chart(window: Window) -> dict[str, Any]:
    """Request rates in the format of charts.js."""
    shown: tuple[tuple[str, str], ...] = (
        ("Announces", "announces"),
        ("Announces over UDP", "announces.udp"),
        ("Scrapes", "scrapes"),
        ("Failures", "failures"),
    )
    return {
        "x": window.at,
        "series": [{"name": label, "values": _rounded(window.rates[name], 3)} for label, name in shown],
    }


def latency_chart(window: Window) -> dict[str, Any]:
    """Latency in milliseconds, in the format of charts.js."""
    return {
        "x": window.at,
        "series": [
            {"name": "Mean", "values": _rounded(window.latency, 3, 1000)},
            {"name": "Maximum", "values": _rounded(window.slowest, 3, 1000)},
        ],
    }


CHARTS: dict[str, Callable[[Window], dict[str, Any]]] = {"requests": request_chart, "latency": latency_chart}


def sparks(window: Window) -> dict[str, list[float | None]]:
    """The sparklines of the tiles."""
    return {
        **{name: _rounded(values, 2) for name, values in window.rates.items()},
        "latency": _rounded(window.latency, 3, 1000),
    }


def _rounded(values: Sequence[float | None], digits: int, factor: float = 1) -> list[float | None]:
    return [None if value is None else round(value * factor, digits) for value in values]
