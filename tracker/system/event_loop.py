"""Loops that run as long as what they serve."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

_CANCEL_AGAIN_SECONDS = 0.25

Loop = Callable[[], Coroutine[Any, Any, None]]
"""Runs until cancelled."""


def new_event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the fastest loop there is; None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415  # a tracker without it is slower and works
    except ImportError:
        return None
    return uvloop.new_event_loop


@asynccontextmanager
async def running(*loops: Loop) -> AsyncIterator[None]:
    """Runs coroutines until the block is left.

    One that fails takes everything down: half a tracker is worse than none. An error that is alone comes
    out as itself, not in a group.
    """
    others = asyncio.all_tasks()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {group.create_task(loop()) for loop in loops}
            try:
                yield
            finally:
                await _end(tasks, others)
    except BaseExceptionGroup as errors:
        raise (errors.exceptions[0] if len(errors.exceptions) == 1 else errors) from None


async def _end(tasks: set[asyncio.Task[None]], others: set[asyncio.Task[Any]]) -> None:
    """Cancels ``tasks`` until they end, the second time with all that began after ``others``.

    Once is not enough: redis-py sends through asyncio.wait_for, which before Python 3.12 forgets a
    cancellation that comes at the moment of its success, and a TaskGroup cancels what is in it only once.
    """
    for task in tasks:
        task.cancel()
    while tasks and (await asyncio.wait(tasks, timeout=_CANCEL_AGAIN_SECONDS))[1]:
        for task in asyncio.all_tasks() - others:
            task.cancel()


def spare_the_collector() -> None:
    """For the end of a start, in each process that answers.

    Nearly all that an announce makes is freed by reference counts; what the start made, some 90,000 objects, stays for ever.
    With Python's defaults the cycle collector runs every few announces, and now and then walks through all of that, which
    holds everybody up for 20 to 60 ms. Afterwards it sees only what came later: 3 ms with 100,000 objects more.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
