"""Requests that wait together: which calls carry them, and their outcomes when the store does not reply."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import structlog
from redis.exceptions import ResponseError

from loadtest.servers import Server
from tests.waiting import eventually, in_background, loop_turns
from tracker.errors import StoreOverloaded, StoreUnavailable
from tracker.store.client.batching import MAX_CALLS, Batches, Sender
from tracker.store.client.connection import connect
from tracker.store.client.scripts import Script


class Calls:
    """A store that doubles numbers; a cleared ``gate`` holds calls back, the next call raises ``error``."""

    def __init__(self) -> None:
        self.made: list[list[Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.unavailable = False
        self.server = connect("unix:///closed", connect_timeout=5, timeout=60)

    async def call(self, numbers: list[Any], error: Exception | None) -> list[Any]:
        assert error is None
        self.made.append(numbers)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [2 * number for number in numbers]


class Totals(str):
    incomplete = 0


async def complete(requests: Sequence[Any], outcomes: Sequence[Any], totals: Any) -> tuple[Sequence[Any], Any]:
    raise AssertionError((requests, outcomes, totals))


class Settled:
    """Collects outcomes."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []
        self.batches: list[tuple[int, Any] | None] = []

    def __call__(self, settled: Iterable[tuple[Any, Any]], batch: tuple[int, Any] | None) -> None:
        self.pairs += settled
        self.batches.append(batch)

    @property
    def outcomes(self) -> list[Any]:
        return [outcome for _, outcome in self.pairs]


def made(calls: Calls, sender: Sender, script: str = "") -> Batches:
    return Batches(
        cast(Any, calls),
        Script(calls.call, "t:", script),
        list,
        lambda requests, argv, reply: (reply, Totals(f"{len(requests)} numbers")),
        calls.call,
        complete,
        sender,
    )


@asynccontextmanager
async def running(calls: Calls, max_requests: int = 4, max_waiting: int = 10) -> AsyncIterator[Batches]:
    sender = Sender(max_requests, max_waiting)
    batches = made(calls, sender)
    async with in_background(sender.run()):
        yield batches


async def _execute(batches: Batches, numbers: range) -> list[Any]:
    return await asyncio.gather(*(batches.execute(n) for n in numbers), return_exceptions=True)


async def test_requests_that_arrive_together_share_a_call_in_order() -> None:
    calls = Calls()
    async with running(calls) as batches:
        assert await _execute(batches, range(6)) == [0, 2, 4, 6, 8, 10]
    assert calls.made == [[0, 1, 2, 3], [4, 5]]


async def test_requests_that_arrive_during_a_call_share_the_next() -> None:
    calls = Calls()
    calls.gate.clear()
    settled = Settled()
    async with running(calls) as batches:
        batches.submit(1, settled, "first")
        while not calls.made:
            await asyncio.sleep(0)
        for n in (2, 3):
            batches.submit(n, settled, f"later {n}")
        assert (len(batches.requests), batches.in_flight, settled.pairs) == (2, 3, [])
        calls.gate.set()
        while len(settled.pairs) < 3:
            await asyncio.sleep(0)
        assert (len(batches.requests), batches.in_flight) == (0, 0)
    assert calls.made == [[1], [2, 3]] and settled.pairs == [("first", 2), ("later 2", 4), ("later 3", 6)]


async def test_small_calls_wait_while_the_server_works_on_those_of_other_shards(valkey: Server, prefix: str) -> None:
    """They would wait there too, and more requests share them now. Then they go out together."""
    script, sender, calls, settled = "return ARGV", Sender(4, 10), Calls(), Settled()
    calls.server = server = connect(valkey.url, connect_timeout=5, timeout=60)
    for name in "ab":
        server.serve(name)
    pipe = await server.announces.opened()
    await pipe.execute("SCRIPT", "LOAD", script)
    first, second, third = (made(calls, sender, script) for _ in range(3))
    async with in_background(sender.run()):
        for batches in (first, second, third):
            await batches.execute("0")  # the first call over a pipe goes another way
        working = pipe.execute("BLPOP", f"{prefix}list", 0)
        first.submit("1", settled, None)
        await eventually(lambda: pipe.in_flight == 2)
        second.submit("2", settled, None)
        third.submit("3", settled, None)
        await loop_turns(5)
        second.submit("4", settled, None)
        await loop_turns(5)
        assert (pipe.in_flight, len(second.requests), len(third.requests)) == (2, 2, 1)
        await server.execute("LPUSH", f"{prefix}list", "")
        await eventually(lambda: len(settled.batches) == 3)
        assert settled.outcomes == [b"1", b"2", b"4", b"3"] and working.done()
    await server.close()


async def test_several_calls_are_in_flight_when_more_wait_than_one_takes() -> None:
    """In order, full calls only: the rest is sent with later requests. Requests in flight at the end fail."""
    calls = Calls()
    calls.gate.clear()
    settled = Settled()
    async with running(calls, max_requests=4, max_waiting=100) as batches:
        for n in range(4 * MAX_CALLS + 10):
            batches.submit(n, settled, None)
        while len(calls.made) < MAX_CALLS:
            await asyncio.sleep(0)
        assert (len(batches.requests), batches.in_flight) == (10, 4 * MAX_CALLS + 10)
        calls.gate.set()
        while batches.in_flight:
            await asyncio.sleep(0)
        assert sorted(settled.outcomes) == [2 * n for n in range(4 * MAX_CALLS + 10)]
        assert [n for made in calls.made for n in made] == list(range(4 * MAX_CALLS + 10))
        assert [len(made) for made in calls.made] == [4] * (MAX_CALLS + 2) + [2]
        calls.gate.clear()
        for n in range(9):
            batches.submit(n, settled, None)
        while len(calls.made) < MAX_CALLS + 5:
            await asyncio.sleep(0)
    assert [type(outcome) for outcome in settled.outcomes[-9:]] == [StoreUnavailable] * 9


async def test_requests_that_arrive_in_consecutive_turns_share_a_call() -> None:
    """Requests of consecutive turns of the loop share a call, up to its maximum. A turn without a request sends the
    call."""
    calls = Calls()
    async with running(calls, max_requests=6, max_waiting=100) as batches:
        for per_turn, turns in ((1, 4), (2, 5)):
            settled = Settled()
            for turn in range(turns):
                for _ in range(per_turn):
                    batches.submit(turn, settled, None)
                await asyncio.sleep(0)
            while len(settled.pairs) < per_turn * turns:
                await asyncio.sleep(0)
    assert [len(made) for made in calls.made] == [4, 6, 4]


async def test_requests_beyond_the_limit_or_without_a_store_are_refused_at_once() -> None:
    calls = Calls()
    calls.gate.clear()
    async with running(calls, max_waiting=3) as batches:
        settled = Settled()
        for n in range(3):
            batches.submit(n, settled, n)
        with pytest.raises(StoreOverloaded):
            await batches.execute(9)
        calls.gate.set()
        while batches.in_flight:
            await asyncio.sleep(0)
        assert settled.pairs == [(0, 0), (1, 2), (2, 4)]
        calls.unavailable = True
        with pytest.raises(StoreUnavailable):
            await batches.execute(9)


async def test_all_requests_fail_when_the_store_is_lost() -> None:
    calls = Calls()
    calls.error = StoreUnavailable("gone")
    async with running(calls) as batches:
        assert {type(outcome) for outcome in await _execute(batches, range(10))} == {StoreUnavailable}
        assert calls.made == [[0, 1, 2, 3], [4, 5, 6, 7]], "the others were not sent"
        calls.error = None
        assert await batches.execute(5) == 10


async def test_a_failed_script_fails_its_batch_only() -> None:
    calls = Calls()
    calls.error = ResponseError("ERR no")
    with structlog.testing.capture_logs() as logs:
        async with running(calls) as batches:
            assert {type(outcome) for outcome in await _execute(batches, range(2))} == {StoreUnavailable}
            calls.error = None
            assert await batches.execute(5) == 10
    assert [line["event"] for line in logs] == ["store script failed"]


async def test_waiting_requests_fail_at_the_end() -> None:
    calls = Calls()
    calls.gate.clear()
    settled = Settled()
    async with running(calls) as batches:
        for n in range(6):
            batches.submit(n, settled, None)
        while not calls.made:
            await asyncio.sleep(0)
        assert settled.pairs == []
    assert [type(outcome) for outcome in settled.outcomes] == [StoreUnavailable] * 6


async def test_an_unexpected_reply_fails_its_batch_only() -> None:
    calls = Calls()
    calls.error = ValueError("no figure")
    with structlog.testing.capture_logs() as logs:
        async with running(calls) as batches:
            assert {type(outcome) for outcome in await _execute(batches, range(2))} == {StoreUnavailable}
            calls.error = None
            assert await batches.execute(5) == 10
    assert [(line["event"], line["error"]) for line in logs] == [("unexpected store reply", "ValueError")]


async def test_each_callback_is_called_once_a_batch_and_the_first_gets_its_number_and_totals() -> None:
    calls = Calls()
    one, other = Settled(), Settled()
    async with running(calls) as batches:
        for n, settle in enumerate((one, other, one, other)):
            batches.submit(n, settle, n)
        while batches.in_flight:
            await asyncio.sleep(0)
    assert (one.pairs, other.pairs) == ([(0, 0), (2, 4)], [(1, 2), (3, 6)])
    assert (one.batches, other.batches) == ([(4, "4 numbers")], [None])


async def test_a_callback_that_raises_leaves_no_other_request_without_an_outcome() -> None:
    answered: list[int] = []

    def settle(settled: Iterable[tuple[Any, Any]], batch: tuple[int, Any] | None) -> tuple[int, Any] | None:
        for context, outcome in settled:
            if context % 2 == 0:
                raise ZeroDivisionError
            answered.append(outcome)
        return batch

    for others in (settle, Settled()):
        answered.clear()
        with structlog.testing.capture_logs() as logs:
            async with running(Calls()) as batches:
                for n, each in enumerate((settle, settle, others, settle)):
                    batches.submit(n, each, n)
                assert await batches.execute(4) == 8
        assert answered == [2, 6]
        assert {line["event"] for line in logs} == {"cannot answer a request"}
    assert isinstance(others, Settled) and (others.pairs, others.batches) == ([(2, 4)], [(4, "4 numbers")])
