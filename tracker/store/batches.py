"""What many ask of the store at once, in one call: requests that come while a call is under way go together in the next.

Nobody waits for more to come, but what has arrived in the sockets is read first. The client library's cost per call, and the network's, is then shared; and an announce needs
neither a task nor a future of its own, which would cost as much as all the rest of it in this process.

When more wait than one call takes, several are under way. A turn of the loop reads whatever has come in, which in a rush takes a tenth of
a second, and with one call at a turn the store would stand idle for most of it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreAway, StoreBehind

log = structlog.get_logger("tracker.store")

Settle = Callable[[Any, Any], None]
"""Told the context of a request, and what became of it or StoreAway. Must not raise."""
_Entry = tuple[Any, Settle, Any]
MOST_CALLS = 16
"""Under way at a time."""


class Batches:
    """``apply`` makes the call for up to ``most`` requests and answers in their order; ``most_waiting`` may wait."""

    def __init__(
        self,
        apply: Callable[[list[Any]], Awaitable[list[Any]]],
        is_away: Callable[[], bool],
        *,
        most: int,
        most_waiting: int,
    ) -> None:
        self._apply = apply
        self._is_away = is_away
        self._most = most
        self._most_waiting = most_waiting
        self._waiting: deque[_Entry] = deque()
        self._arrived = asyncio.Event()
        self._sent = self._helping = 0

    @property
    def waiting(self) -> int:
        """Requests that wait for their call."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Requests that the store works on, or has yet to be asked about."""
        return self._sent + len(self._waiting)

    def submit(self, request: Any, settle: Settle, context: Any) -> None:
        """Puts a request into the next batch; ``settle`` is called with ``context`` and what became of it.

        That is StoreAway when it cannot be known to have been applied. Raises it when that is known at once.
        """
        waiting = self._waiting
        if not waiting:  # whoever comes behind others fares as they do
            if self._is_away():
                raise StoreAway("the store is away")
            self._arrived.set()
        elif len(waiting) >= self._most_waiting:
            raise StoreBehind("the store is behind")
        waiting.append((request, settle, context))

    async def ask(self, request: Any) -> Any:
        """The same, for who can wait; raises StoreAway."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(request, _resolve, future)
        return await future

    async def run(self) -> None:
        """Runs until cancelled: sends what waits."""
        waiting, self._helping = self._waiting, 0
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._arrived.wait()
                    self._arrived.clear()
                    while waiting:
                        await self._gather()
                        for _ in range(self._helping + 1, min(MOST_CALLS, len(waiting) // self._most)):
                            self._helping += 1
                            tasks.create_task(self._help())
                        await self._send()
        finally:
            self._fail(waiting, StoreAway("the tracker is stopping"))
            waiting.clear()

    async def _help(self) -> None:
        """One more call at a time, as long as there is a full one to make."""
        while len(self._waiting) >= self._most:
            await self._send()
        self._helping -= 1

    async def _gather(self) -> None:
        """Lets in what is in the sockets already, turn by turn of the loop until one brings nothing.

        When nothing is, that is one turn, some microseconds. Under load batches are half as large again: whoever has just been
        answered asks again while the others are read.
        """
        seen = 0
        while seen < len(self._waiting) < self._most:
            seen = len(self._waiting)
            await asyncio.sleep(0)

    async def _send(self) -> None:
        waiting = self._waiting
        batch = [waiting.popleft() for _ in range(min(self._most, len(waiting)))]
        if not batch:  # another call has failed, and all who waited with it
            return
        self._sent += len(batch)
        try:
            outcomes = await self._apply([request for request, _, _ in batch])
        except StoreAway as error:
            self._fail(batch, error)
            self._fail(self._waiting, error)
            self._waiting.clear()
        except RedisError as error:
            log.error("a script failed", error=str(error))
            self._fail(batch, StoreAway("the store failed"))
        except asyncio.CancelledError:
            self._fail(batch, StoreAway("the tracker is stopping"))
            raise
        except Exception as error:  # noqa: BLE001  # an answer that makes no sense: others may
            log.error("an answer of the store makes no sense", error=type(error).__name__)
            self._fail(batch, StoreAway("the store failed"))
        else:
            for (_, settle, context), outcome in zip(batch, outcomes, strict=True):
                settle(context, outcome)
        finally:
            self._sent -= len(batch)

    @staticmethod
    def _fail(batch: Iterable[_Entry], error: StoreAway) -> None:
        for _, settle, context in batch:
            settle(context, error)


def _resolve(future: "asyncio.Future[Any]", outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, StoreAway):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
