"""Batches concurrent requests into script calls, and the calls to a server into writes.

Requests that arrive during a call go together in the next one. Nothing waits for more requests to arrive, but data
already in the sockets is read first. So requests share the cost of a call, and an announce needs no task and no
future. The shards of a server share the waiting, the write and the turns of the event loop.

When more requests wait than one call takes, several calls are in flight. One turn of the event loop may read sockets
for a tenth of a second; with one call at a time the store would be idle for most of it.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

from redis.exceptions import RedisError

from tracker.errors import StoreOverloaded, StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument, RedisPipe
from tracker.store.client.scripts import Script
from tracker.store.client.server import Server
from tracker.system.logger import Logger

MAX_CALLS = 16
"""Calls of a shard in flight at a time."""

log = Logger("tracker.store")

Settle = Callable[[Iterable[tuple[Any, Any]], tuple[int, Any] | None], tuple[int, Any] | None]
"""Called once per batch and callback, with (context, outcome) of its requests, and (number of requests, totals) of the
whole batch, which the next callback gets if this one returns them. If it raises, it is called again with what it has
not taken yet.

StoreUnavailable as an outcome means that the request may or may not have been applied. Only the first callback of a
successful batch gets the number and the totals; others get None."""
Encode = Callable[[Sequence[Any]], list[Argument]]
"""Requests -> the arguments of the script."""
Decode = Callable[[Sequence[Any], list[Argument], Any], tuple[Sequence[Any], Any]]
"""Requests, the script's arguments and its reply -> an outcome for each request in order, and totals of the batch."""
Complete = Callable[[Sequence[Any], Sequence[Any], Any], Awaitable[tuple[Sequence[Any], Any]]]
"""Requests, their outcomes and the totals of the batch, whose ``incomplete`` is true -> the outcomes and totals after
further calls. Raises nothing."""
Call = Callable[[list[Argument], Exception | None], Awaitable[Any]]
_Entry = tuple[Any, Settle, Any]


@dataclass(slots=True, eq=False)
class _Call:
    entries: list[_Entry]
    requests: Sequence[Any]
    argv: list[Argument]
    state: tuple[Server, int]
    frees: Server | None = None
    """The server, if this is the last call of a write to it."""


class Sender:
    """Sends what waits in several Batches, while ``run`` runs: the calls to a server together. The next ones follow
    when these are answered: a server that works on them would let a call wait. Full ones follow sooner: those of
    ``max_requests``. ``max_waiting`` is how many requests may wait for their calls in all batches; of these, a full
    call each may be more."""

    def __init__(self, max_requests: int, max_waiting: int) -> None:
        self.max_requests = max_requests
        self.max_waiting = max_waiting
        self.waiting = 0
        """As far as they were counted."""
        self.batches: list[Batches] = []
        self._ready: dict[Batches, None] = {}
        """Those with waiting requests, the longest waiting one first."""
        self._busy = set[Server]()
        self._is_awake = False
        self._tasks: asyncio.TaskGroup | None = None
        """For what takes more than a call over an open pipe. None while nothing is sent."""

    def add(self, batches: "Batches") -> None:
        self._ready[batches] = None
        if batches.connection.server not in self._busy:
            self.wake()

    def wake(self) -> None:
        if self._ready and not self._is_awake and self._tasks is not None:
            self._is_awake = True
            asyncio.get_running_loop().call_soon(self._turn, 0)

    def _turn(self, seen: int) -> None:
        """Waits for requests that share the cost of a call: lets the loop read all sockets that are readable, at least
        for one turn."""
        numbers = [len(each.requests) for each in self._ready if each.connection.server not in self._busy]
        number = sum(numbers)
        if number > seen and max(numbers) < self.max_requests:
            asyncio.get_running_loop().call_soon(self._turn, number)
        else:
            self._is_awake = False
            if self._tasks is not None:
                self._send(self._tasks)

    def _send(self, tasks: asyncio.TaskGroup) -> None:
        ready, full = self._ready, self.max_requests
        last: dict[Server, _Call] = {}
        for batches in list(ready):
            server, requests, calls = batches.connection.server, batches.requests, batches.calls
            least = full if calls or server in self._busy else 1
            while len(requests) >= least and len(calls) < MAX_CALLS:
                if call := batches.send(tasks):
                    last[server] = call
                least = full
            if not requests:
                del ready[batches]
        for server, call in last.items():
            self._busy.add(server)
            call.frees = server

    def free(self, server: Server) -> None:
        self._busy.discard(server)
        self.wake()

    async def run(self) -> None:
        """Sends waiting requests, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self.wake()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None
                for batches in self.batches:
                    batches.end()


@dataclass(eq=False)
class Batches:
    """Requests that ``sender`` sends to ``script`` over the pipe of ``connection``. ``call`` runs the script when the
    pipe is closed, is not that of the last call or has raised an error; it raises StoreUnavailable or
    redis.exceptions.RedisError."""

    connection: Connection
    _script: Script
    _encode: Encode
    _decode: Decode
    _call: Call
    _complete: Complete
    _sender: Sender

    def __post_init__(self) -> None:
        self._sender.batches.append(self)
        self.requests: deque[_Entry] = deque()
        """Those that wait for their call."""
        self._counted = self._checked_at = 0
        """Requests that the sender has counted: to count each would cost as much as a tenth of its parsing."""
        self.calls = set[_Call]()
        self._pipe: RedisPipe | None = None
        """The one of the last call. ``call`` learns of each other one, which may lead to another server."""

    @property
    def in_flight(self) -> int:
        """Requests without an outcome."""
        return sum(len(call.entries) for call in self.calls) + len(self.requests)

    def submit(self, request: Any, settle: Settle, context: Any) -> None:
        """Adds a request to the next batch; ``settle`` is called with ``context`` and its outcome. Raises
        StoreUnavailable when the store is known to be unavailable, StoreOverloaded when too many requests wait."""
        waiting = self.requests
        if not waiting:
            if self.connection.unavailable:
                raise StoreUnavailable("the store is unavailable")
            self._sender.add(self)
        elif len(waiting) >= self._checked_at:
            self._check_room()
        waiting.append((request, settle, context))

    def _check_room(self) -> None:
        sender, number = self._sender, len(self.requests)
        sender.waiting += number - self._counted
        self._counted = number
        left = sender.max_waiting - sender.waiting
        if left <= 0:
            raise StoreOverloaded("too many requests wait for the store")
        self._checked_at = number + (left if left < sender.max_requests else sender.max_requests)

    async def execute(self, request: Any) -> Any:
        """The outcome of one request; raises StoreUnavailable."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(request, resolve, future)
        return await future

    def send(self, tasks: asyncio.TaskGroup) -> _Call | None:
        """Sends the next call; returns it if it goes over the pipe of the last call."""
        entries, pipe, answered = self._take(self._sender.max_requests), self._open_pipe, None
        requests, _, _ = zip(*entries, strict=True)
        call = _Call(entries, requests, [], self.connection.server.state)
        self.calls.add(call)
        try:
            call.argv = self._encode(call.requests)
            if pipe is not None:
                answered = pipe.execute(*self._script.head, *call.argv)
        except Exception as error:  # noqa: BLE001  # one batch must not stop the others
            self._fail(call, error)
            return None
        if answered is None:
            tasks.create_task(self._go_on(call, None))
            return None
        answered.add_done_callback(partial(self._receive, call, tasks))
        return call

    def _receive(self, call: _Call, tasks: asyncio.TaskGroup, answered: "asyncio.Future[Any]") -> None:
        failure: Any = answered.exception()
        found = None
        if call.frees is not None:
            self._sender.free(call.frees)
        if call not in self.calls:  # the tracker is stopping
            return
        if failure is not None:
            failure = self.connection.server.current(failure, call.state)
        else:
            try:
                found = self._decode(call.requests, call.argv, answered.result())
            except Exception as error:  # noqa: BLE001  # as above
                self._fail(call, error)
                return
            if not (found[1] and found[1].incomplete):
                self._settle(call, *found)
                return
        tasks.create_task(self._go_on(call, failure, found))

    async def _go_on(
        self, call: _Call, failure: Exception | None, found: tuple[Sequence[Any], Any] | None = None
    ) -> None:
        """Makes a call that has no reply, after ``failure`` over the pipe, and completes its outcomes."""
        try:
            if found is None:
                reply = await self._call_anew(call.argv, failure)
                found = self._decode(call.requests, call.argv, reply)
            if found[1] and found[1].incomplete:
                found = await self._complete(call.requests, *found)
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(call, error)
        else:
            self._settle(call, *found)

    def _fail(self, call: _Call, error: Exception) -> None:
        """With StoreUnavailable, whatever happened. A store that is unavailable is that for all waiting requests."""
        if isinstance(error, StoreUnavailable):
            call.entries += self._take(len(self.requests))
        else:
            if isinstance(error, RedisError):
                log.error("store script failed", error=str(error))
            else:
                log.error("unexpected store reply", error=type(error).__name__)
            error = StoreUnavailable("the store failed")
        self._settle(call, repeat(error))

    def _settle(self, call: _Call, outcomes: Iterable[Any], totals: Any = None) -> None:
        if call in self.calls:
            self.calls.remove(call)
            _settle(call.entries, outcomes, None if totals is None else (len(call.requests), totals))
            if self.requests:
                self._sender.wake()

    def end(self) -> None:
        """All requests fail."""
        error = StoreUnavailable("the tracker is stopping")
        for call in list(self.calls):
            self._fail(call, error)
        if waiting := self._take(len(self.requests)):
            _settle(waiting, repeat(error), None)

    def _take(self, count: int) -> list[_Entry]:
        """The first waiting requests, at most so many."""
        waiting = self.requests
        if len(waiting) <= count:
            taken = list(waiting)
            waiting.clear()
        else:
            taken = [waiting.popleft() for _ in range(count)]
        self._sender.waiting += len(waiting) - self._counted
        self._counted = self._checked_at = len(waiting)
        return taken

    async def call_script(self, argv: list[Argument]) -> Any:
        """Over the pipe of the last call, where that is possible."""
        state, failure = self.connection.server.state, None
        if (pipe := self._open_pipe) is not None:
            try:
                return await pipe.execute(*self._script.head, *argv)
            except (RedisError, OSError) as error:
                failure = self.connection.server.current(error, state)
        return await self._call_anew(argv, failure)

    async def _call_anew(self, argv: list[Argument], failure: Exception | None) -> Any:
        reply = await self._call(argv, failure)
        self._pipe = self.connection.server.announces.socket
        return reply

    @property
    def _open_pipe(self) -> RedisPipe | None:
        """The pipe of the last call, if it still leads to the server."""
        pipe = self._pipe
        is_open = pipe is not None and pipe is self.connection.server.announces.socket and not pipe.broken
        return pipe if is_open and not self.connection.unavailable else None


def _settle(batch: Sequence[_Entry], outcomes: Iterable[Any], whole: tuple[int, Any] | None) -> None:
    _, callbacks, contexts = zip(*batch, strict=True)
    pairs = zip(contexts, outcomes, strict=False)
    if len(set(callbacks)) == 1:
        _call_back(callbacks[0], pairs, whole, len(batch))
        return
    settled: dict[Settle, list[tuple[Any, Any]]] = defaultdict(list)
    for settle, (context, outcome) in zip(callbacks, pairs, strict=False):
        settled[settle].append((context, outcome))
    for settle, outcomes_of_one in settled.items():
        whole = _call_back(settle, iter(outcomes_of_one), whole, len(outcomes_of_one))


def _call_back(
    settle: Settle, settled: Iterator[tuple[Any, Any]], whole: tuple[int, Any] | None, number: int
) -> tuple[int, Any] | None:
    """A request whose settling raises takes no outcome from the others: these are the rest of the iterator."""
    for _ in range(number + 1):
        try:
            return settle(settled, whole)
        except Exception as error:  # as above
            log.error("cannot answer a request", exc_info=error)
    return whole


def resolve(settled: Iterable[tuple[Any, Any]], whole: tuple[int, Any] | None) -> None:
    """The Settle of requests whose context is a future: a StoreUnavailable is raised."""
    del whole
    for future, outcome in settled:
        if future.done():
            continue
        if isinstance(outcome, StoreUnavailable):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
