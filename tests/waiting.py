"""Waits for other processes, connections and servers by polling a condition, so that no test waits a fixed time."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

SECONDS = 60.0
"""A generous limit, because a busy machine is slow. It promises nothing."""
_POLL_SECONDS = 0.01


def until(condition: Callable[[], bool], seconds: float = SECONDS, poll_seconds: float = _POLL_SECONDS) -> float:
    """Blocks until ``condition`` holds, and returns the seconds waited. Fails after ``seconds``."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, f"the condition did not hold within {seconds:g} s"
        time.sleep(poll_seconds)
    return time.monotonic() - began


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], seconds: float = SECONDS, ignored: tuple[type[Exception], ...] = ()
) -> float:
    """The same in a coroutine; ``condition`` may be a coroutine function. An exception in ``ignored`` counts as "not
    yet"."""
    began = time.monotonic()
    while not await holds(condition, ignored):
        assert time.monotonic() < began + seconds, f"the condition did not hold within {seconds:g} s"
        await asyncio.sleep(_POLL_SECONDS)
    return time.monotonic() - began


async def holds(condition: Callable[[], bool | Awaitable[bool]], ignored: tuple[type[Exception], ...] = ()) -> bool:
    """Returns the current value of ``condition``."""
    with suppress(*ignored):
        found = condition()
        return await found if inspect.isawaitable(found) else bool(found)
    return False


async def loop_turns(number: int) -> None:
    """Lets other tasks run for this many turns of the event loop."""
    for _ in range(number):
        await asyncio.sleep(0)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails a block that takes longer."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"{took:.3f} s, not {seconds:g}"


@asynccontextmanager
async def in_background(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs the coroutines until the block ends, then cancels them, like the end of a killed process."""
    tasks = [asyncio.Task(coroutine) for coroutine in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
