"""Charts of the past: which counters and samples each one shows, read for a range of time. Slices are as long as they
must be: the shortest ones that are still kept for the whole range."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tracker.errors import StoreUnavailable
from tracker.store.stats.counters import Counters
from tracker.store.stats.slices import PRECISIONS, RETAINED, SAMPLE_SECONDS, oldest_retained, start_of

MIN_SPAN = 10
"""The shortest range (s)."""
_LATE_SECONDS = 2
"""Counters are written up to 1 s late, so the newest slices of one second are incomplete."""
_MIN_SHARE = 0.1
"""A longer slice in progress is shown once this share of it has passed: a rate over less is chance."""

Unit = Literal["per second", "bytes per second", "seconds", "count"]
Part = Literal["total", "protocol", "family"]
PARTS: Mapping[Part, str] = {"total": "Total", "protocol": "By protocol", "family": "By address family"}
"""What a chart shows, with labels."""


class Range(NamedTuple):
    """A range that ends now. ``seconds``: its length."""

    name: str
    label: str
    seconds: int


RANGES = {
    each.name: each
    for each in (
        Range("2m", "2 min", 120),
        Range("2h", "2 h", 7200),
        Range("24h", "24 h", 86_400),
        Range("7d", "7 days", 604_800),
        Range("30d", "30 days", 2_592_000),
        Range("90d", "90 days", 7_776_000),
    )
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart: the sum of ``counters`` less the sum of ``without``, per second. With ``measured``, the mean
    or the maximum of that distribution instead."""

    name: str
    label: str
    counters: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    measured: str = ""
    value: Literal["mean", "max"] = "mean"


@dataclass(frozen=True, slots=True)
class Chart:
    """``lines`` show totals; ``protocol`` and ``family``, where a chart has them, the same by those. ``hint`` says what
    these are."""

    name: str
    title: str
    unit: Unit
    lines: tuple[Line, ...]
    protocol: tuple[Line, ...] = ()
    family: tuple[Line, ...] = ()
    hint: str = ""

    @property
    def min_step(self) -> int:
        """Shorter slices hold no sample."""
        return SAMPLE_SECONDS if self.unit == "count" else 1

    def lines_by(self, part: Part) -> tuple[Line, ...]:
        """The totals where the chart has no parts."""
        parts = {"total": self.lines, "protocol": self.protocol, "family": self.family}
        return parts[part] or self.lines


_FAMILIES = {"v4": "IPv4", "v6": "IPv6"}
_PROTOCOLS = {"http": "HTTP", "udp": "UDP", "ws": "WebSocket"}


def _by_family(counter: str, label: str = "", name: str = "") -> tuple[Line, ...]:
    """The lines of a counter. ``label`` and ``name`` precede the family."""
    return tuple(
        Line(f"{name}{family}", f"{label}{shown}", (f"{counter}.{family}",)) for family, shown in _FAMILIES.items()
    )


def _by_protocol(counter: str, label: str = "", name: str = "", *, udp: tuple[str, ...] = ()) -> tuple[Line, ...]:
    """``udp``: the counters of those over UDP, if not one per family."""
    udp = udp or tuple(f"{counter}.udp.{family}" for family in _FAMILIES)
    ws = tuple(f"{counter}.ws.{family}" for family in _FAMILIES)
    return (
        Line(f"{name}http", f"{label}HTTP", (counter,), (*udp, *ws)),
        Line(f"{name}udp", f"{label}UDP", udp),
        Line(f"{name}ws", f"{label}WebSocket", ws),
    )


def _sampled(parts: Mapping[str, str]) -> tuple[Line, ...]:
    return tuple(
        Line(f"{kind}_{part}", f"{kind.title()}, {shown}", measured=f"{kind}.{part}")
        for kind in ("seeders", "leechers")
        for part, shown in parts.items()
    )


REQUESTS = (
    Line("announces", "Announces", ("announces",)),
    Line("udp", "Announces over UDP", ("announces.udp",)),
    Line("ws", "Announces over WebSockets", ("announces.ws",)),
    Line("scrapes", "Scrapes", ("scrapes",)),
    Line("failures", "Failures", ("refused.announces", "refused.scrapes", "refused.other")),
)
LATENCY = (
    Line("mean", "Mean", measured="announce_seconds"),
    Line("max", "Maximum", measured="announce_seconds", value="max"),
)
JOINS = Line("joins", "Joins", ("joins",))
RELAYS = Line("relays", "Offers and answers", ("relays.offers", "relays.answers"))

CHARTS: Mapping[str, Chart] = {
    chart.name: chart
    for chart in (
        Chart(
            "peers",
            "Peers",
            "count",
            (Line("seeders", "Seeders", measured="seeders"), Line("leechers", "Leechers", measured="leechers")),
            protocol=_sampled(_PROTOCOLS),
            family=_sampled(_FAMILIES),
            hint="Counted by the sweep: up to two reap intervals old. The protocol is that of a peer's last join, or "
            "WebSocket while it has one. A peer on both address families counts in each.",
        ),
        Chart("torrents", "Torrents", "count", (Line("torrents", "Torrents", measured="torrents"),)),
        Chart("users", "Users", "count", (Line("users", "Users", measured="users"),)),
        Chart("requests", "Requests", "per second", REQUESTS),
        Chart(
            "announces",
            "Announces",
            "per second",
            (
                Line("announces", "All", ("announces",)),
                Line("started", "Started", ("announces.started",)),
                Line("completed", "Completed", ("announces.completed",)),
                Line("stopped", "Stopped", ("announces.stopped",)),
            ),
            protocol=_by_protocol("announces", udp=("announces.udp",)),  # older than those by family
            family=_by_family("announces"),
        ),
        Chart(
            "joins",
            "Joins and timeouts",
            "per second",
            (JOINS, Line("stopped", "Stopped", ("announces.stopped",)), Line("reaps", "Timed out", ("reaps",))),
            protocol=_by_protocol("joins", "Joins over "),
            family=_by_family("joins", "Joins over "),
        ),
        Chart(
            "traffic",
            "Traffic that peers report",
            "bytes per second",
            (Line("up", "Upload", ("bytes.up",)), Line("down", "Download", ("bytes.down",))),
            protocol=(*_by_protocol("bytes.up", "Upload, ", "up_"), *_by_protocol("bytes.down", "Download, ", "down_")),
            family=(*_by_family("bytes.up", "Upload, ", "up_"), *_by_family("bytes.down", "Download, ", "down_")),
        ),
        Chart("latency", "Announce latency", "seconds", LATENCY),
    )
}


@dataclass(frozen=True, slots=True)
class Window:
    """Times in epoch seconds: a chart shows the slices of ``step`` seconds from ``since`` to ``until``."""

    since: int
    until: int
    step: int

    @property
    def span(self) -> int:
        return self.until - self.since


@dataclass(frozen=True, slots=True)
class Slices:
    """Starts of slices (epoch s), oldest first, and for each line, by name, a value per slice; None: no data.

    ``incomplete``: the last slice has not ended.
    """

    starts: list[int]
    values: dict[str, list[float | None]]
    incomplete: bool


def oldest(now: float) -> int:
    """The earliest time that any chart can show."""
    return oldest_retained(now, PRECISIONS[-1])


def window_between(since: int, until: int, now: float, min_step: int = 1) -> Window:
    """The shortest slices that are kept since ``since``, of ``min_step`` seconds or more. The range is moved into what
    can be shown, and is at least MIN_SPAN long."""
    until = max(min(until, int(now)), oldest(now) + MIN_SPAN)
    since = min(max(since, oldest(now)), until - MIN_SPAN)
    kept = (p for p in PRECISIONS if p >= min_step and oldest_retained(now, p) <= since + p)
    return Window(since, until, next(kept, PRECISIONS[-1]))


async def read(counters: Counters, lines: Sequence[Line], window: Window, now: float) -> Slices:
    """Reads the lines of a chart, from slices of ``window.step``. Raises StoreUnavailable and RedisError, but no
    StoreUnavailable while only the main store is unavailable: then there is no data."""
    step, starts = window.step, _starts(window, now)
    counted = dict.fromkeys(name for line in lines for name in (*line.counters, *line.without))
    measured = dict.fromkeys(line.measured for line in lines if line.measured)
    bounds = (step, window.since, window.until)
    try:
        found, distributions = await asyncio.gather(
            asyncio.gather(*(counters.series(name, *bounds) for name in counted)),
            asyncio.gather(*(counters.distribution(name, *bounds) for name in measured)),
        )
    except StoreUnavailable:
        if not counters.is_unavailable:
            raise
        return Slices(starts, {line.name: [None] * len(starts) for line in lines}, incomplete=False)
    counts = {name: dict(slices) for name, slices in zip(counted, found, strict=True)}
    summaries = {name: dict(slices) for name, (slices, _) in zip(measured, distributions, strict=True)}
    seconds = [min(step, max(1.0, now - start)) for start in starts]
    values = {
        line.name: [getattr(summaries[line.measured].get(start), line.value, None) for start in starts]
        if line.measured
        else _rates(line, starts, seconds, counts)
        for line in lines
    }
    return Slices(starts, values, bool(starts) and starts[-1] + step > now)


def _starts(window: Window, now: float) -> list[int]:
    """Starts of the slices to show; without the newest while it is too incomplete."""
    step, newest = window.step, start_of(window.until, window.step)
    current = start_of(now, step)
    if step == 1:
        newest = min(newest, current - _LATE_SECONDS)
    elif newest == current and now - current < max(_LATE_SECONDS, step * _MIN_SHARE):
        newest -= step
    first = max(start_of(window.since, step), current - (RETAINED - 1) * step)
    return list(range(first, newest + 1, step))


def _rates(
    line: Line, starts: list[int], seconds: list[float], counts: Mapping[str, Mapping[int, int]]
) -> list[float | None]:
    def total(names: Sequence[str], start: int) -> int:
        return sum(counts[name].get(start, 0) for name in names)

    # Another program may have written counts that do not agree.
    return [
        max(0, total(line.counters, start) - total(line.without, start)) / length
        for start, length in zip(starts, seconds, strict=True)
    ]
