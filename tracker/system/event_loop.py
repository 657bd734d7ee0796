"""The event loop: which one, background coroutines, and the garbage collector."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

_CANCEL_AGAIN_SECONDS = 0.25

Loop = Callable[[], Coroutine[Any, Any, None]]
"""Runs until cancelled."""


def new_event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of uvloop; None for asyncio's loop."""
    try:
        import uvloop  # noqa: PLC0415  # optional: the tracker works without it, but slower
    except ImportError:
        return None
    return uvloop.new_event_loop


@asynccontextmanager
async def running(*loops: Loop) -> AsyncIterator[None]:
    """Runs coroutines until the block is left. If one fails, all are cancelled, and so is the block: a partly running
    tracker would go unnoticed. A single error is raised as itself, several as a group."""
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
    """Cancels ``tasks`` until they end; from the second time on with all tasks that are not in ``others``, but never
    the current one: the block may end in another task than it began in. One cancellation may be lost: redis-py uses
    asyncio.wait_for, which before Python 3.12 drops a cancellation at the moment of its success, and a TaskGroup
    cancels its tasks only once."""
    for task in tasks:
        task.cancel()
    while tasks and (await asyncio.wait(tasks, timeout=_CANCEL_AGAIN_SECONDS))[1]:
        for task in asyncio.all_tasks() - others - {asyncio.current_task()}:
            task.cancel()


def freeze_gc() -> None:
    """Call at the end of the start, in each process that answers requests. Reference counts free nearly everything that
    an announce allocates; the 90,000 objects of the start stay for ever. With Python's defaults the cycle collector
    runs every few announces and sometimes scans all of them, which stops the process for 20 to 60 ms. After the freeze
    it scans only later objects: 3 ms for 100,000. They are not collected first: that took 80 ms, a twelfth of the
    start, and found 10 objects."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
