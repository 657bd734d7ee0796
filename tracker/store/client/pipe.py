"""A pipe to the store: the way of every command.

redis-py opens the socket (address, TLS, password, database). This protocol then takes over the transport: a command is
one write, and hiredis parses the replies as they arrive. redis-py's own layers cost as much CPU time per call as a
dozen announces.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, TypeVar, cast

import hiredis
from redis.asyncio import Redis
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as RedisTimeoutError

TIMEOUT_PARTS = 8
"""The timeout is counted in ticks of this part of it. A busy event loop delays ticks, and sockets are read between
two of them: time in which this process read no replies does not count."""
_TIMERS = 64
"""``loop_timeout`` consists of this many timers, one after another; sockets are read between them. A late timer counts
once. Opening a socket with its sign-in takes a dozen turns of the event loop, each of which may be slow."""
NO_REPLY = object()

Argument = str | bytes | int | float
_Name = TypeVar("_Name")
_Value = TypeVar("_Value")
RoundTrip = tuple[float, Exception | None]
"""(seconds, error) of a command that has ended."""


def flattened(fields: Mapping[_Name, _Value]) -> list[_Name | _Value]:
    """Names and values in turn, as commands take them."""
    return [part for pair in fields.items() for part in pair]


class _Replies:
    """Takes the place of the futures of several commands. ``future`` gets their replies; an error is the reply of its
    command."""

    __slots__ = ("_count", "_replies", "future")

    def __init__(self, future: "asyncio.Future[list[Any]]", count: int) -> None:
        self.future = future
        self._count = count
        self._replies: list[Any] = []

    def done(self) -> bool:
        return self.future.done()

    def set_result(self, reply: Any) -> None:
        self._replies.append(reply)
        if len(self._replies) == self._count:
            self.future.set_result(self._replies)

    set_exception = set_result


class Socket(asyncio.Protocol):
    """A socket that redis-py has opened and no longer manages; ``broken`` once it is closed. hiredis parses what
    arrives."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream  # keeps the transport open: its finalizer would close it
        self._transport = transport = cast(asyncio.Transport, stream.transport)
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=NO_REPLY
        )
        self.broken = transport.is_closing()
        transport.set_protocol(self)

    def close(self) -> None:
        """Closes at once: commands without a reply fail."""
        self.broken = True
        self._transport.abort()


class RedisPipe(Socket):
    """An open connection. Replies arrive in the order of the commands; a pipe that has failed stays ``broken``. A pipe
    breaks when commands wait and no reply arrives for ``timeout`` seconds: a store that answers many commands is not
    lost. ``on_round_trips`` receives every round trip, in groups."""

    def __init__(
        self, stream: asyncio.StreamWriter, timeout: float, on_round_trips: Callable[[list[RoundTrip]], None]
    ) -> None:
        self._tick_seconds = timeout / TIMEOUT_PARTS
        self._on_round_trips = on_round_trips
        self._waiting: deque[tuple[asyncio.Future[Any] | _Replies, float, int]] = deque()
        """(future, start time, tick at the start) of each command without a reply."""
        self._round_trips: list[RoundTrip] = []
        self._ticks = self._answered = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unsent: list[bytes] = []
        self.gathers = False
        """Whether the commands of one turn of the event loop go out in one write. It pays where several callers share
        the pipe; a single one already sends much at a time."""
        self.more_turns = 0
        """Turns that it waits longer while several commands arrive, such as those of tasks that begin."""
        super().__init__(stream)

    def execute(self, *command: Argument) -> "asyncio.Future[Any]":
        """Sends a command. The future gets its reply, or raises redis.exceptions.RedisError."""
        future = self._loop.create_future()
        if self.broken:
            future.set_exception(RedisConnectionError("the pipe is broken"))
            return future
        # A value that cannot be packed raises here, before anything waits for its reply.
        packed = hiredis.pack_command(command)  # type: ignore[arg-type]  # any number of arguments
        self._waiting.append((future, perf_counter(), self._ticks))
        self._write(packed)
        return future

    def execute_all(self, commands: Sequence[tuple[Argument, ...]]) -> "asyncio.Future[list[Any]]":
        """Sends several commands, at least one, in one write. The future gets their replies; an error is the reply of
        its command. A future for each command would take as much time again."""
        replies = _Replies(self._loop.create_future(), len(commands))
        if self.broken:
            error = RedisConnectionError("the pipe is broken")
            replies.future.set_result([error] * len(commands))
            return replies.future
        packed = b"".join([hiredis.pack_command(command) for command in commands])  # type: ignore[arg-type]
        self._waiting.extend([(replies, perf_counter(), self._ticks)] * len(commands))
        self._write(packed)
        return replies.future

    def _write(self, packed: bytes) -> None:
        if self.gathers:
            if not self._unsent:
                self._loop.call_soon(self._send, 1, self.more_turns)
            self._unsent.append(packed)
        else:
            self._transport.write(packed)
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick_seconds, self._tick)

    @property
    def in_flight(self) -> int:
        """Commands without a reply."""
        return len(self._waiting)

    def _send(self, seen: int, more_turns: int) -> None:
        number = len(self._unsent)
        if more_turns and number > 1:  # after a turn without another command, one more
            self._loop.call_soon(self._send, number, more_turns - 1 if number > seen else 0)
            return
        unsent, self._unsent = self._unsent, []
        if not self.broken:
            self._transport.write(b"".join(unsent))

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not NO_REPLY:
                future, began, _ = waiting.popleft()
                error = reply if isinstance(reply, Exception) else None
                if not waiting or waiting[0][0] is not future:  # not one of several commands before the last
                    self._round_trips.append((perf_counter() - began, error))
                if future.done():  # the caller was cancelled
                    continue
                if error is None:
                    future.set_result(reply)
                else:
                    future.set_exception(error)
        except (InvalidResponse, IndexError):  # not a reply, or a reply to nothing
            self.close()
        self._answered = self._ticks

    def _tick(self) -> None:
        """Reports the round trips, and ends the pipe when the oldest command is overdue."""
        self._timer = None
        self._ticks += 1
        self._report()
        if not self._waiting:
            return
        if self._ticks - max(self._waiting[0][2], self._answered) > TIMEOUT_PARTS:
            self._fail(self._waiting.popleft(), RedisTimeoutError("no reply in time"))
            self.close()
        else:
            self._timer = self._loop.call_later(self._tick_seconds, self._tick)

    def _fail(self, waiting: "tuple[asyncio.Future[Any] | _Replies, float, int]", error: Exception) -> None:
        future, began, _ = waiting
        if not future.done():
            if not self._waiting or self._waiting[0][0] is not future:
                self._round_trips.append((perf_counter() - began, error))
            future.set_exception(error)

    def _report(self) -> None:
        finished, self._round_trips = self._round_trips, []
        if finished:
            self._on_round_trips(finished)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.broken = True
        while self._waiting:
            self._fail(self._waiting.popleft(), RedisConnectionError("the store closed the connection"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._report()


@asynccontextmanager
async def loop_timeout(seconds: float) -> AsyncIterator[None]:
    """As ``asyncio.timeout``: raises TimeoutError after ``seconds`` in which the event loop ran. A timer of asyncio is
    late when the event loop was busy, and fires before the sockets are read. After a second spent on a flood, every
    call would time out although its reply waits in the socket."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as limit:

        def wait(parts: int) -> None:
            nonlocal timer
            if parts:
                timer = loop.call_later(seconds / _TIMERS, wait, parts - 1)
            else:
                limit.reschedule(loop.time())

        wait(_TIMERS)
        try:
            yield
        finally:
            timer.cancel()


async def open_stream(client: Redis) -> asyncio.StreamWriter:
    """A socket that redis-py has opened and no longer manages. The caller limits the time."""
    connection: Any = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py's
    while True:
        try:
            await connection.connect()
            break
        except RedisTimeoutError:  # its timer also counts time in which this process was busy
            await asyncio.sleep(0)
        except BaseException:  # cancelled while it signs in
            await connection.disconnect(nowait=True)
            raise
    stream, connection._writer, connection._reader = connection._writer, None, None
    return cast(asyncio.StreamWriter, stream)
