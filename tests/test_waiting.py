"""Tests wait for conditions and let time pass; they do not sleep."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.fake_time import FakeTime
from tests.waiting import eventually, in_background, until

TESTS = Path(__file__).parent
SLEEPS = {
    "conftest.py": "polls until tasks have ended",
    "e2e/test_background.py": "a process is killed at a random moment",
    "e2e/libtorrent_leecher.py": "a program of its own, without the project's packages, polls libtorrent",
    "fake_time.py": "gives real servers a moment",
    "store/stats/test_counters.py": "a child process waits to be killed",
    "tools/test_audit.py": "a fake program hangs",
    "vectors/record.py": "records other programs; no test",
    "waiting.py": "polls",
    "workers/job_process.py": "a child process waits to be killed",
    "workers/test_unique_users.py": "a process is killed at a random moment",
}
"""Files that may sleep, each with the reason."""


def test_no_other_test_sleeps() -> None:
    """A sleep of 0 seconds is a turn of the event loop."""
    found = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if re.search(r"\b(?:asyncio|time)\.sleep\((?!0\))", path.read_text(encoding="utf-8"))
    }
    assert found == set(SLEEPS)


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
