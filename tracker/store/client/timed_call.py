"""One round trip through redis-py, with a time limit and its outcome."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tracker.store.client.loop_timeout import loop_timeout
from tracker.store.client.reply_errors import outcome_of

OnRoundTrip = Callable[[str, float], None]
"""(outcome, seconds) of a round trip; the outcome is one of OUTCOMES."""
_Result = TypeVar("_Result")


async def timed_call(
    call: Callable[[], Awaitable[_Result]],
    timeout: float,
    on_round_trip: OnRoundTrip | None,
    ok: str = "answered",
) -> _Result:
    """Reports how ``call`` ended: ``ok`` when it returned; nothing when the outcome is empty or unknown."""
    began = time.perf_counter()
    outcome = ""
    try:
        async with loop_timeout(timeout):
            answer = await _past_connecting(call)
        outcome = ok
        return answer
    except (RedisError, OSError) as error:
        outcome = outcome_of(error)
        raise
    finally:
        # A cancelled call has no outcome.
        if on_round_trip is not None and outcome:
            on_round_trip(outcome, time.perf_counter() - began)


async def _past_connecting(call: Callable[[], Awaitable[_Result]]) -> _Result:
    """Repeats a call whose connection timed out before a command was sent: redis-py's timer also counts time in which
    this process was busy. The caller limits the total."""
    while True:
        try:
            return await call()
        except RedisTimeoutError:
            await asyncio.sleep(0)
