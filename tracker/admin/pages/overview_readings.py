"""Reads the values of the overview from the store and formats them for its tiles, tables and charts.

The page and the live updates both use this module, so that they show the same.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracker.admin.context import AdminContext
from tracker.admin.pages.formats import milliseconds, number, rate, size
from tracker.admin.pages.history import chart_data
from tracker.operations import history
from tracker.operations.history import CHARTS, JOINS, LATENCY, RANGES, RELAYS, REQUESTS, Slices

CHART_NAMES = ("requests", "latency")
LATENCY_NAME = "announce_seconds"
_REASONS = 100
"""Above the number of fixed refusal texts; bounds what other writers of the store may add."""
_RATE_SLICES = 5

Failures = list[tuple[str, int, int]]
"""(reason, count in the last two hours, total), highest recent count first."""


@dataclass(slots=True)
class OverviewReading:
    """The values of the overview at one time."""

    at: float
    slices: Slices
    """The rates and the latency of the last two minutes."""
    totals: Mapping[str, int]
    torrents: int
    sockets: int
    """Open WebSockets of this tracker."""
    failures: Failures
    mean: float | None
    """Mean announce latency of the last two minutes (s)."""
    p95: float | None
    has_main: bool
    """Whether the main store is available, which has the counters of requests."""


async def read_failures(context: AdminContext) -> Failures:
    """Read refused requests by reason. None are known while only the main store is unavailable."""
    return await context.store.shards.main_or(_read_failures(context), [])


async def _read_failures(context: AdminContext) -> Failures:
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
    now, counters = context.clock(), context.store.counters
    slices, totals, torrents = await asyncio.gather(
        history.read(counters, (*REQUESTS, JOINS, RELAYS, *LATENCY), history.window_of(RANGES["2m"], now), now),
        counters.totals(),
        context.store.torrents.count(),
    )
    measured = [value for value in slices.values["mean"] if value is not None]
    mean = sum(measured) / len(measured) if measured else None
    has_main, sockets = not counters.is_unavailable, int(context.telemetry().gauges.get("sockets", 0))
    return OverviewReading(now, slices, totals, torrents, sockets, failures, mean, p95, has_main)


def _rate(slices: Slices, name: str) -> float:
    """Mean rate of the last few slices."""
    last = [value or 0.0 for value in slices.values[name][-_RATE_SLICES:]]
    return sum(last) / len(last) if last else 0.0


_OF_MAIN = ("announces", "scrapes", "joins", "failures", "latency")
"""Tiles whose values are under the main prefix."""


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
    shown = _all_texts(reading)
    if reading.has_main:
        return shown
    notes = {f"{name}_note": "main store unavailable" for name in (*_OF_MAIN, "sockets")}
    missing = dict.fromkeys(_OF_MAIN, "–") | notes
    return shown | missing


def _all_texts(reading: OverviewReading) -> dict[str, str]:
    totals, slices = reading.totals, reading.slices
    peers = totals["seeders"] + totals["leechers"]
    return {
        "announces": rate(_rate(slices, "announces")),
        "announces_note": f"{number(totals['announces'])} total"
        + "".join(
            f", {rate(_rate(slices, name))}/s over {shown}"
            for name, shown in (("udp", "UDP"), ("ws", "WebSockets"))
            if any(slices.values[name])
        ),
        "scrapes": rate(_rate(slices, "scrapes")),
        "scrapes_note": f"{number(totals['scrapes'])} total",
        "joins": rate(_rate(slices, "joins")),
        "joins_note": "peers joining",
        "failures": rate(_rate(slices, "failures")),
        "failures_note": "refused requests",
        "latency": milliseconds(reading.mean),
        "latency_note": f"p95 {milliseconds(reading.p95)}" if reading.p95 is not None else "no data yet",
        "peers": number(peers),
        "seeders": number(totals["seeders"]),
        "leechers": number(totals["leechers"]),
        "torrents": number(reading.torrents),
        "sockets": number(reading.sockets),
        "sockets_note": f"{rate(_rate(slices, 'relays'))}/s offers and answers",
        "reaped": number(totals["reaped"]),
        "repairs": number(totals["repairs"]),
        "repairs_note": "OK (0 expected)" if not totals["repairs"] else "0 expected; see Doctor",
        "credit_cut": size(totals["credit_cut"]),
        "credit_cut_note": "above the maximum rate",
    }


def tones(reading: OverviewReading) -> dict[str, str]:
    """The colours of tiles that signal good or bad."""
    totals = reading.totals
    return {"repairs": "bad" if totals["repairs"] else "good", "credit_cut": "warn" if totals["credit_cut"] > 0 else ""}


def charts(slices: Slices) -> dict[str, Any]:
    """The charts of the page in the format of charts.js, by their names."""
    return {name: chart_data(CHARTS[name], slices) for name in CHART_NAMES}


def sparks(slices: Slices) -> dict[str, list[float | None]]:
    """The sparklines of the tiles."""
    values = slices.values
    return {
        **{name: _rounded(values[name], 2) for name in ("announces", "scrapes", "joins", "failures")},
        "latency": _rounded(values["mean"], 3, 1000),
    }


def _rounded(values: Sequence[float | None], digits: int, factor: float = 1) -> list[float | None]:
    return [None if value is None else round(value * factor, digits) for value in values]
