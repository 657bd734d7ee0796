"""The connection to the store: one client, its errors as StoreUnavailable, and whether the store answers.

When a call gets no answer, ``unavailable`` is set: further calls fail at once, instead of timing out one by one, until
watch() has reached the store again. redis-py's own retries are off: a script that writes must not be sent twice
unnoticed.

Commands share MAX_SOCKETS sockets, or with several prefixes a pipe. A flood of scrapes queues here, and is bounded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, TypeVar

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument, RedisPipe, RoundTrip, open_pipe
from tracker.store.client.reply_errors import DEMOTED, NO_REPLY, is_refusal, outcome_of
from tracker.store.client.sentinel import MasterPool, SentinelReply, open_pool
from tracker.store.client.shared_socket import SharedSocket
from tracker.store.client.subscription import (
    Messages,
    Subscriber,
    Subscription,
    open_subscription,
    subscribed,
)
from tracker.store.client.timed_call import OnRoundTrip, timed_call
from tracker.store.client.url import Address, bad_url, check_ca_file, parse_url

MAX_SOCKETS = 16
MAX_CALLS = 2048
PROBE_SECONDS = 0.25
"""How often an unavailable store is pinged."""
FOLLOW_SECONDS = 0.25
"""How often the sentinels are asked for the master."""

_Opened = TypeVar("_Opened", RedisPipe, Subscription)

log = structlog.get_logger("tracker.store")


def connect(
    url: str,
    *,
    connect_timeout: float,
    tls_ca_file: str | None = None,
    sentinel_login: tuple[str | None, str | None] = (None, None),
) -> Redis:
    """A client for ``url`` (see url.py) that never retries. Raises StartupError for a bad URL or CA file.

    Replies are what the server sends (bytes, int, lists of them), as on the pipe: redis-py converts none. Connection
    has the timeout: redis-py's own starts a task for each command on Python 3.11, and loses cancellations.
    """
    sentinel_url = parse_url(url)
    options: dict[str, Any] = {
        "socket_timeout": None,
        "socket_connect_timeout": connect_timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,  # with RESP3 redis-py reuses idle connections that the server has closed
    }
    if tls_ca_file:
        check_ca_file(tls_ca_file, url)
        options["ssl_ca_certs"] = tls_ca_file
    try:
        if sentinel_url is None:
            client = Redis.from_url(url, **options)
        else:
            client = Redis.from_pool(open_pool(sentinel_url, sentinel_login, options))
    except (ValueError, TypeError) as error:
        raise bad_url() from error
    client.response_callbacks.clear()
    return client


class Connection:
    """Sends commands to the store, and tracks whether it is available.

    ``timeout`` (s) limits each call. ``on_round_trip`` receives the outcome and duration of each round trip.
    """

    def __init__(self, client: Redis, *, timeout: float, on_round_trip: OnRoundTrip | None = None) -> None:
        self._client = client
        self._timeout = timeout
        self._on_round_trip = on_round_trip
        self._timed = partial(timed_call, timeout=timeout, on_round_trip=on_round_trip)
        self._prefixes: set[str] = set()
        self._losses = 0
        self._lost_at = 0.0
        self._lost_event = asyncio.Event()
        self._available = asyncio.Event()
        self._available.set()
        self._on_reconnect: list[Callable[[], Awaitable[None]]] = []
        self._probe_task: asyncio.Task[Any] | None = None
        self._sockets = asyncio.Semaphore(MAX_SOCKETS)
        self._calls = 0
        self.unavailable = False
        """Whether the last call found no store. Commands fail at once until ``watch`` has reached it again."""
        self.pipe: RedisPipe | None = None
        """The pipe of ``direct``, once it is open. It may be broken."""
        self._opening = asyncio.Lock()
        self._command_pipe = SharedSocket[RedisPipe]()
        self._subscription = SharedSocket[Subscription]()
        self._subscribers: set[Subscriber] = set()
        pool: Any = client.connection_pool
        self._log = log
        self._pool = pool if isinstance(pool, MasterPool) else None
        if self._pool is not None:
            self._pool.on_move = self._moved

    def of(self, prefix: str) -> "Connection":
        """The connection for the keys under ``prefix``: one server has them all."""
        self._prefixes.add(prefix)
        return self

    @property
    def server(self) -> object:
        """The same for all connections to one server."""
        return self

    @property
    def _is_shared(self) -> bool:
        """Whether the keys under several prefixes are read over the same pipes."""
        return len(self._prefixes) > 1

    @property
    def nodes(self) -> tuple[Address, ...]:
        """The servers of the cluster, as far as they are known; none without a cluster."""
        return ()

    @property
    def client(self) -> Redis:
        """The redis-py client; raises redis.exceptions.RedisError."""
        return self._client

    def keyspace_channel(self, key: str) -> str:
        """The channel of keyspace notifications for ``key`` in this connection's database."""
        return f"__keyspace@{self._client.connection_pool.connection_kwargs.get('db') or 0}__:{key}"

    async def until_available(self) -> None:
        """Waits until the store is available."""
        await self._available.wait()

    def on_reconnect(self, callback: Callable[[], Awaitable[None]]) -> None:
        """``callback`` is awaited when the store is back, before any other command is sent."""
        self._on_reconnect.append(callback)

    async def command(self, *args: Argument) -> Any:
        """One command; raises StoreUnavailable when the store does not answer, else redis.exceptions.RedisError."""
        if self._is_shared:
            return await self._call(lambda: self._piped(args))
        return await self._call(
            lambda: self._timed(
                lambda: self._client.execute_command(*args)  # type: ignore[no-untyped-call]  # redis-py's
            )
        )

    async def pipeline(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Several commands in one round trip, without a transaction; a failed command's reply is its error.

        Raises StoreUnavailable when the store does not answer, or does not accept work now.
        """
        answers = await self.send([(self, command) for command in commands])
        for away in (answer for answer in answers if isinstance(answer, StoreUnavailable)):
            raise away
        return answers

    async def send(self, commands: Sequence[tuple["Connection", tuple[Argument, ...]]]) -> list[Any]:
        """The same for several connections to this server. What one that is away gets is a StoreUnavailable."""
        answers: list[Any] = [StoreUnavailable("the store is unavailable")] * len(commands)
        asked = [number for number, (connection, _) in enumerate(commands) if connection._is_here]
        if asked:
            found = await commands[asked[0]][0]._replies([commands[number][1] for number in asked])
            for number, answer in zip(asked, found, strict=True):
                answers[number] = commands[number][0]._checked(answer)
        return answers

    async def _replies(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """An error is the reply of its command."""

        def send() -> Awaitable[Any]:
            pipe = self._client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            return pipe.execute(raise_on_error=False)

        call = (lambda: self._all_piped(commands)) if self._is_shared else (lambda: self._timed(send))
        try:
            return list(await self._call(call))
        except StoreUnavailable as error:
            return [error] * len(commands)

    def _checked(self, answer: Any) -> Any:
        """StoreUnavailable in the place of an error that means it."""
        try:
            if isinstance(answer, Exception):
                self.raise_if_unavailable(answer)
        except StoreUnavailable as error:
            return error
        return answer

    async def _piped(self, command: tuple[Argument, ...]) -> Any:
        return await (await self._command_pipe.opened(self._new_pipe)).execute(*command)

    async def _all_piped(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """An error is the reply of its command."""
        return await (await self._command_pipe.opened(self._new_pipe)).execute_all(commands)

    async def direct(self, *args: Argument) -> Any:
        """One command on the pipe, so that it waits for no other caller; raises as ``command`` does."""
        self._check_here()
        try:
            pipe = self.pipe
            if pipe is None or pipe.broken:
                pipe = await self._open_pipe()
            return await pipe.execute(*args)
        except (RedisError, OSError) as error:
            self.raise_if_unavailable(error)
            raise

    async def _open_pipe(self) -> RedisPipe:
        async with self._opening:
            self._check_here()  # it may have been lost while another caller tried
            if self.pipe is None or self.pipe.broken:
                self.pipe = await self._new_pipe()
            return self.pipe

    async def _new_pipe(self) -> RedisPipe:
        pipe: RedisPipe = await self._timed(
            lambda: self._opened(lambda client: open_pipe(client, self._timeout, self._note_round_trips)),
            ok="",
        )
        pipe.gathers = self._is_shared
        return pipe

    def _note_round_trips(self, finished: Sequence[RoundTrip]) -> None:
        if self._on_round_trip is not None:
            for seconds, error in finished:
                self._on_round_trip(outcome_of(error), seconds)

    async def _opened(self, opening: Callable[[Redis], Awaitable[_Opened]]) -> _Opened:
        """Raises StoreUnavailable when the store was lost meanwhile: what was opened may lead to another server."""
        losses = self._losses
        opened = await opening(self._client)
        if losses != self._losses:
            opened.close()
            raise StoreUnavailable("the store was lost just now")
        return opened

    async def _call(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """One of MAX_SOCKETS round trips at a time. Calls that wait for their turn fail when the store is lost."""
        self._check_here()
        if self._calls >= MAX_CALLS:
            raise StoreUnavailable("too many calls wait for the store")
        self._calls += 1
        try:
            async with self._sockets:
                self._check_here()
                return await call()
        except (RedisError, OSError) as error:
            self.raise_if_unavailable(error)
            raise
        finally:
            self._calls -= 1

    @property
    def _is_here(self) -> bool:
        return not self.unavailable or asyncio.current_task() is self._probe_task

    def _check_here(self) -> None:
        if not self._is_here:
            raise StoreUnavailable("the store is unavailable")

    def raise_if_unavailable(self, error: Exception) -> None:
        """Raises StoreUnavailable where ``error`` means that. Removes a command's arguments from the error's text."""
        text, cut, _ = str(error).partition(", with args beginning with")
        if cut:
            error.args = (text,)
        demoted = isinstance(error, DEMOTED)
        if isinstance(error, NO_REPLY) or (demoted and self._pool is not None):
            self._lost(error)
            raise StoreUnavailable("the store does not answer") from error
        if demoted:
            self._close_sockets()  # the URL may lead to another server now
        if is_refusal(error):
            raise StoreUnavailable("the store refuses work") from error

    def _lost(self, error: Exception) -> None:
        """Closes the pipes and the subscription: a server that vanished silently would never close them."""
        self._losses += 1
        self._set_unavailable(error)
        self._close_sockets()

    def _set_unavailable(self, error: Exception) -> None:
        if not self.unavailable:
            self.unavailable = True
            self._lost_at = asyncio.get_running_loop().time()
            self._lost_event.set()
            self._available.clear()
            self._log.warning("store lost", error=type(error).__name__)

    def was_lost_before(self, other: "Connection") -> bool:
        """Whether it is unavailable, and has been since before ``other`` was lost last."""
        return self.unavailable and self._lost_at < other._lost_at

    def _moved(self) -> None:
        log.warning("store failover", address=self.master)
        self._lost(RedisConnectionError("the store has moved"))

    @property
    def master(self) -> str:
        """The address of the master that the sentinels name; empty without sentinels."""
        address = self._pool.master_address if self._pool is not None else None
        return f"{address[0]}:{address[1]}" if address else ""

    async def sentinels(self) -> list[SentinelReply] | None:
        """The reply of each sentinel; None without sentinels."""
        return None if self._pool is None else await self._pool.replies()

    async def follow(self) -> None:
        """With sentinels: leaves a server that is no longer the master, until cancelled.

        That server may not know yet, and what it still accepts is lost.
        """
        while self._pool is not None:
            await asyncio.sleep(FOLLOW_SECONDS)
            with suppress(RedisError, OSError):  # no sentinel names a master
                await self._pool.get_master_address()

    def subscription(
        self, *, channels: Sequence[str] = (), patterns: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[Messages]:
        """A block with the messages of ``channels`` and ``patterns``; see ``subscribed``."""
        opened = partial(self._subscription.opened, lambda: self._opened(open_subscription))
        return subscribed(opened, self._timeout, self._subscribers, channels, patterns)

    async def watch(self) -> None:
        """Pings an unavailable store every quarter of a second, until cancelled."""
        while True:
            await self._lost_event.wait()
            while not await self.reconnect():
                await asyncio.sleep(PROBE_SECONDS)

    async def reconnect(self) -> bool:
        """Pings once. When the store answers, runs the callbacks of ``on_reconnect`` first."""
        self._probe_task = asyncio.current_task()
        try:
            # So that the next connections find the master unchanged.
            if self._pool is not None:
                await self._pool.get_master_address()
            losses = self._losses
            await self._disconnect_idle()
            await self._ping()
            for callback in self._on_reconnect:
                await self._run_callback(callback)
        except (StoreUnavailable, RedisError, OSError):
            return False
        finally:
            self._probe_task = None
        if losses != self._losses:  # lost again meanwhile
            return False
        self.unavailable = False
        self._lost_event.clear()
        self._available.set()
        away = asyncio.get_running_loop().time() - self._lost_at
        self._log.info("store is back", away_seconds=round(away, 1))
        return True

    async def _disconnect_idle(self) -> None:
        """Each dead one would cost a probe. With sentinels, those in use may lead to another server."""
        await self._client.connection_pool.disconnect(inuse_connections=self._pool is not None)

    async def _ping(self) -> None:
        with suppress(ResponseError):  # any reply proves that the store answers
            await self.command("PING")

    @staticmethod
    async def _run_callback(callback: Callable[[], Awaitable[None]]) -> None:
        try:
            await callback()
        except RedisError as error:  # the store is available, but refuses what the callback sent
            log.error("reconnect callback failed", error=str(error))

    def _close_sockets(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
        self._command_pipe.close()
        self._subscription.close()

    async def close(self) -> None:
        self._close_sockets()
        await self._client.aclose()
