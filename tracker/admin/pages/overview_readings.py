"""The figures of the overview: read from the store, and written as its tiles, tables and charts show them.

The page and the stream of live figures say the same, for both are made here.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracker.admin.desk import Desk
from tracker.admin.pages.formats import milliseconds, number, rate
from tracker.store.slices import RETAINED, Distribution, start_of

COUNTED = ("announces", "scrapes", "joins")
"""The counters whose rates are shown, beside the failures of all reasons."""
LATENCY = "announce_seconds"
_REASONS = 100
"""More kinds of failures than there are: texts of refusals are fixed, but somebody else may have counted."""
_LATE_SECONDS = 2
"""Counts are written up to a second late, so the newest slices of a second are not whole yet."""
_LEAST_SHARE = 0.2
"""A longer slice under way is shown once this share of it is over."""
_RATE_SLICES = 5

Failures = list[tuple[str, int, int]]
"""(reason, in the last two hours, since ever), most of late first."""


@dataclass(frozen=True, slots=True)
class View:
    """How far back charts go."""

    name: str
    label: str
    precision: int


VIEWS = {
    view.name: view for view in (View("2m", "2 min", 1), View("2h", "2 h", 60), View("5d", "5 days", 3600))
}


@dataclass(slots=True)
class Window:
    """RETAINED slices at most, oldest first: when each began (epoch s), and what it holds per second."""

    at: list[int] = field(default_factory=list)
    rates: dict[str, list[float]] = field(default_factory=dict)
    latency: list[float | None] = field(default_factory=list)
    """Mean time of an announce (s), None where there was none."""
    slowest: list[float | None] = field(default_factory=list)

    def rate(self, name: str) -> float:
        """Of the last few slices."""
        last = self.rates[name][-_RATE_SLICES:]
        return sum(last) / len(last) if last else 0.0


@dataclass(slots=True)
class Figures:
    """What the overview shows at one moment."""

    at: float
    window: Window
    """The last two minutes."""
    totals: Mapping[str, int]
    torrents: int
    failures: Failures
    mean: float | None
    """Of an announce in those two minutes (s)."""
    p95: float | None


async def read_window(desk: Desk, view: View) -> Window:
    """Rates and latency by slices."""
    now = desk.clock()
    starts = _starts(now, view.precision)
    counters = desk.stores.counters
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
    """Where the slices to show begin; the newest only when it says something."""
    newest = start_of(now, precision)
    if precision == 1:
        newest -= _LATE_SECONDS
    elif now - newest < precision * _LEAST_SHARE:
        newest -= precision
    oldest = start_of(now, precision) - (RETAINED - 1) * precision
    return list(range(oldest, newest + 1, precision))


async def read_failures(desk: Desk) -> Failures:
    """Refused requests by reason."""
    counters = desk.stores.counters
    ever = await counters.failures()
    names = (await counters.names("failures.*"))[:_REASONS]
    series = await asyncio.gather(*(counters.series(name, 60) for name in names))
    late = {
        name.removeprefix("failures."): sum(count for _, count in slices)
        for name, slices in zip(names, series, strict=True)
    }
    rows = [(reason, late.get(reason, 0), ever.get(reason, 0)) for reason in {*late, *ever}]
    return sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))[:_REASONS]


async def read_figures(desk: Desk, failures: Failures, p95: float | None) -> Figures:
    """What changes every second; raises StoreAway and RedisError."""
    window, totals, torrents = await asyncio.gather(
        read_window(desk, VIEWS["2m"]), desk.stores.counters.totals(), desk.stores.torrents.count()
    )
    measured = [value for value in window.latency if value is not None]
    mean = sum(measured) / len(measured) if measured else None
    return Figures(desk.clock(), window, totals, torrents, failures, mean, p95)


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """Below which value ``share`` of all lie, by a histogram whose last bucket has no upper bound: interpolated within
    a bucket; what lies above the last bound is said to lie at it. None when nothing was measured."""
    wanted, so_far, lower = share * sum(counts), 0.0, 0.0
    if not wanted:
        return None
    for count, bound in zip(counts, bounds, strict=False):
        if count and so_far + count >= wanted:
            return lower + (bound - lower) * (wanted - so_far) / count
        so_far, lower = so_far + count, bound
    return bounds[-1]


def texts(figures: Figures) -> dict[str, str]:
    """The tiles: by the names they have in the page."""
    totals, window = figures.totals, figures.window
    peers = totals["seeders"] + totals["leechers"]
    return {
        "announces": rate(window.rate("announces")),
        "announces_note": f"{number(totals['announces'])} in all",
        "scrapes": rate(window.rate("scrapes")),
        "scrapes_note": f"{number(totals['scrapes'])} in all",
        "joins": rate(window.rate("joins")),
        "joins_note": "peers that came",
        "failures": rate(window.rate("failures")),
        "failures_note": "requests refused",
        "latency": milliseconds(figures.mean),
        "latency_note": f"95 % below {milliseconds(figures.p95)}"
        if figures.p95 is not None
        else "no announce yet",
        "peers": number(peers),
        "seeders": number(totals["seeders"]),
        "leechers": number(totals["leechers"]),
        "torrents": number(figures.torrents),
        "reaped": number(totals["reaped"]),
        "repairs": number(totals["repairs"]),
        "repairs_note": "as it must be" if not totals["repairs"] else "must stay 0: see Doctor",
    }


def tones(figures: Figures) -> dict[str, str]:
    """Which tiles are a good or a bad sign."""
    return {"repairs": "bad" if figures.totals["repairs"] else "good"}


def request_chart(window: Window) -> dict[str, Any]:
    """As charts.js draws it."""
    shown: tuple[tuple[str, str], ...] = (
        ("Announces", "announces"),
        ("Scrapes", "scrapes"),
        ("Failures", "failures"),
    )
    return {
        "x": window.at,
        "series": [{"name": label, "values": _rounded(window.rates[name], 3)} for label, name in shown],
    }


def latency_chart(window: Window) -> dict[str, Any]:
    """The same, in milliseconds."""
    return {
        "x": window.at,
        "series": [
            {"name": "Mean", "values": _rounded(window.latency, 3, 1000)},
            {"name": "Slowest", "values": _rounded(window.slowest, 3, 1000)},
        ],
    }


CHARTS: dict[str, Callable[[Window], dict[str, Any]]] = {"requests": request_chart, "latency": latency_chart}


def sparks(window: Window) -> dict[str, list[float | None]]:
    """The small lines in the tiles."""
    return {
        **{name: _rounded(values, 2) for name, values in window.rates.items()},
        "latency": _rounded(window.latency, 3, 1000),
    }


def _rounded(values: Sequence[float | None], digits: int, factor: float = 1) -> list[float | None]:
    return [None if value is None else round(value * factor, digits) for value in values]
