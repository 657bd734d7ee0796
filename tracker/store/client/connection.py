"""The connection to the store: its commands, its errors as StoreUnavailable, and whether the store answers.

When a command gets no answer, ``unavailable`` is set: further commands fail at once, instead of timing out one by one,
until watch() has reached the store again. No command is sent twice unnoticed.

A connection sends to the server that serves its keys now. A topology finds it: one server, the master that sentinels
name, or the node of a cluster.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from redis import __version__ as redis_version
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, RedisError, ResponseError

from tracker.errors import StartupError, StoreUnavailable
from tracker.store.client.pipe import Argument, loop_timeout
from tracker.store.client.sentinel import MasterPool, SentinelReply, open_pool
from tracker.store.client.server import DEMOTED, MAX_CALLS, NO_REPLY, OnRoundTrip, Server, is_refusal, refused_writes
from tracker.store.client.subscription import Messages, Subscriber
from tracker.store.client.url import Address, bad_url, check_ca_file, parse_url
from tracker.system.logger import Logger

PROBE_SECONDS = 0.25
"""How often an unavailable store is pinged."""
FOLLOW_SECONDS = 0.25
"""How often the sentinels are asked for the master."""

_DRIVER = DriverInfo(lib_version=redis_version)
"""What redis-py names itself to a server. Otherwise each connection would look its version up in the file system."""

log = Logger("tracker.store")


def connect(
    url: str,
    *,
    connect_timeout: float,
    timeout: float,
    tls_ca_file: str | None = None,
    sentinel_login: tuple[str | None, str | None] = (None, None),
    on_round_trip: OnRoundTrip | None = None,
    address: Address | None = None,
) -> Server:
    """The server at ``url`` (see url.py). Raises StartupError for a bad URL or CA file. Replies are what the server
    sends: bytes, int, lists of them."""
    sentinel_url = parse_url(url)
    options: dict[str, Any] = {
        "socket_timeout": None,
        "socket_connect_timeout": connect_timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": _DRIVER,
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
    return Server(client, timeout=timeout, on_round_trip=on_round_trip, address=address)


class Topology:
    """Finds the servers of a store: here the same one for all keys, or the master that the sentinels of ``pool`` name.
    ``watch`` restores the connections to them."""

    def __init__(self, pool: MasterPool | None = None) -> None:
        self._pool = pool
        if pool is not None:
            pool.on_move = self._moved
        self.connections: list[Connection] = []
        self.doubt = asyncio.Event()
        """Set while a connection is unavailable, or may lead to a wrong server."""
        self.cause = ""
        """Why all connections that are unavailable are it, where they have one cause."""

    @property
    def nodes(self) -> tuple[Address, ...]:
        """The servers of the cluster, as far as they are known; none without a cluster."""
        return ()

    def of(self, prefix: str) -> "Connection":
        """The connection for the keys under ``prefix``: one server has them all."""
        (connection,) = self.connections
        connection.server.serve(prefix)
        return connection

    async def find(self) -> None:
        """Looks where the servers are; raises StoreUnavailable, RedisError or OSError."""
        if self._pool is not None:
            await self._pool.get_master_address()

    async def look(self) -> None:
        """Finds out where the servers are, and why they do not answer: what ``watch`` does in a running tracker."""
        with suppress(StoreUnavailable, RedisError, OSError):
            await self.find()

    async def follow(self) -> None:
        """Leaves servers that serve no more, until cancelled. A server that is no longer the master may not know yet,
        and what it still accepts is lost."""
        while self._pool is not None:
            await asyncio.sleep(FOLLOW_SECONDS)
            await self.look()

    def _moved(self) -> None:
        for each in self.connections:
            log.warning("store failover", address=each.master)
            each._lost(RedisConnectionError("the store has moved"))

    async def replies(self) -> list[SentinelReply] | None:
        """The reply of each sentinel; None without sentinels."""
        return None if self._pool is None else await self._pool.ask(first_majority=False)

    def cause_of(self, error: Exception) -> str:
        """Why a connection is unavailable that got ``error``. A fixed text for /ready and logs."""
        del error
        return "the store does not answer"

    def redirects(self, connection: "Connection", error: Exception) -> bool:
        """Whether ``connection`` has gone on to another server because of ``error``, and nothing was executed."""
        if self._pool is not None and isinstance(error, DEMOTED):  # another server is the master
            connection._lost(error)
        return False

    async def watch(self) -> None:
        """Looks for unavailable servers every quarter of a second, until cancelled."""
        while True:
            await self.doubt.wait()
            self.doubt.clear()
            await self.look()
            await asyncio.gather(*(each.reconnect() for each in self.connections if each.unavailable))
            if any(each.unavailable for each in self.connections):
                self.doubt.set()
            await asyncio.sleep(PROBE_SECONDS)

    async def close(self) -> None:
        for each in self.connections:
            await each.server.close()


class Connection:
    """Sends commands to the server of some keys, and tracks whether it is available. Without a ``topology``, ``server``
    has all keys. ``prefix`` are the keys of this connection, if it has not all."""

    def __init__(self, server: Server, topology: Topology | None = None, prefix: str = "") -> None:
        pool: Any = server.client.connection_pool
        self.server = server
        """The same for all connections to one server."""
        self.topology = topology or Topology(pool if isinstance(pool, MasterPool) else None)
        self.topology.connections.append(self)
        self.prefix = prefix
        self._log = log.bind(prefix=prefix) if prefix else log
        self._lost_at = 0.0
        self._available = asyncio.Event()
        self._available.set()
        self._on_reconnect: list[Callable[[], Awaitable[None]]] = []
        self._probe_task: asyncio.Task[Any] | None = None
        self._calls = 0
        self._subscribers: set[Subscriber] = set()
        self.refusal = ""
        """Why the store refuses writes, as ``check_writes`` found; empty if it accepts them."""
        self._accepted_writes = 0
        self._refused_at = 0.0
        self.unavailable = False
        """Whether the last call found no store. Commands fail at once until ``watch`` has reached it again."""
        self._cause = ""

    @property
    def cause(self) -> str:
        """Why it is unavailable: a fixed text for /ready, logs, pages and commands. Empty if it is available."""
        return (self.topology.cause or self._cause) if self.unavailable else ""

    @property
    def master(self) -> str:
        """The address of the server; empty where only the URL knows it."""
        address = self.server.address
        return f"{address[0]}:{address[1]}" if address else ""

    def keyspace_channel(self, key: str) -> str:
        """The channel of keyspace notifications for ``key`` in this connection's database."""
        return f"__keyspace@{self.server.client.connection_pool.connection_kwargs.get('db') or 0}__:{key}"

    async def until_available(self) -> None:
        await self._available.wait()

    def on_reconnect(self, callback: Callable[[], Awaitable[None]]) -> None:
        """``callback`` is awaited when the store is back, before any other command is sent."""
        self._on_reconnect.append(callback)

    async def command(self, *args: Argument) -> Any:
        """One command; raises StoreUnavailable when the store does not answer, else redis.exceptions.RedisError."""
        return await self._execute(args, peers_wait=False)

    async def direct(self, *args: Argument) -> Any:
        """The same for a command that peers wait for: it waits for no reply of another command."""
        return await self._execute(args, peers_wait=True)

    async def _execute(self, command: tuple[Argument, ...], *, peers_wait: bool) -> Any:
        (answer,) = await self.send([(self, command)], peers_wait=peers_wait)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def pipeline(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Several commands in one round trip, without a transaction; a failed command's reply is its error. Raises
        StoreUnavailable when the store does not answer, or does not accept work now."""
        answers = await self.send([(self, command) for command in commands])
        for unavailable in (answer for answer in answers if isinstance(answer, StoreUnavailable)):
            raise unavailable
        return answers

    async def replies(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """The same, but raises the error of the first command that failed."""
        answers = await self.pipeline(*commands)
        for error in (answer for answer in answers if isinstance(answer, Exception)):
            raise error
        return answers

    async def send(
        self, commands: Sequence[tuple["Connection", tuple[Argument, ...]]], *, peers_wait: bool = False
    ) -> list[Any]:
        """The same for several connections to this server. What one that is unavailable gets is a StoreUnavailable."""
        answers = await self._send_once(commands, peers_wait=peers_wait)
        moved = defaultdict[Connection, list[int]](list)
        for number, answer in enumerate(answers):
            if isinstance(answer, MovedError):  # the others were executed before the move
                moved[commands[number][0]].append(number)
        for connection, numbers in moved.items():
            repeated = await connection._send_once([commands[number] for number in numbers], peers_wait=peers_wait)
            for number, answer in zip(numbers, repeated, strict=True):
                answers[number] = answer
                if isinstance(answer, MovedError):
                    self.topology.doubt.set()
                    answers[number] = StoreUnavailable("the slot is moving")
        return answers

    async def _send_once(
        self, commands: Sequence[tuple["Connection", tuple[Argument, ...]]], *, peers_wait: bool
    ) -> list[Any]:
        answers: list[Any] = [StoreUnavailable(connection.cause) for connection, _ in commands]
        asked = [number for number, (connection, _) in enumerate(commands) if connection._is_here]
        if asked:
            first = commands[asked[0]][0]
            state = first.server.state
            try:
                found = await first._call([commands[number][1] for number in asked], peers_wait=peers_wait)
            except (StoreUnavailable, RedisError, OSError) as error:
                found = [error] * len(asked)
            for number, answer in zip(asked, found, strict=True):
                own = commands[number][0]
                is_error = isinstance(answer, Exception)
                answers[number] = own.translated(own.server.current(answer, state)) if is_error else answer
        return answers

    async def _call(self, commands: Sequence[tuple[Argument, ...]], *, peers_wait: bool) -> list[Any]:
        if self._calls >= MAX_CALLS:
            raise StoreUnavailable("too many calls wait for the store")
        self._calls += 1
        pipe = self.server.announces if peers_wait else self.server.commands
        try:
            async with pipe.turns:
                if not self._is_here:  # lost meanwhile
                    raise StoreUnavailable(self.cause)
                return await (await pipe.opened()).execute_all(commands)
        finally:
            self._calls -= 1

    @property
    def _is_here(self) -> bool:
        return not self.unavailable or asyncio.current_task() is self._probe_task

    async def check_writes(self, key: str) -> None:
        """Finds out whether the store accepts writes, by a command that would need memory and disk and writes nothing.
        ``key`` is a string. Raises StoreUnavailable when there is no reply."""
        try:
            await self.command("SETRANGE", key, 0, "")
        except (StoreUnavailable, RedisError) as error:
            self._note_refusal(refused_writes(error.__cause__ or error))
            if self.unavailable:
                raise
        else:
            self._note_refusal("")

    def _note_refusal(self, reason: str) -> None:
        """A store that refuses some writes and accepts others, as on a full disk, has not recovered."""
        self._accepted_writes = 0 if reason else self._accepted_writes + 1
        now = asyncio.get_running_loop().time()
        if reason and reason != self.refusal:
            self._refused_at = self._refused_at if self.refusal else now
            self._log.error("the store refuses writes", reason=reason)
            self.refusal = reason
        elif self.refusal and self._accepted_writes > 1:
            self._log.info("the store accepts writes again", refused_seconds=round(now - self._refused_at))
            self.refusal = ""

    def translated(self, error: Exception) -> Exception:
        """StoreUnavailable in place of an ``error`` that means it. Removes a command's arguments from its text."""
        text, cut, _ = str(error).partition(", with args beginning with")
        if cut:
            error.args = (text,)
        if isinstance(error, StoreUnavailable) or self.topology.redirects(self, error):
            return error
        if isinstance(error, NO_REPLY):
            self._lost(error)
            text = self.cause
        elif is_refusal(error):
            reason = refused_writes(error)
            self._accepted_writes = 0
            text = f"the store refuses writes: {reason}" if reason else self.cause or "the store refuses work"
        else:
            return error
        if isinstance(error, DEMOTED):
            self.server.close_sockets()  # the URL may lead to another server now
        unavailable = StoreUnavailable(text)
        unavailable.__cause__ = error
        return unavailable

    def _lost(self, error: Exception) -> None:
        """The server is lost, for all connections to it."""
        for each in self.topology.connections:
            if each.server is self.server:
                each.set_unavailable(error)
        self.server.lose()

    def set_unavailable(self, error: Exception) -> None:
        self.topology.doubt.set()
        self._cause = self.topology.cause_of(error)
        if not self.unavailable:
            self.unavailable = True
            self._lost_at = asyncio.get_running_loop().time()
            self._available.clear()
            self._log.warning("store lost", cause=self._cause)

    def was_lost_before(self, other: "Connection") -> bool:
        """Whether it is unavailable, and has been since before ``other`` was lost last."""
        return self.unavailable and self._lost_at < other._lost_at

    def use(self, server: Server) -> None:
        """Goes on at another server. Subscriptions end: the server that is left sends no events of the keys."""
        if server is self.server:
            return
        self.server.prefixes.discard(self.prefix)
        self.server = server
        server.serve(self.prefix)
        self._log.info("another node serves the store", address=self.master)
        for subscriber in self._subscribers:
            subscriber.end(RedisConnectionError("the slot has moved"))

    @asynccontextmanager
    async def subscription(
        self, *, channels: Sequence[str] = (), patterns: Sequence[str] = ()
    ) -> AsyncIterator[Messages]:
        """Messages published on ``channels`` and ``patterns``, from now on. Leaving the block ends the subscription.
        Raises StoreUnavailable when it cannot be made in time, or breaks. Messages until the next subscription are
        lost, so a subscriber also needs another source. Raises redis.exceptions.ResponseError when the store does not
        allow it."""
        subscriber = None
        try:
            async with loop_timeout(self.server.timeout):
                subscriber = Subscriber(await self.server.subscription.opened(), channels, patterns)
                self._subscribers.add(subscriber)
                await subscriber.start()
            yield subscriber
        except ResponseError:
            raise
        except (RedisError, OSError) as error:
            raise StoreUnavailable("the subscription broke") from error
        finally:
            if subscriber is not None:
                self._subscribers.discard(subscriber)
                subscriber.close()

    async def watch(self) -> None:
        """Restores all connections of the store, until cancelled."""
        await self.topology.watch()

    async def reconnect(self) -> bool:
        """Pings once. When the store answers, runs the callbacks of ``on_reconnect`` first."""
        self._probe_task = asyncio.current_task()
        server, losses = self.server, self.server.losses
        try:
            # A node of a cluster may answer and not serve the slot. The prefix itself is no key: while a slot is moved
            # key by key, its node answers ASK. Other errors prove that the store answers.
            await self.pipeline(("PING",), ("EXISTS", self.prefix))
            for callback in self._on_reconnect:
                try:
                    await callback()
                except RedisError as error:  # the store is available, but refuses what the callback sent
                    log.error("reconnect callback failed", error=str(error))
        except (StoreUnavailable, RedisError, OSError) as error:
            if isinstance(error.__cause__, StartupError):  # the store is there, and is not the one that it was
                known, (self._cause, _, _) = self._cause, str(error).partition(":")
                if known != self._cause:
                    self._log.error("the store cannot be used", error=str(error))
            return False
        finally:
            self._probe_task = None
        if server is not self.server or losses != server.losses:  # lost again meanwhile
            return False
        self.unavailable = False
        self._available.set()
        unavailable = asyncio.get_running_loop().time() - self._lost_at
        self._log.info("store is back", unavailable_seconds=round(unavailable, 1))
        return True

    async def close(self) -> None:
        await self.topology.close()
