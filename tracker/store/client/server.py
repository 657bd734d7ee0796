"""A server of the store, and the sockets to it that all its callers share.

redis-py opens each socket: it knows the address, TLS, password and database. Then the socket is ours: commands go over
a pipe (pipe.py), messages come over a subscription (subscription.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar

from redis.asyncio import Redis
from redis.exceptions import (
    AskError,
    ClusterDownError,
    InvalidResponse,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument, RedisPipe, RoundTrip, Socket, loop_timeout, open_stream
from tracker.store.client.sentinel import MasterPool
from tracker.store.client.subscription import Subscription
from tracker.store.client.url import Address

MAX_CALLS = 2048
"""Calls of a connection that wait, for their turn or for their replies."""
MAX_COMMANDS = 32
"""Commands on one pipe at a time: announces wait for those that the server has read."""

NO_REPLY = (RedisConnectionError, RedisTimeoutError, InvalidResponse, OSError)
"""No reply, or no valid reply. LOADING and a password that has changed are connection errors too."""
DEMOTED = (ReadOnlyError, MasterDownError)
"""The errors of a server that has become a replica."""
OUTCOMES = ("answered", "error", "refused", "timeout", "unreachable")
"""``error``: the command is wrong; ``refused``: the store answers but does not accept work now."""
_REFUSALS = (ReadOnlyError, ClusterDownError, TryAgainError, AskError)
_REFUSAL_CODES = ("BUSY ", "MISCONF ", "NOREPLICAS ")
_REPEATED = (NoScriptError, MovedError)
"""The call is repeated, with the script or at another node."""

OnRoundTrip = Callable[[str, float], None]
"""(outcome, seconds) of a round trip; the outcome is one of OUTCOMES."""


_SocketT = TypeVar("_SocketT", bound=Socket)


class Shared(Generic[_SocketT]):
    """A socket that is opened when a caller needs it, and again after it broke. At most ``max_calls`` wait for replies
    on it; others wait for their turn."""

    def __init__(self, open_socket: Callable[[], Awaitable[_SocketT]], max_calls: int = MAX_CALLS) -> None:
        self._open = open_socket
        self.turns = asyncio.Semaphore(max_calls)
        self._opening = asyncio.Lock()
        self._failures = 0
        self.socket: _SocketT | None = None
        """The last one. It may be broken."""

    async def opened(self) -> _SocketT:
        """Raises what opening raises, and StoreUnavailable when another caller's attempt failed meanwhile: callers that
        wait do not try one after the other."""
        socket, failures = self.socket, self._failures
        if socket is not None and not socket.broken:
            return socket
        async with self._opening:
            if self.socket is None or self.socket.broken:
                if failures != self._failures:
                    raise StoreUnavailable("the store does not answer")
                try:
                    self.socket = await self._open()
                except Exception:
                    self._failures += 1
                    raise
            return self.socket

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()


class Server:
    """``timeout`` (s) limits each reply, and the time that opening a socket takes. ``on_round_trip`` receives the
    outcome and duration of each round trip."""

    def __init__(
        self, client: Redis, *, timeout: float, on_round_trip: OnRoundTrip | None = None, address: Address | None = None
    ) -> None:
        self.client = client
        self.timeout = timeout
        self._on_round_trip = on_round_trip
        self._address = address
        self.losses = 0
        """How often it was lost: what began before the last time may be about another server."""
        self.prefixes: set[str] = set()
        """The prefixes whose keys it serves."""
        self.announces = Shared(lambda: self._opened(self._pipe))
        """For commands that peers wait for: no reply of another command delays theirs."""
        self.commands = Shared(lambda: self._opened(partial(self._pipe, more_turns=3)), MAX_COMMANDS)
        self.subscription = Shared(lambda: self._opened(Subscription))

    @property
    def address(self) -> Address | None:
        """None where only the URL knows it."""
        pool: Any = self.client.connection_pool
        return pool.master_address if isinstance(pool, MasterPool) else self._address

    @property
    def state(self) -> tuple["Server", int]:
        """Changes with each loss, and differs from that of any other server."""
        return self, self.losses

    def current(self, error: Exception, state: tuple["Server", int]) -> Exception:
        """``error`` of a command that was sent in ``state``. That a server gave no reply which was lost or left since
        says nothing about this one: StoreUnavailable."""
        is_old = isinstance(error, NO_REPLY) and state != self.state
        return StoreUnavailable("the store was lost meanwhile") if is_old else error

    async def execute(self, *command: Argument) -> Any:
        """One command; raises redis.exceptions.RedisError, OSError, or StoreUnavailable."""
        return await (await self.commands.opened()).execute(*command)

    def serve(self, prefix: str) -> None:
        self.prefixes.add(prefix)
        if self.announces.socket is not None:
            self.announces.socket.gathers = len(self.prefixes) > 1

    def _pipe(self, stream: asyncio.StreamWriter, more_turns: int = 0) -> RedisPipe:
        pipe = RedisPipe(stream, self.timeout, self._note_round_trips)
        pipe.gathers, pipe.more_turns = bool(more_turns) or len(self.prefixes) > 1, more_turns
        return pipe

    async def _opened(self, socket_on: Callable[[asyncio.StreamWriter], _SocketT]) -> _SocketT:
        """Raises StoreUnavailable when the server was lost meanwhile: the socket may lead to another one."""
        losses, began = self.losses, perf_counter()
        try:
            async with loop_timeout(self.timeout):
                socket = socket_on(await open_stream(self.client))
        except (RedisError, OSError) as error:
            self._note_round_trips([(perf_counter() - began, error)])
            raise
        if losses != self.losses:
            socket.close()
            raise StoreUnavailable("the store was lost just now")
        return socket

    def _note_round_trips(self, finished: Sequence[RoundTrip]) -> None:
        if self._on_round_trip is not None:
            for seconds, error in finished:
                self._on_round_trip(outcome_of(error), seconds)

    def lose(self) -> None:
        """A server that vanished silently would never close its sockets."""
        self.losses += 1
        self.close_sockets()

    def close_sockets(self) -> None:
        for shared in (self.announces, self.commands, self.subscription):
            shared.close()

    async def close(self) -> None:
        """Also of a socket that is being opened."""
        self.lose()
        await self.client.aclose()


# What an error of a command means: no reply, no work at the moment, or a wrong command


def is_missing_function(error: Exception) -> bool:
    """Whether FCALL named a function that the server does not have, and so ran nothing."""
    return str(error) == "Function not found"


def refused_writes(error: BaseException | None) -> str:
    """Why the store refuses writes, if ``error`` of a write says so; else empty. A fixed text for /ready and logs."""
    if str(error).startswith("MISCONF "):
        return "disk full"
    reasons = ((ReadOnlyError, "read-only"), (NoPermissionError, "no permission"), (OutOfMemoryError, "out of memory"))
    return next((reason for kind, reason in reasons if isinstance(error, kind)), "")


def is_refusal(error: Exception) -> bool:
    return isinstance(error, _REFUSALS) or str(error).startswith(_REFUSAL_CODES)


def outcome_of(error: Exception | None) -> str:
    """One of OUTCOMES."""
    if error is None or isinstance(error, _REPEATED) or is_missing_function(error):
        return "answered"
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return "timeout"
    if isinstance(error, NO_REPLY):
        return "unreachable"
    return "refused" if is_refusal(error) else "error"
