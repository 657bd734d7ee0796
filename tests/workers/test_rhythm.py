"""Loops with the same interval go on at the same moment."""

import asyncio
import random

import pytest

from tracker.workers.rhythm import pause_until_next, until_next


def test_pauses_end_together_whenever_they_began() -> None:
    for now in (random.Random(1).uniform(0, 1e6) for _ in range(1000)):
        pause = pause_until_next(5.0, now)
        assert 1.25 <= pause <= 6.25
        assert min((now + pause) % 5, 5 - (now + pause) % 5) < 1e-6


def test_a_timer_that_ends_early_is_followed_by_a_whole_pause() -> None:
    assert pause_until_next(0.5, 9.999) == pytest.approx(0.501)
    assert pause_until_next(0.5, 10.0) == 0.5


async def test_it_waits_by_the_clock_of_the_event_loop() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until_next(0.01)
    assert loop.time() - began < 60
    assert int(loop.time() / 0.01) > int(began / 0.01)
