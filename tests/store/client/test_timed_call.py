"""The outcome that a round trip is reported with. test_connection.py tests those of each kind of call."""

import asyncio

import pytest
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tracker.store.client.timed_call import timed_call


async def test_a_call_is_reported_once_with_its_outcome() -> None:
    reports: list[tuple[str, float]] = []

    def report(outcome: str, seconds: float) -> None:
        reports.append((outcome, seconds))

    async def answer() -> int:
        return 7

    async def fail() -> int:
        raise ResponseError("wrong command")

    assert await timed_call(answer, 5.0, report, "answered") == 7
    assert await timed_call(answer, 5.0, report, "") == 7
    assert await timed_call(answer, 5.0, None, "answered") == 7
    with pytest.raises(ResponseError):
        await timed_call(fail, 5.0, report, "answered")
    with pytest.raises(TimeoutError):
        await timed_call(asyncio.Event().wait, 0.01, report, "answered")
    assert [outcome for outcome, _ in reports] == ["answered", "error", "timeout"]
    assert all(seconds >= 0 for _, seconds in reports)


async def test_a_connection_that_timed_out_while_this_process_was_busy_is_tried_again() -> None:
    attempts = 0

    async def connect() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise RedisTimeoutError("Timeout connecting to server")
        return "connected"

    assert await timed_call(connect, 5.0, None, "answered") == "connected"
