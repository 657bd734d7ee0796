"""``tracker stats`` on a real store, and its sparklines."""

import asyncio
import json
import os
import pty
import re
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from loadtest import trackers
from tests.commands import Command, rows
from tests.store.harness import Clock, Store
from tracker.cli.terminal import sparkline
from tracker.store.schema.keys import Keys
from tracker.store.stats.counters import Counters
from tracker.store.stats.slices import PRECISIONS, RETAINED
from tracker.store.swarms.rules import SwarmRules


@pytest.fixture
def stats(tracker: Command) -> Command:
    return partial(tracker, "stats")


@pytest.fixture
def now(redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Counts `requests` 180 times in the last full minute, and some more names; returns the time."""

    def fill(counters: Counters, now: float) -> None:
        counters.count("requests", "announces", by=180, at=now - 60)
        counters.count("announces", "odd\x1b[2J name", at=now - 180, by=20)
        counters.count("failures.denied", at=now)
        for value in (1, 2, 3):
            counters.observe("announce_seconds", value, at=now - 60)

    async def count() -> float:
        now = time.time() // 60 * 60 + 30
        monkeypatch.setattr(time, "time", lambda: now)  # so that the command runs within the same minute
        store = Store(redis_url, Keys(prefix), SwarmRules(), Clock(now))
        fill(store.counters, now)
        await store.counters.flush()
        await store.connection.close()
        return now

    return asyncio.run(count())


def test_counters_are_shown(stats: Command, now: float) -> None:
    """C2, C10: total, last full slice, rate and trend."""
    shown = rows(stats())
    requests, announces, failures, nothing, seconds = shown
    assert requests[:4] == ["requests", "180", "3", "180"]
    assert announces[:4] == ["announces", "200", "3", "180"]
    assert requests[4].rstrip().endswith("█") and requests[4].strip() == "█"
    assert announces[4].split() == ["▁", "█"]
    assert failures[:4] == ["failures.denied", "1", "0", "0"] and failures[4].endswith("█")
    assert nothing == [""]
    assert seconds == ["announce_seconds", "3", "2", "0.8165", "1", "3"]


def test_patterns_select_names(stats: Command, now: float) -> None:
    assert [row[0] for row in rows(stats("f*", "requests"))] == ["failures.denied", "requests"]
    assert [row[0] for row in rows(stats("announce_*"))] == ["announce_seconds"]
    assert [row[0] for row in rows(stats("odd*"))] == ["odd\\x1b[2J name"]
    nothing = stats("none")
    assert nothing.stdout == "" and "nothing was counted in the last 120 slices of 60 s" in nothing.stderr


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_is_accepted(stats: Command, now: float, precision: int) -> None:
    """C1."""
    shown = {row[0]: row[1] for row in rows(stats("--precision", str(precision), "requests", "announces"))}
    assert shown["requests"] == "180"
    assert shown["announces"] == ("180" if precision == 1 else "200")


def test_other_precisions_are_wrong_usage(stats: Command) -> None:
    for wrong in ("0", "7", "-60", "x"):
        stats("--precision", wrong, code=2)


@pytest.fixture
def ahead(now: float, redis_url: str, prefix: str) -> None:
    """A tracker with a wrong clock has counted into future slices."""

    async def count() -> None:
        store = Store(redis_url, Keys(prefix), SwarmRules(), Clock(now))
        for later in (120, 86_400):
            store.counters.count("requests", "joins", by=7000, at=now + later)
            store.counters.observe("announce_seconds", 99, at=now + later)
            store.counters.observe("later_seconds", 99, at=now + later)
        await store.counters.flush()
        await store.connection.close()

    asyncio.run(count())


@pytest.mark.usefixtures("ahead")
def test_slices_in_the_future_are_not_shown(stats: Command, now: float) -> None:
    """C2: neither in the totals nor in the trend."""
    requests, _, _, _, seconds = rows(stats())
    assert requests[:4] == ["requests", "180", "3", "180"] and requests[4].strip() == "█"
    assert seconds == ["announce_seconds", "3", "2", "0.8165", "1", "3"]
    assert stats("joins", "later_seconds").stdout == ""
    (line,) = stats("--json", "requests").stdout.splitlines()
    assert json.loads(line)["slices"] == [[int(now - 60) // 60 * 60, 180]]


def test_statistics_are_printed_as_json(stats: Command, now: float) -> None:
    requests, seconds = (
        json.loads(line) for line in stats("--json", "requests", "announce_seconds").stdout.splitlines()
    )
    start = int(now - 60) // 60 * 60
    assert requests == {
        "name": "requests",
        "precision": 60,
        "total": 180,
        "rate": 3.0,
        "last": 180,
        "slices": [[start, 180]],
    }
    assert seconds["deviation"] == pytest.approx((2 / 3) ** 0.5)
    assert (seconds["count"], seconds["sum"], seconds["mean"]) == (3, 6, 2)
    assert seconds["slices"][0][:3] == [start, 3, 2]


def test_empty_slices_are_filled_on_request(stats: Command, now: float) -> None:
    filled = json.loads(stats("--json", "--fill", "requests").stdout)["slices"]
    start = int(now - 60) // 60 * 60
    assert [start, 180] in filled and [start - 60, 0] in filled
    assert len(filled) == RETAINED and sum(count for _, count in filled) == 180


def test_names_are_listed(stats: Command, now: float) -> None:
    listed = rows(stats("--names"))
    assert ["counter", "failures.denied"] in listed and ["counter", "odd\\x1b[2J name"] in listed
    assert listed[-1] == ["distribution", "announce_seconds"]
    (line,) = stats("--names", "--json", "req*").stdout.splitlines()
    assert json.loads(line) == {"kind": "counter", "name": "requests"}


def test_totals_are_for_all_time(stats: Command, now: float) -> None:
    found = json.loads(stats("--totals", "--json").stdout)
    assert (found["torrents"], found["users"], found["seeders"]) == (0, 0, 0)
    assert found["failures.denied"] == 1 and found["requests"] == 180
    assert "users with hit and runs" in stats("--totals").stdout


@pytest.mark.parametrize("width", [80, 110])
def test_in_a_terminal_each_row_is_one_line(stats: Command, now: float, tmp_path: Path, width: int) -> None:
    del stats  # it sets the environment
    settings = {name: value for name, value in os.environ.items() if name.startswith("TRACKER_")}
    ours, theirs = pty.openpty()
    shown = b""
    with trackers.starter(
        [sys.executable, "-m", "tracker", "stats"],
        cwd=tmp_path,
        env=trackers.environment({**settings, "COLUMNS": str(width), "TERM": "xterm", "NO_COLOR": "1"}),
        stdout=theirs,
    ):
        os.close(theirs)
        with suppress(OSError):  # Linux raises this when the other end is closed
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()]
    heads = [number for number, line in enumerate(lines) if line.split()[:1] == ["name"]]
    assert len(heads) == 2
    assert [line.split()[0] for line in lines[heads[0] + 2 : heads[0] + 5]] == [
        "requests",
        "announces",
        "failures.denied",
    ]
    assert lines[heads[0] + 5] == "" and lines[heads[1] + 2].split()[0] == "announce_seconds"
    assert max(map(len, lines)) <= width
    assert not any("\t" in line for line in lines)


def test_a_trend_is_drawn_with_blocks() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "  "
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7, 8]) == " ▁▂▃▄▅▆▇█"
    assert sparkline([1, 10**18]) == "▁█"
    assert sparkline([5]) == "█"
    assert sparkline([0.1, 0.2]) == "▄█"
    assert sparkline([-1, 2]) == " █"
