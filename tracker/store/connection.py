"""The line to the store: one client, its errors made ours, and whether anybody answers.

When a call finds nobody, the store counts as away: every further call fails at once (StoreAway) instead of
waiting its turn to time out, until watch() has got an answer again. redis-py's own retries are off: a
script that writes must not be sent twice behind our back, and a peer that asks again does no harm.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from tracker.errors import StartupError, StoreAway

_AWAY = (ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, OSError)
_OLDEST = {"valkey": (7, 2), "redis": (7, 0)}
_PROBE_SECONDS = 0.25

Messages = AsyncIterator[tuple[bytes, bytes]]
"""(channel, payload)"""

log = structlog.get_logger("tracker.store")


def connect(url: str, *, timeout: float, connect_timeout: float, tls_ca_file: str | None = None) -> "Redis[bytes]":
    """A client for ``url`` (redis://, rediss:// or unix://) that never retries; raises StartupError for a bad URL."""
    options: dict[str, Any] = {"ssl_ca_certs": tls_ca_file} if tls_ca_file and url.startswith("rediss:") else {}
    try:
        client: Redis[bytes] = Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=connect_timeout,
            retry=Retry(NoBackoff(), 0),
            **options,
        )
    except (ValueError, TypeError) as error:
        raise StartupError(
            "TRACKER_REDIS__URL is not a URL of a store: use redis://, rediss:// or unix://"
        ) from error
    return client


class Connection:
    """Commands to the store, and the news of it going and coming back."""

    def __init__(self, client: "Redis[bytes]", *, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._gone = asyncio.Event()
        self._on_return: list[Callable[[], Awaitable[None]]] = []

    @property
    def client(self) -> "Redis[bytes]":
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
        while self._gone.is_set():
            await asyncio.sleep(_PROBE_SECONDS / 5)

    def on_return(self, callback: Callable[[], Awaitable[None]]) -> None:
        """``callback`` is awaited when the store is back, before the first command gets through."""
        self._on_return.append(callback)

    async def command(self, *args: str | bytes | int | float) -> Any:
        """One command; raises StoreAway when nobody answers, else redis.exceptions.RedisError."""
        if self._gone.is_set():
            raise StoreAway("the store is away")
        return await self._try(*args)

    async def _try(self, *args: str | bytes | int | float) -> Any:
        try:
            return await self._client.execute_command(*args)
        except OutOfMemoryError:
            raise
        except _AWAY as error:
            self._lost(error)
            raise StoreAway("the store does not answer") from error
        except ResponseError as error:
            if str(error).startswith(("MASTERDOWN", "BUSY", "MISCONF", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS")):
                raise StoreAway("the store refuses work") from error
            raise

    async def pipeline(self, *commands: tuple[str | bytes | int | float, ...]) -> list[Any]:
        """Several commands in one round trip, not as one transaction; an error stands in its command's place."""
        if self._gone.is_set():
            raise StoreAway("the store is away")
        pipe = self._client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        try:
            return list(await pipe.execute(raise_on_error=False))
        except _AWAY as error:
            self._lost(error)
            raise StoreAway("the store does not answer") from error

    def _lost(self, error: Exception) -> None:
        if not self._gone.is_set():
            self._gone.set()
            log.warning("store lost", error=type(error).__name__)

    @asynccontextmanager
    async def subscription(self, *, channels: Sequence[str] = (), patterns: Sequence[str] = ()) -> AsyncIterator[Messages]:
        """Messages published on ``channels`` and ``patterns`` (bytes payload with its channel), from now on.

        Leaving the block ends the subscription. Raises StoreAway when the line breaks: what is published until
        the next subscription is lost, so whoever listens must have another way to the truth.
        """
        try:
            async with self._client.pubsub() as pubsub:
                if channels:
                    await pubsub.subscribe(*channels)
                if patterns:
                    await pubsub.psubscribe(*patterns)
                yield _messages(pubsub)
        except (*_AWAY, RedisError) as error:
            raise StoreAway("the subscription broke") from error

    async def watch(self) -> None:
        """Runs until cancelled: while the store is away, asks for it every quarter of a second."""
        while True:
            await self._gone.wait()
            started = asyncio.get_running_loop().time()
            while not await self._returned():
                await asyncio.sleep(_PROBE_SECONDS)
            log.info("store is back", away_seconds=round(asyncio.get_running_loop().time() - started, 1))

    async def _returned(self) -> bool:
        try:
            async with asyncio.timeout(self._timeout):
                await self._client.execute_command("PING")
            self._gone.clear()
            for callback in self._on_return:
                await callback()
        except (*_AWAY, StoreAway):
            self._gone.set()
            return False
        except RedisError as error:
            log.warning("store answers, but not well", error=str(error))
        return True

    async def close(self) -> None:
        await self._client.aclose()


async def _messages(pubsub: PubSub) -> Messages:
    while True:
        message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=None)
        if message and isinstance(message["data"], bytes):
            yield message["channel"], message["data"]


def version_of(info: str) -> tuple[str, tuple[int, int], str]:
    """(kind, (major, minor), text) out of INFO server; kind is ``valkey`` or ``redis``."""
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    kind = "valkey" if "valkey_version" in fields or fields.get("server_name") == "valkey" else "redis"
    text = fields.get(f"{kind}_version", "0.0")
    found = re.match(r"(\d+)\.(\d+)", text)
    return kind, (int(found[1]), int(found[2])) if found else (0, 0), f"{kind} {text}"


async def check_server(client: "Redis[bytes]", shown: str) -> str:
    """The server's name and version; raises StartupError when it does not answer or is too old.

    ``shown`` is the server's address as it may be printed (no password).
    """
    try:
        raw = await client.execute_command("INFO", "server")
    except (RedisError, OSError, ssl.SSLError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise StartupError(f"no usable store at {shown}: {reason.splitlines()[0]}") from error
    text = raw if isinstance(raw, bytes) else b"\n".join(b"%b:%b" % (_b(k), _b(v)) for k, v in raw.items())
    kind, version, name = version_of(text.decode("utf-8", "replace"))
    if version < _OLDEST[kind]:
        raise StartupError(f"the store at {shown} is {name}: Redis 7.0, Valkey 7.2 or newer is needed")
    return name


def _b(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
