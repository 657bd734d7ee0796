"""Time that a test lets pass: what a worker takes for ``asyncio.sleep``."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable

from tests.waiting import SECONDS, holds


class FakeTime:
    """``await time(seconds)`` sleeps until ``pass_until`` has let as much time pass; ``now`` is what has passed, in
    seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    async def __call__(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        if seconds <= 0:
            woken.get_loop().call_soon(woken.set_result, None)
        else:
            heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), woken))
        await woken

    async def pass_until(self, condition: Callable[[], bool | Awaitable[bool]]) -> None:
        """Wakes the sleepers one after the other, with a moment of real time for what they do then, until
        ``condition`` holds."""
        async with asyncio.timeout(SECONDS):
            while not await holds(condition):
                self._wake_next()
                await asyncio.sleep(0.001)

    def timer(self) -> float:
        return self.now

    async def pass_by(self, seconds: float) -> None:
        """Lets so much time pass. Some sleeper must sleep for less than that again and again."""
        end = self.now + seconds
        await self.pass_until(lambda: self.now >= end)

    def _wake_next(self) -> None:
        while self._sleepers:
            end, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():  # else the sleeper was cancelled
                self.now = max(self.now, end)
                woken.set_result(None)
                return
