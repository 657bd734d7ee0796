"""Connects only to the server that the sentinels report as the master.

redis-py's pool makes the connections. This module differs where redis-py would lose writes in a failover:

- redis-py asks one sentinel after another, and waits for each unreachable one. Here all are asked at once, and the
  reply with the latest failover counts.
- redis-py trusts the sentinels. Here the server itself must confirm that it is a master.
- redis-py stays connected until a connection breaks. A replaced master accepts writes for some more seconds, and they
  are lost. Here the sentinels are asked several times a second (Topology.follow).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from tracker.store.client.pipe import loop_timeout
from tracker.store.client.url import Address, SentinelUrl

_LAST_REPLIES_SECONDS = 0.1
"""After a majority has replied, how long the other sentinels may still take."""


@dataclass(frozen=True, slots=True)
class SentinelReply:
    """The reply of one sentinel: the master's address, or the reason why there is none."""

    sentinel: str
    address: Address | None = None
    problem: str = ""
    epoch: int = 0
    """The config epoch of the failover that named the master: a majority of the sentinels agreed to it."""


async def _sign_in(connection: Any) -> None:
    """Signs in as redis-py does. Raises its ConnectionError, which closes the connection, unless the server is a
    master."""
    await connection.on_connect()
    with suppress(ResponseError):  # ROLE may be forbidden; a replica refuses the first write
        await connection.send_command("ROLE")
        role = await connection.read_response()
        if role[0] not in (b"master", "master"):
            raise RedisConnectionError("the server that the sentinels name is not a master")


class MasterPool(SentinelConnectionPool):
    """redis-py's pool of connections to the current master, and the ``sentinels`` that name it, each of which may take
    ``seconds`` to reply. ``on_move`` is called when the master changes."""

    service_name: str
    master_address: Address | None
    on_move: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, name: str, sentinels: Sequence[Redis], seconds: float, **options: Any) -> None:
        super().__init__(name, None, **options)  # type: ignore[no-untyped-call]  # redis-py's
        self._sentinels = sentinels
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._named_at = 0.0

    async def get_master_address(self) -> Address:
        """Raises redis-py's MasterNotFoundError. Concurrent callers share one set of replies."""
        clock = asyncio.get_running_loop().time
        began = clock()
        async with self._lock:
            before = address = self.master_address
            if address is None or self._named_at < began:
                named_at = clock()
                address = _latest(self.service_name, await self.ask(first_majority=True))
                self._named_at, self.master_address = named_at, address
                if before is not None and address != before:
                    self.on_move()
            return address

    async def ask(self, *, first_majority: bool) -> list[SentinelReply]:
        """The replies, in the order of the URL; with ``first_majority`` those that arrive soon after a majority has
        replied."""
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(self._reply(sentinel)) for sentinel in self._sentinels]
            waiting = set(asked)
            while waiting and sum(task.result().address is not None for task in asked if task.done()) * 2 <= len(asked):
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if waiting and first_majority:
                _, waiting = await asyncio.wait(waiting, timeout=_LAST_REPLIES_SECONDS)
                for task in waiting:
                    task.cancel()
        return [task.result() for task in asked if not task.cancelled()]

    async def _reply(self, sentinel: Redis) -> SentinelReply:
        kwargs = sentinel.connection_pool.connection_kwargs
        name = f"{kwargs['host']}:{kwargs['port']}"
        pipe = sentinel.pipeline(transaction=False)
        # The first command names a new address sooner; only the second has the epoch.
        pipe.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service_name)
        pipe.execute_command("SENTINEL", "MASTER", self.service_name)
        try:
            async with loop_timeout(self._seconds):
                address, state = await pipe.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            return SentinelReply(name, problem=(str(error) or "no reply").splitlines()[0])
        if isinstance(address, Exception):
            return SentinelReply(name, problem=str(address).splitlines()[0])
        if not address:
            return SentinelReply(name, problem=f"it does not know {self.service_name}")
        host, port = (each.decode() if isinstance(each, bytes) else str(each) for each in address)
        flat = state if isinstance(state, list) else []  # an error where SENTINEL MASTER is forbidden
        epoch = dict(zip(flat[::2], flat[1::2], strict=False)).get(b"config-epoch", 0)
        return SentinelReply(name, (host, int(port)), epoch=int(epoch))

    async def aclose(self) -> None:
        await super().aclose()
        for sentinel in self._sentinels:
            await sentinel.aclose()


def _latest(service_name: str, replies: list[SentinelReply]) -> Address:
    """The address most sentinels report for the latest config epoch."""
    if not any(reply.address for reply in replies):
        reasons = "; ".join(f"{reply.sentinel}: {reply.problem}" for reply in replies)
        raise MasterNotFoundError(f"no sentinel names the master {service_name} ({reasons})")
    latest = max(reply.epoch for reply in replies if reply.address)
    votes = Counter(reply.address for reply in replies if reply.address and reply.epoch == latest)
    return votes.most_common(1)[0][0]


def open_pool(url: SentinelUrl, sentinel_login: tuple[str | None, str | None], options: dict[str, Any]) -> MasterPool:
    """``options`` are redis-py's for a connection to the store; the sentinels get those that also apply to them."""
    seconds = float(options["socket_connect_timeout"])
    user, password = sentinel_login
    for_sentinels: dict[str, Any] = {
        **{name: value for name, value in options.items() if name.startswith("ssl_")},
        "protocol": 2,
        "socket_connect_timeout": seconds,
        "ssl": url.tls,
        "username": user,
        "password": password,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": 4,
    }
    return MasterPool(
        url.master,
        [Redis(host=host, port=port, **for_sentinels) for host, port in url.sentinels],
        seconds,
        ssl=url.tls,
        redis_connect_func=_sign_in,
        db=url.database,
        username=url.user,
        password=url.password,
        **options,
    )
