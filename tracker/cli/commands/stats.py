"""``tracker stats``: counters and distributions by time slice."""

import fnmatch
import json
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from typer import Argument, BadParameter, Option, echo

from tracker.cli.commands import AsJson, with_store
from tracker.cli.terminal import Column, Listing, Row, describe, fitted, note, sparkline
from tracker.store.stats.slices import PRECISIONS, RETAINED, Distribution, start_of
from tracker.store.store import Store

DEFAULT = (
    *("requests", "announces", "announces.started", "announces.completed", "announces.stopped", "joins", "scrapes"),
    *("failures.*", "reaps", "unique.new", "bytes.up", "bytes.down", "torrents.processed", "jobs.*.failed", "repairs"),
    *("tally_dropped", "unique_skipped"),
)
"""Counters shown by default, with all distributions."""
_FIGURES = ("count", "mean", "deviation", "min", "max")
_GAPS = 16
"""Characters between the columns of a table."""
_MIN_NAME = 16
Counted = list[tuple[str, list[tuple[int, int]]]]
Measured = list[tuple[str, list[tuple[int, Distribution]], Distribution]]
"""Names with their slices by start, and the sum of all slices."""
_MIN_TREND = 10


def _check_precision(value: int) -> int:
    if value not in PRECISIONS:
        raise BadParameter(f"--precision must be {', '.join(map(str, PRECISIONS))} (seconds)")
    return value


def show_stats(
    names: Annotated[
        list[str] | None, Argument(metavar="[NAME…]", help="Names or patterns, such as 'failures.*'.")
    ] = None,
    precision: Annotated[
        int, Option(metavar="SECONDS", help="Length of a time slice.", callback=_check_precision)
    ] = 60,
    fill: Annotated[bool, Option("--fill", help="With --json: include empty slices.")] = False,
    only_names: Annotated[bool, Option("--names", help="List all names.")] = False,
    totals: Annotated[bool, Option("--totals", help="Print all-time totals and current numbers.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print counters and distributions of the last 120 time slices.

    `last` is the last full slice and `rate` its mean per second. The trend ends with the current slice.
    """
    if totals:
        with_store(lambda store: _print_totals(store, as_json=as_json))
        return
    if only_names:
        with_store(lambda store: _print_names(store, names or ["*"], as_json=as_json))
        return
    counted: Counted = []
    measured: Measured = []
    now = 0.0

    async def work(store: Store) -> None:
        nonlocal now
        counters, now = store.counters, time.time()  # slices in the future come from a clock that was ahead
        for name in _matching(await counters.names(), names or DEFAULT):
            series = await counters.series(name, precision, last=now, fill=True)
            if any(number for _, number in series):
                counted.append((name, series))
        for name in _matching(await counters.distribution_names(), names or ["*"]):
            slices, total = await counters.distribution(name, precision, last=now)
            if total is not None:
                measured.append((name, slices, total))

    with_store(work)
    if as_json:
        _print_json(counted, measured, precision, now, fill=fill)
        return
    if counted:
        _print_counters(counted, precision, now)
    if counted and measured:
        echo()
    if measured:
        rows = [_distribution_row(name, total) for name, _, total in measured]
        numbers = [fitted(name, rows, right=True) for name in _FIGURES]
        Listing([Column("name"), *numbers], as_json=False).page(rows)
    if not counted and not measured:
        note(f"nothing was counted in the last {RETAINED} slices of {precision} s")


async def _print_totals(store: Store, *, as_json: bool) -> None:
    from tracker.operations.service import statistics  # noqa: PLC0415  # only --totals needs it, and the jobs

    found = asdict(await statistics(store))
    totals, failures = found.pop("totals"), found.pop("failures")
    describe({**found, **totals, **{f"failures.{name}": n for name, n in failures.items()}}, as_json=as_json)


async def _print_names(store: Store, patterns: Sequence[str], *, as_json: bool) -> None:
    listing = Listing("kind:12 name", as_json=as_json)
    counters = store.counters
    for kind, known in (("counter", await counters.names()), ("distribution", await counters.distribution_names())):
        listing.page({"kind": kind, "name": name} for name in _matching(known, patterns))


def _matching(known: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Matching names in the order of the patterns, without duplicates."""
    known = list(known)
    return list(dict.fromkeys(name for pattern in patterns for name in known if fnmatch.fnmatchcase(name, pattern)))


def _row(name: str, series: list[tuple[int, int]], precision: int, now: float) -> dict[str, Any]:
    """``last``: the count of the last full slice."""
    last = dict(series).get(start_of(now, precision) - precision, 0)
    total = sum(number for _, number in series)
    return {"name": name, "total": total, "rate": round(last / precision, 3), "last": last}


def _distribution_row(name: str, total: Distribution) -> Row:
    return {"name": name, **{figure: getattr(total, figure) for figure in _FIGURES}}


def _print_counters(counted: Counted, precision: int, now: float) -> None:
    rows = [_row(name, series, precision, now) for name, series in counted]
    for row in rows:
        rate = row["last"] / precision
        row["rate"] = f"{rate:.1f}" if rate >= 10 else f"{rate:.2g}"  # two significant digits
    numbers = [fitted(figure, rows, right=True) for figure in ("total", "rate", "last")]
    room = shutil.get_terminal_size().columns - sum(column.width for column in numbers) - _GAPS
    name = fitted("name", rows, max_width=max(_MIN_NAME, room - _MIN_TREND))
    slices = max(_MIN_TREND, room - name.width)
    for row, (_, series) in zip(rows, counted, strict=True):
        row["trend"] = sparkline([number for _, number in series[-slices:]])
    Listing([name, *numbers, Column("trend")], as_json=False).page(rows)


def _print_json(counted: Counted, measured: Measured, precision: int, now: float, *, fill: bool) -> None:
    """One line per name, with slices [start, count] or [start, count, mean, deviation, min, max]."""
    for name, series in counted:
        row = {**_row(name, series, precision, now), "precision": precision}
        echo(json.dumps({**row, "slices": [pair for pair in series if fill or pair[1]]}))
    for name, slices, total in measured:
        each = [(start, d.count, d.mean, d.deviation, d.min, d.max) for start, d in slices]
        row = {**_distribution_row(name, total), "sum": total.sum, "precision": precision}
        echo(json.dumps({**row, "slices": each}))
