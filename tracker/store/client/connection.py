"""The line to the store: one client, its errors made ours, and whether anybody answers.

When a call finds nobody, the store counts as away: every further call fails at once (StoreAway) instead of
waiting its turn to time out, until watch() has got an answer again. redis-py's own retries are off: a
script that writes must not be sent twice behind our back, and a peer that asks again does no harm.

Calls share at most MOST_AT_ONCE connections, so that a flood of scrapes queues here, where it is bounded,
and not as thousands of sockets at the store.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    InvalidResponse,
    MasterDownError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tracker.errors import StoreAway
from tracker.store.line import Line, open_line
from tracker.store.sentinel import MasterPool, Word, open_pool
from tracker.store.server_url import bad_url, check_ca_file, parse_url
from tracker.store.subscription import Subscription, open_subscription

MOST_AT_ONCE = 16
MOST_UNDER_WAY = 2048
_NOBODY = (RedisConnectionError, RedisTimeoutError, InvalidResponse, OSError)
"""No answer, or none that makes sense. LOADING and a password that is no longer right count here too."""
_DEMOTED = (ReadOnlyError, MasterDownError)
"""A replica says so of itself."""
_REFUSALS = (ReadOnlyError, ClusterDownError, TryAgainError)
_REFUSAL_CODES = ("BUSY ", "MISCONF ", "NOREPLICAS ")
_PROBE_SECONDS = 0.25
FOLLOW_SECONDS = 0.25
"""How often sentinels are asked whether the store is still where it was."""

_Opened = TypeVar("_Opened", Line, Subscription)
Argument = str | bytes | int | float
Messages = AsyncIterator[tuple[bytes, bytes]]
"""(channel, payload)"""
Heard = Callable[[str, float], None]
"""(outcome, seconds) of a round trip; the outcome is one of OUTCOMES."""
OUTCOMES = ("answered", "error", "refused", "timeout", "unreachable")
"""``error``: the command's own fault; ``refused``: the store is there, but takes no work for now."""

log = structlog.get_logger("tracker.store")


def connect(
    url: str,
    *,
    connect_timeout: float,
    tls_ca_file: str | None = None,
    sentinel_login: tuple[str | None, str | None] = (None, None),
) -> Redis:
    """A client for ``url`` (server_url.py says what may be one) that never retries; raises StartupError for a bad URL
    or a ``tls_ca_file`` that is not there or has no use.

    It waits for answers without end: Connection has the timeout. redis-py's own would start a task for
    each command (on Python 3.11), and lose the cancellation of a command that was just being sent.
    """
    sentinel_url = parse_url(url)
    options: dict[str, Any] = {
        "socket_timeout": None,
        "socket_connect_timeout": connect_timeout,
        "retry": Retry(NoBackoff(), 0),
        # RESP3 would switch on redis-py's maintenance notifications, and with them it takes idle
        # connections out of its pool without looking whether the server has closed them.
        "protocol": 2,
    }
    if tls_ca_file:
        check_ca_file(tls_ca_file, url)
        options["ssl_ca_certs"] = tls_ca_file
    if sentinel_url is not None:
        return Redis.from_pool(open_pool(sentinel_url, sentinel_login, options))
    try:
        client: Redis = Redis.from_url(url, **options)
    except (ValueError, TypeError) as error:
        raise bad_url() from error
    return client


class Connection:
    """Commands to the store, and the news of it going and coming back.

    ``timeout`` (s) bounds each call, ``heard`` is told of each round trip how it ended and how long it took.
    """

    def __init__(self, client: Redis, *, timeout: float, heard: Heard | None = None) -> None:
        self._client = client
        self._timeout = timeout
        self._heard = heard
        self._losses = 0
        self._gone = asyncio.Event()
        self._here = asyncio.Event()
        self._here.set()
        self._on_return: list[Callable[[], Awaitable[None]]] = []
        self._greeter: asyncio.Task[Any] | None = None
        self._lines = asyncio.Semaphore(MOST_AT_ONCE)
        self._under_way = 0
        self._direct: Line | None = None
        self._opening = asyncio.Lock()
        self._subscriptions: set[Subscription] = set()
        pool: Any = client.connection_pool
        self._pool = pool if isinstance(pool, MasterPool) else None
        if self._pool is not None:
            self._pool.on_move = self._moved

    @property
    def client(self) -> Redis:
        """For subscriptions and pipelines; its errors are redis.exceptions'."""
        return self._client

    @property
    def away(self) -> bool:
        return self._gone.is_set()

    def keyspace_channel(self, key: str) -> str:
        """The channel of keyspace notifications for ``key`` in this connection's database."""
        return f"__keyspace@{self._client.connection_pool.connection_kwargs.get('db') or 0}__:{key}"

    async def until_back(self) -> None:
        """Returns when the store is not away, which may be at once."""
        await self._here.wait()

    def on_return(self, callback: Callable[[], Awaitable[None]]) -> None:
        """``callback`` is awaited when the store is back, before any other command gets through."""
        self._on_return.append(callback)

    async def command(self, *args: Argument) -> Any:
        """One command; raises StoreAway when nobody answers, else redis.exceptions.RedisError."""
        return await self._call(
            lambda: self._client.execute_command(*args)  # type: ignore[no-untyped-call]  # redis-py's
        )

    async def pipeline(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Several commands in one round trip, not as one transaction; an error stands in its command's place.

        Raises StoreAway when nobody answers, or when the store refused any of them for now.
        """
        if not commands:
            return []
        pipe = self._client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        answers = list(await self._call(lambda: pipe.execute(raise_on_error=False)))
        for answer in answers:
            if isinstance(answer, Exception):
                self._raise_if_away(answer)
        return answers

    async def direct(self, *args: Argument) -> Any:
        """One command on a line kept for such calls, so that it waits for no other; raises as ``command`` does."""
        self._check_here()
        try:
            return await self._timed(lambda: self._ask(args))
        except (RedisError, OSError) as error:
            self._raise_if_away(error)
            raise

    async def _ask(self, command: tuple[Argument, ...]) -> Any:
        async with self._opening:
            line = self._direct
            if line is None or line.broken:
                self._direct = line = await self._opened(open_line)
        try:
            return await line.ask(*command)
        except asyncio.CancelledError:  # or no answer in time: who knows whether one will ever come
            line.close()
            raise

    async def _opened(self, opening: Callable[[Redis], Awaitable[_Opened]]) -> _Opened:
        """Raises StoreAway when the store was lost or has moved meanwhile: what was opened may lead to where it was."""
        losses = self._losses
        opened = await opening(self._client)
        if losses != self._losses:
            opened.close()
            raise StoreAway("the store was lost just now")
        return opened

    async def _call(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """One round trip on one of the lines. Whoever waits for a line fails with the call before it."""
        self._check_here()
        if self._under_way >= MOST_UNDER_WAY:
            raise StoreAway("too much waits for the store")
        self._under_way += 1
        try:
            async with self._lines:
                self._check_here()
                return await self._timed(call)
        except (RedisError, OSError) as error:
            self._raise_if_away(error)
            raise
        finally:
            self._under_way -= 1

    async def _timed(self, call: Callable[[], Awaitable[Any]]) -> Any:
        began = time.perf_counter()
        outcome = ""
        try:
            async with asyncio.timeout(self._timeout):
                answer = await call()
            outcome = "answered"
            return answer
        except (RedisError, OSError) as error:
            outcome = _outcome(error)
            raise
        finally:
            # Of what was cancelled nobody knows how it would have ended.
            if self._heard is not None and outcome:
                self._heard(outcome, time.perf_counter() - began)

    def _check_here(self) -> None:
        if self._gone.is_set() and asyncio.current_task() is not self._greeter:
            raise StoreAway("the store is away")

    def _raise_if_away(self, error: Exception) -> None:
        """Raises StoreAway for an error that says so, and remembers it when nobody answered."""
        demoted = isinstance(error, _DEMOTED)
        if isinstance(error, _NOBODY) or (demoted and self._pool is not None):
            self._lost(error)
            raise StoreAway("the store does not answer") from error
        if demoted and self._direct is not None:
            self._direct.close()  # where its URL leads there may be another server by now
        if _is_refusal(error):
            raise StoreAway("the store refuses work") from error

    def _lost(self, error: Exception) -> None:
        """Everybody has to begin anew: an end that vanished without a word would be listened to for ever."""
        self._losses += 1
        if not self._gone.is_set():
            self._gone.set()
            self._here.clear()
            log.warning("store lost", error=type(error).__name__)
        if self._direct is not None:
            self._direct.close()
        for subscription in list(self._subscriptions):
            subscription.close()

    def _moved(self) -> None:
        log.warning("another server is the store's master now", address=self.master)
        self._lost(RedisConnectionError("the store has moved"))

    @property
    def master(self) -> str:
        """Where the store is, as sentinels have said; empty where there are none."""
        address = self._pool.master_address if self._pool is not None else None
        return f"{address[0]}:{address[1]}" if address else ""

    async def sentinels(self) -> list[Word] | None:
        """What each of the sentinels says; None where there are none."""
        return None if self._pool is None else await self._pool.words()

    async def follow(self) -> None:
        """Runs until cancelled, where sentinels say where the store is: leaves a server that is its master no longer.

        That server may not know yet. What it would go on to take is lost.
        """
        while self._pool is not None:
            await asyncio.sleep(FOLLOW_SECONDS)
            with suppress(RedisError, OSError):  # nobody knows of another
                await self._pool.get_master_address()

    @asynccontextmanager
    async def subscription(
        self, *, channels: Sequence[str] = (), patterns: Sequence[str] = ()
    ) -> AsyncIterator[Messages]:
        """Messages published on ``channels`` and ``patterns`` (bytes payload with its channel), from now on.

        Leaving the block ends the subscription. Raises StoreAway when the line breaks: what is published until
        the next subscription is lost, so whoever listens must have another way to the truth. Raises
        redis.exceptions.ResponseError when the store does not allow it.
        """
        try:
            async with asyncio.timeout(self._timeout):
                subscription = await self._opened(open_subscription)
                self._subscriptions.add(subscription)
                try:
                    if channels:
                        await subscription.subscribe("SUBSCRIBE", *channels)
                    if patterns:
                        await subscription.subscribe("PSUBSCRIBE", *patterns)
                except BaseException:
                    self._end(subscription)
                    raise
            try:
                yield subscription
            finally:
                self._end(subscription)
        except ResponseError:
            raise
        except (RedisError, OSError) as error:
            raise StoreAway("the subscription broke") from error

    def _end(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)
        subscription.close()

    async def watch(self) -> None:
        """Runs until cancelled: while the store is away, asks for it every quarter of a second."""
        while True:
            await self._gone.wait()
            started = asyncio.get_running_loop().time()
            while not await self._returned():
                await asyncio.sleep(_PROBE_SECONDS)
            log.info("store is back", away_seconds=round(asyncio.get_running_loop().time() - started, 1))

    async def _returned(self) -> bool:
        """Asks once; when the store answers, whoever waits for its return goes first."""
        self._greeter = asyncio.current_task()
        try:
            # What sentinels have to say now should not be news to the connections made next.
            if self._pool is not None:
                await self._pool.get_master_address()
            losses = self._losses
            # None of the idle connections is worth trying: each dead one would cost a probe. Those in use may lead to
            # a server that is no longer the one.
            await self._client.connection_pool.disconnect(inuse_connections=self._pool is not None)
            await self._greet()
            for callback in self._on_return:
                await self._tell(callback)
        except (StoreAway, RedisError, OSError):
            return False
        finally:
            self._greeter = None
        if losses != self._losses:  # what was greeted is left already
            return False
        self._gone.clear()
        self._here.set()
        return True

    async def _greet(self) -> None:
        with suppress(ResponseError):  # an answer is an answer
            await self.command("PING")

    @staticmethod
    async def _tell(callback: Callable[[], Awaitable[None]]) -> None:
        try:
            await callback()
        except RedisError as error:  # not a store that is away, but one that dislikes what it was told
            log.error("greeting the store failed", error=str(error))

    async def close(self) -> None:
        if self._direct is not None:
            self._direct.close()
        await self._client.aclose()


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, _REFUSALS) or str(error).startswith(_REFUSAL_CODES)


def _outcome(error: Exception) -> str:
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return "timeout"
    if isinstance(error, _NOBODY):
        return "unreachable"
    if isinstance(error, NoScriptError):  # the script is sent along the next time: nothing is wrong
        return "answered"
    return "refused" if _is_refusal(error) else "error"
