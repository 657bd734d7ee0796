"""A timeout that does not count the time in which this process was busy.

A timer of asyncio is late when the event loop was busy, and fires before the sockets are read. After a second spent
on a flood, every call would time out although its reply waits in the socket.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_PARTS = 64
"""The timeout consists of this many timers, one after another; sockets are read between them. A late timer counts
once. Opening a socket with its sign-in takes a dozen turns of the event loop, each of which may be slow."""


@asynccontextmanager
async def loop_timeout(seconds: float) -> AsyncIterator[None]:
    """As ``asyncio.timeout``: raises TimeoutError after ``seconds`` in which the event loop ran."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as limit:

        def wait(parts: int) -> None:
            nonlocal timer
            if parts:
                timer = loop.call_later(seconds / _PARTS, wait, parts - 1)
            else:
                limit.reschedule(loop.time())

        wait(_PARTS)
        try:
            yield
        finally:
            timer.cancel()
