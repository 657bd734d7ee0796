"""Batches concurrent requests into one script call.

Requests that arrive during a call go together in the next one. Nothing waits for more requests to arrive, but data
already in the sockets is read first. So requests share the cost of a call, and an announce needs no task and no
future.

When more requests wait than one call takes, several calls are in flight. One turn of the event loop may read sockets
for a tenth of a second; with one call at a time the store would be idle for most of it.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Protocol

from redis.exceptions import RedisError

from tracker.errors import StoreOverloaded, StoreUnavailable
from tracker.store.client.pipe import Argument, RedisPipe
from tracker.store.client.scripts import Script
from tracker.store.client.server import Server
from tracker.system.logger import Logger

MAX_CALLS = 16
"""Calls in flight at a time."""

log = Logger("tracker.store")

Settle = Callable[[list[tuple[Any, Any]], tuple[int, Any] | None], tuple[int, Any] | None]
"""Called once per batch and callback, with (context, outcome) of its requests, and (number of requests, totals) of the
whole batch, which the next callback gets if this one returns them. Must not raise.

StoreUnavailable as an outcome means that the request may or may not have been applied. Only the first callback of a
successful batch gets the number and the totals; others get None."""
Encode = Callable[[list[Any]], list[Argument]]
"""Requests -> the arguments of the script."""
Decode = Callable[[list[Any], list[Argument], Any], tuple[Sequence[Any], Any]]
"""Requests, the script's arguments and its reply -> an outcome for each request in order, and totals of the batch."""
Complete = Callable[[list[Any], Sequence[Any], Any], Awaitable[tuple[Sequence[Any], Any]]]
"""Requests, their outcomes and the totals of the batch, whose ``incomplete`` is true -> the outcomes and totals after
further calls. Raises nothing."""
Call = Callable[[list[Argument], Exception | None], Awaitable[Any]]
_Entry = tuple[Any, Settle, Any]


class Connection(Protocol):
    """The part of a connection that Batches uses."""

    unavailable: bool
    server: Server


class Room:
    """How many requests may wait for their calls, in all batches that share it; of these, a full batch each may be
    more."""

    __slots__ = ("size", "waiting")

    def __init__(self, size: int) -> None:
        self.size = size
        self.waiting = 0


class Batches:
    """Sends requests to ``script`` over the pipe of ``connection``, at most ``max_requests`` in a call.

    ``call`` runs the script when the pipe is closed, is not that of the last call or has raised an error; it raises
    StoreUnavailable or redis.exceptions.RedisError.
    """

    def __init__(
        self,
        connection: Connection,
        script: Script,
        encode: Encode,
        decode: Decode,
        call: Call,
        *,
        max_requests: int,
        room: Room,
        complete: Complete | None = None,
    ) -> None:
        self._connection = connection
        self._script = script
        self._encode = encode
        self._decode = decode
        self._call = call
        self._complete = complete
        self._max_requests = max_requests
        self._room = room
        self._in_room = 0
        """Waiting requests that the room counts: to count each would cost as much as a tenth of its parsing."""
        self._waiting: deque[_Entry] = deque()
        self._arrived = asyncio.Event()
        self._sent = self._helpers = self._checked_at = 0
        self._pipe: RedisPipe | None = None
        """The one of the last call. ``call`` learns of each other one, which may lead to another server."""

    @property
    def waiting(self) -> int:
        """Requests that wait for their call."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Requests without an outcome."""
        return self._sent + len(self._waiting)

    def submit(self, request: Any, settle: Settle, context: Any) -> None:
        """Adds a request to the next batch; ``settle`` is called with ``context`` and its outcome.

        Raises StoreUnavailable when the store is known to be unavailable, StoreOverloaded when too many requests wait.
        """
        waiting = self._waiting
        if not waiting:
            if self._connection.unavailable:
                raise StoreUnavailable("the store is unavailable")
            self._arrived.set()
        elif len(waiting) >= self._checked_at:
            self._check_room()
        waiting.append((request, settle, context))

    def _check_room(self) -> None:
        room, number = self._room, len(self._waiting)
        room.waiting += number - self._in_room
        self._in_room = number
        left = room.size - room.waiting
        if left <= 0:
            raise StoreOverloaded("too many requests wait for the store")
        self._checked_at = number + (left if left < self._max_requests else self._max_requests)

    async def execute(self, request: Any) -> Any:
        """The outcome of one request; raises StoreUnavailable."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(request, _resolve, future)
        return await future

    async def run(self) -> None:
        """Sends waiting requests, until cancelled."""
        waiting, self._helpers = self._waiting, 0
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._arrived.wait()
                    self._arrived.clear()
                    while waiting:
                        await self._fill()
                        for _ in range(self._helpers + 1, min(MAX_CALLS, len(waiting) // self._max_requests)):
                            self._helpers += 1
                            tasks.create_task(self._help())
                        await self._send()
        finally:
            self._fail(self._take(len(waiting)), StoreUnavailable("the tracker is stopping"))

    async def _fill(self) -> None:
        """Waits for requests that share the cost of a call: lets the loop read all sockets that are readable, at least
        for one turn. A server that works on other shards' calls would let a call wait, so a small one is not sent yet.
        """
        waiting, seen = self._waiting, 0
        while seen < len(waiting) < self._max_requests:
            seen = len(waiting)
            pipe = self._connection.server.announces.socket
            if pipe is not None and pipe.gathers and seen < self._max_requests // 2 and pipe.in_flight:
                await pipe.answered()
                return
            await asyncio.sleep(0)

    async def _help(self) -> None:
        """Sends batches one after the other, while enough requests wait to fill one."""
        while len(self._waiting) >= self._max_requests:
            await self._send()
        self._helpers -= 1

    async def _send(self) -> None:
        batch = self._take(self._max_requests)
        if not batch:  # another call has failed, and all waiting requests with it
            return
        self._sent += len(batch)
        try:
            requests = [request for request, _, _ in batch]
            argv = self._encode(requests)
            outcomes, totals = self._decode(requests, argv, await self.call_script(argv))
            if totals and self._complete and totals.incomplete:
                outcomes, totals = await self._complete(requests, outcomes, totals)
        except StoreUnavailable as error:
            self._fail(batch, error)
            self._fail(self._take(len(self._waiting)), error)
        except RedisError as error:
            log.error("store script failed", error=str(error))
            self._fail(batch, StoreUnavailable("the store failed"))
        except asyncio.CancelledError:
            self._fail(batch, StoreUnavailable("the tracker is stopping"))
            raise
        except Exception as error:  # noqa: BLE001  # one unexpected reply must not stop the others
            log.error("unexpected store reply", error=type(error).__name__)
            self._fail(batch, StoreUnavailable("the store failed"))
        else:
            _settle(batch, outcomes, (len(batch), totals))
        finally:
            self._sent -= len(batch)

    def _take(self, count: int) -> list[_Entry]:
        """The first waiting requests, at most so many."""
        waiting = self._waiting
        if len(waiting) <= count:
            taken = list(waiting)
            waiting.clear()
        else:
            taken = [waiting.popleft() for _ in range(count)]
        self._room.waiting += len(waiting) - self._in_room
        self._in_room = self._checked_at = len(waiting)
        return taken

    async def call_script(self, argv: list[Argument]) -> Any:
        """Over the pipe of the last call, where that is possible."""
        state, pipe = self._connection.server.state, self._connection.server.announces.socket
        failure = None
        if pipe is not None and pipe is self._pipe and not pipe.broken and not self._connection.unavailable:
            try:
                return await pipe.execute(*self._script.head, *argv)
            except (RedisError, OSError) as error:
                failure = self._connection.server.current(error, state)
        reply = await self._call(argv, failure)
        self._pipe = self._connection.server.announces.socket
        return reply

    @staticmethod
    def _fail(batch: Iterable[_Entry], error: StoreUnavailable) -> None:
        _settle(batch, repeat(error), None)


def _settle(batch: Iterable[_Entry], outcomes: Iterable[Any], whole: tuple[int, Any] | None) -> None:
    settled: dict[Settle, list[tuple[Any, Any]]] = defaultdict(list)
    for (_, settle, context), outcome in zip(batch, outcomes, strict=False):
        settled[settle].append((context, outcome))
    for settle, outcomes_of_one in settled.items():
        whole = settle(outcomes_of_one, whole)


def _resolve(settled: list[tuple[Any, Any]], whole: tuple[int, Any] | None) -> None:
    del whole
    for future, outcome in settled:
        if future.done():
            continue
        if isinstance(outcome, StoreUnavailable):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
