"""Tests wait for conditions and let time pass; they do not sleep."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.fake_time import FakeTime
from tests.waiting import eventually, in_background, until, within

TESTS = Path(__file__).parent
SLEEPS = {
    "conftest.py": "polls until tasks have ended",
    "e2e/libtorrent_leecher.py": "a program of its own, without the project's packages, polls libtorrent",
    "e2e/test_partitions.py": "clients that announce in the intervals of real time",
    "fake_time.py": "gives real servers a moment",
    "store/stats/test_counters.py": "a child process waits to be killed",
    "tools/test_audit.py": "a fake program hangs",
    "vectors/record.py": "records other programs; no test",
    "waiting.py": "polls",
    "workers/job_process.py": "a child process waits to be killed",
}
"""Files that may sleep, each with the reason."""
CLOCKS: dict[str, set[str]] = {
    "waits, and fails what takes too long": {"waiting.py", "cli/test_top.py", "e2e/peers.py", "e2e/packets.py"},
    "measures how long the tracker takes": {
        "e2e/test_dht_flood.py",
        "e2e/test_trackers.py",
        "frontends/work/test_scale.py",
        "store/client/test_connection.py",
    },
    "other programs on the same data go by the real time": {
        "e2e/sample_trackers.py",
        "e2e/test_background.py",
        "e2e/test_partitions.py",
        "e2e/test_php_webhook.py",
        "frontends/dht/test_addresses.py",
        "frontends/dht/test_island.py",
        "test_cost.py",
        "volunteer/test_seeding.py",
    },
    "commands go by the real time": {
        "cli/test_commands.py",
        "cli/test_dht.py",
        "cli/test_jobs.py",
        "cli/test_stats.py",
        "cli/test_users.py",
        "cli/test_work.py",
    },
    "the services of a whole process go by the real time": {
        "admin/scraping.py",
        "app/test_background.py",
        "app/test_dht.py",
        "app/test_dht_recovery.py",
        "app/test_readiness.py",
        "store/harness.py",
        "store/sharding/test_unavailable.py",
        "store/stats/test_counters.py",
    },
    "is compared with the clock of the server, or with its expiry of keys": {
        "doctor/test_checks.py",
        "workers/job_process.py",
        "workers/test_jobs.py",
        "workers/test_jobs_faults.py",
        "workers/test_reaper.py",
        "workers/test_shard_reapers.py",
    },
    "the date of a recording": {"e2e/dht_network.py", "vectors/record.py"},
}
"""Files that may read the real clock, by the reason."""
READS_CLOCK = re.compile(
    r"\btime\.(?:time|monotonic|perf_counter)(?:_ns)?\b|\btime\.(?:gmtime|localtime)\(\)|\bdate(?:time)?\.(?:now|today)\("
)


def test_no_other_test_sleeps() -> None:
    """A sleep of 0 seconds is a turn of the event loop."""
    found = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if re.search(r"\b(?:asyncio|time)\.sleep\((?!0\))", path.read_text(encoding="utf-8"))
    }
    assert found == set(SLEEPS)


def test_no_other_test_reads_the_clock() -> None:
    """Time is an argument of what is tested, mostly a Clock of tests/store/harness.py or a FakeTime."""
    found = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if READS_CLOCK.search(path.read_text(encoding="utf-8"))
    }
    assert found - {"test_waiting.py"} == {path for paths in CLOCKS.values() for path in paths}


def test_a_block_that_takes_too_long_fails() -> None:
    with within(60):
        pass
    with pytest.raises(AssertionError, match="s, not 0"), within(0):
        pass


def test_a_condition_that_never_holds_fails() -> None:
    with pytest.raises(AssertionError, match=r"within 0\.02 s"):
        until(lambda: False, 0.02)


async def test_an_ignored_exception_counts_as_false() -> None:
    attempts = iter((OSError, OSError, None))

    async def answers() -> bool:
        if error := next(attempts):
            raise error
        return True

    await eventually(answers, ignored=(OSError,))
    assert next(attempts, "none is left") == "none is left"


async def test_fake_time_wakes_sleepers_in_order() -> None:
    time, woken = FakeTime(), list[tuple[str, float]]()

    async def wake(name: str, seconds: float) -> None:
        while True:
            await time(seconds)
            woken.append((name, time.now))

    async with in_background(wake("slow", 5.0), wake("quick", 2.0)):
        await asyncio.sleep(0)
        assert not woken
        await time.pass_by(6)
    assert woken[:3] == [("quick", 2.0), ("quick", 4.0), ("slow", 5.0)]
