"""A clock that a test advances. Workers get it in place of ``asyncio.sleep``."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable

from tests.waiting import SECONDS, holds


class FakeTime:
    """``await time(seconds)`` sleeps until the test has advanced the clock by that much. ``now``: seconds passed."""

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
        """Wakes the sleepers one after the other until ``condition`` holds. Each gets a moment of real time to run."""
        async with asyncio.timeout(SECONDS):
            while not await holds(condition):
                self._wake_next()
                await asyncio.sleep(0.001)

    def timer(self) -> float:
        return self.now

    async def pass_by(self, seconds: float) -> None:
        """Lets so much time pass. Needs a task that sleeps repeatedly, each time for less than ``seconds``."""
        end = self.now + seconds
        await self.pass_until(lambda: self.now >= end)

    def _wake_next(self) -> None:
        while self._sleepers:
            end, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():  # else the sleeper was cancelled
                self.now = max(self.now, end)
                woken.set_result(None)
                return
