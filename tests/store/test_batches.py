"""Requests that wait together: who goes with whom, and what becomes of them when the store does not answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from redis.exceptions import ResponseError

from tracker.errors import StoreAway, StoreBehind
from tracker.store.batches import MOST_CALLS, Batches


class Calls:
    """Doubles numbers; ``gate`` holds a call back, ``error`` is raised by the next."""

    def __init__(self) -> None:
        self.made: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.away = False

    async def __call__(self, requests: list[int]) -> list[Any]:
        self.made.append(requests)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [2 * request for request in requests]


@asynccontextmanager
async def running(calls: Calls, most: int = 4, most_waiting: int = 10) -> AsyncIterator[Batches]:
    batches = Batches(calls, lambda: calls.away, most=most, most_waiting=most_waiting)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(batches.run())
        yield batches
        run.cancel()


async def _ask(batches: Batches, numbers: range) -> list[Any]:
    return await asyncio.gather(*(batches.ask(n) for n in numbers), return_exceptions=True)


async def test_what_arrives_together_goes_together_in_order() -> None:
    calls = Calls()
    async with running(calls) as batches:
        assert await _ask(batches, range(6)) == [0, 2, 4, 6, 8, 10]
    assert calls.made == [[0, 1, 2, 3], [4, 5]]


async def test_what_arrives_during_a_call_goes_with_the_next() -> None:
    calls = Calls()
    calls.gate.clear()
    settled: list[tuple[str, int]] = []
    async with running(calls) as batches:
        batches.submit(1, lambda context, outcome: settled.append((context, outcome)), "first")
        while not calls.made:
            await asyncio.sleep(0)
        for n in (2, 3):
            batches.submit(n, lambda context, outcome: settled.append((context, outcome)), f"later {n}")
        assert (batches.waiting, batches.in_flight, settled) == (2, 3, [])
        calls.gate.set()
        while len(settled) < 3:
            await asyncio.sleep(0)
        assert (batches.waiting, batches.in_flight) == (0, 0)
    assert calls.made == [[1], [2, 3]] and settled == [("first", 2), ("later 2", 4), ("later 3", 6)]


async def test_when_more_wait_than_a_call_takes_several_are_under_way() -> None:
    """In order, full ones only: the rest goes with whoever comes meanwhile. Who has begun to wait is told when it ends."""
    calls = Calls()
    calls.gate.clear()
    settled: list[Any] = []
    async with running(calls, most=4, most_waiting=100) as batches:
        for n in range(4 * MOST_CALLS + 10):
            batches.submit(n, lambda context, outcome: settled.append(outcome), None)
        while len(calls.made) < MOST_CALLS:
            await asyncio.sleep(0)
        assert (batches.waiting, batches.in_flight) == (10, 4 * MOST_CALLS + 10)
        calls.gate.set()
        while batches.in_flight:
            await asyncio.sleep(0)
        assert sorted(settled) == [2 * n for n in range(4 * MOST_CALLS + 10)]
        assert [n for made in calls.made for n in made] == list(range(4 * MOST_CALLS + 10))
        assert [len(made) for made in calls.made] == [4] * (MOST_CALLS + 2) + [2]
        calls.gate.clear()
        for n in range(9):
            batches.submit(n, lambda context, outcome: settled.append(type(outcome)), None)
        while len(calls.made) < MOST_CALLS + 5:
            await asyncio.sleep(0)
    assert settled[-9:] == [StoreAway] * 9


async def test_what_is_being_read_comes_along() -> None:
    """Requests that come in turn after turn of the loop go together, up to a full batch; a turn without any ends it."""
    calls = Calls()
    async with running(calls, most=6, most_waiting=100) as batches:
        for per_turn, turns in ((1, 4), (2, 5)):
            settled: list[int] = []
            for turn in range(turns):
                for _ in range(per_turn):
                    batches.submit(turn, lambda context, outcome: context.append(outcome), settled)
                await asyncio.sleep(0)
            while len(settled) < per_turn * turns:
                await asyncio.sleep(0)
    assert [len(made) for made in calls.made] == [4, 6, 4]


async def test_too_many_and_a_store_that_is_away_are_refused_at_once() -> None:
    calls = Calls()
    calls.gate.clear()
    async with running(calls, most_waiting=3) as batches:
        asked = [asyncio.get_running_loop().create_future() for _ in range(3)]
        for n, future in enumerate(asked):
            batches.submit(n, lambda context, outcome: context.set_result(outcome), future)
        with pytest.raises(StoreBehind):
            await batches.ask(9)
        calls.gate.set()
        assert await asyncio.gather(*asked) == [0, 2, 4]
        calls.away = True
        with pytest.raises(StoreAway):
            await batches.ask(9)


async def test_when_the_store_goes_away_all_fail() -> None:
    calls = Calls()
    calls.error = StoreAway("gone")
    async with running(calls) as batches:
        assert {type(outcome) for outcome in await _ask(batches, range(10))} == {StoreAway}
        assert len(calls.made) == 1
        calls.error = None
        assert await batches.ask(5) == 10


async def test_when_a_script_fails_its_batch_fails() -> None:
    calls = Calls()
    calls.error = ResponseError("ERR no")
    with structlog.testing.capture_logs() as logs:
        async with running(calls) as batches:
            assert {type(outcome) for outcome in await _ask(batches, range(2))} == {StoreAway}
            calls.error = None
            assert await batches.ask(5) == 10
    assert [line["event"] for line in logs] == ["a script failed"]


async def test_who_waits_when_it_stops_hears_of_it() -> None:
    calls = Calls()
    calls.gate.clear()
    settled: list[Any] = []
    async with running(calls) as batches:
        for n in range(6):
            batches.submit(n, lambda context, outcome: settled.append(outcome), None)
        while not calls.made:
            await asyncio.sleep(0)
        assert settled == []
    assert [type(outcome) for outcome in settled] == [StoreAway] * 6


async def test_an_answer_that_makes_no_sense_fails_its_batch_only() -> None:
    calls = Calls()
    calls.error = ValueError("no figure")
    with structlog.testing.capture_logs() as logs:
        async with running(calls) as batches:
            assert {type(outcome) for outcome in await _ask(batches, range(2))} == {StoreAway}
            calls.error = None
            assert await batches.ask(5) == 10
    assert [(line["event"], line["error"]) for line in logs] == [
        ("an answer of the store makes no sense", "ValueError")
    ]
