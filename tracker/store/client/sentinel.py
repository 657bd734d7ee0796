"""Where the store is, when sentinels decide that: connections to the server that is master now, and to no other.

redis-py's Sentinel makes the connections. What it does not do is done here, for a failover is the very moment when its
ways would lose what is written. It asks one sentinel after another, and waits for each that is gone; here all are asked
at once, and the one that knows of the latest failover counts. It takes the sentinels' word; here the server itself has to say that it
is a master. And it stays where it is until a connection breaks, while a master that was replaced takes writes for some
seconds more, all of which are lost; here the sentinels are asked all the time (Connection.follow).
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.connection import SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
)
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from tracker.store.server_url import SentinelUrl

Address = tuple[str, int]
_HASTE_SECONDS = 0.1
"""How much longer than most of the sentinels the others may take to answer, when somebody waits for it."""


@dataclass(frozen=True, slots=True)
class Word:
    """What one sentinel said: where the master is, or why it did not."""

    sentinel: str
    address: Address | None = None
    problem: str = ""
    epoch: int = 0
    """Of the failover it speaks of: most of the sentinels have agreed to each."""


class _MasterConnection(SentinelManagedConnection):
    """A connection that is refused by its own end unless the server is a master."""

    async def connect_to(self, address: Address) -> None:
        await super().connect_to(address)  # type: ignore[no-untyped-call]  # redis-py's
        with suppress(ResponseError):  # ROLE is forbidden there: a replica will refuse the first write
            await self.send_command("ROLE")
            role = cast(Any, await self.read_response())
            if role[0] not in (b"master", "master"):
                await self.disconnect(nowait=True)
                raise RedisConnectionError("the server that the sentinels name is no master")


class _SecureMasterConnection(_MasterConnection, SSLConnection):
    pass


class _Sentinels(Sentinel):
    """Those of one store. ``seconds`` is what each may take to answer."""

    def __init__(self, sentinels: tuple[Address, ...], seconds: float, options: dict[str, Any]) -> None:
        super().__init__(list(sentinels), sentinel_kwargs=options)  # type: ignore[no-untyped-call]  # redis-py's
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._said: tuple[float, Address] | None = None

    async def discover_master(self, service_name: str) -> Address:
        """Raises redis-py's MasterNotFoundError. Whoever waits while somebody asks takes what that one hears."""
        clock = asyncio.get_running_loop().time
        began = clock()
        async with self._turn:
            if self._said is None or self._said[0] < began:
                self._said = clock(), _latest(service_name, await self.ask(service_name, hasty=True))
            return self._said[1]

    async def ask(self, service_name: str, *, hasty: bool) -> list[Word]:
        """What each says, in the order of the URL; when ``hasty`` nobody waits long for the last when most have answered."""
        words: dict[int, Word] = {}

        async def ask_one(number: int) -> None:
            words[number] = await self._word(self.sentinels[number], service_name)

        async with asyncio.TaskGroup() as group:
            asked = {group.create_task(ask_one(number)) for number in range(len(self.sentinels))}
            waiting = asked
            while waiting and sum(bool(word.address) for word in words.values()) * 2 <= len(asked):
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if waiting and hasty:
                _, waiting = await asyncio.wait(waiting, timeout=_HASTE_SECONDS)
                for task in waiting:
                    task.cancel()
        return [words[number] for number in sorted(words)]

    async def _word(self, sentinel: Redis, service_name: str) -> Word:
        kwargs = sentinel.connection_pool.connection_kwargs
        name = f"{kwargs['host']}:{kwargs['port']}"
        pipe = sentinel.pipeline(transaction=False)
        # The address is there sooner in one's answer, the epoch only in the other's.
        pipe.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service_name)
        pipe.execute_command("SENTINEL", "MASTER", service_name)
        try:
            async with asyncio.timeout(self._seconds):
                said, state = await pipe.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            return Word(name, problem=(str(error) or "no answer").splitlines()[0])
        if isinstance(said, Exception):
            return Word(name, problem=str(said).splitlines()[0])
        if not said:
            return Word(name, problem=f"it knows no {service_name}")
        host, port = (each.decode() if isinstance(each, bytes) else str(each) for each in said)
        return Word(name, (host, int(port)), epoch=_epoch(state))

    async def aclose(self) -> None:
        for sentinel in self.sentinels:
            await sentinel.aclose()


def _epoch(state: Any) -> int:
    """Out of SENTINEL MASTER's answer: names and values in turn; 0 where that is forbidden."""
    flat = list(state) if isinstance(state, list) else []
    fields = dict(zip(flat[::2], flat[1::2], strict=False))
    return int(fields.get(b"config-epoch", 0))


def _latest(service_name: str, words: list[Word]) -> Address:
    """What most of those say that know of the latest failover: others have not heard of it, or are cut off."""
    if not any(word.address for word in words):
        reasons = "; ".join(f"{word.sentinel}: {word.problem}" for word in words)
        raise MasterNotFoundError(f"no sentinel names the master {service_name} ({reasons})")
    latest = max(word.epoch for word in words if word.address)
    votes = Counter(word.address for word in words if word.address and word.epoch == latest)
    return votes.most_common(1)[0][0]


class MasterPool(SentinelConnectionPool):
    """redis-py's pool to the master of now. ``on_move`` is called when that is another server than before."""

    sentinel_manager: _Sentinels
    service_name: str
    master_address: Address | None
    on_move: Callable[[], None] = staticmethod(lambda: None)

    async def get_master_address(self) -> Address:
        before = self.master_address
        address = await self.sentinel_manager.discover_master(self.service_name)
        self.master_address = address
        if before is not None and address != before:
            self.on_move()
        return address

    async def words(self) -> list[Word]:
        """What each of the sentinels says."""
        return await self.sentinel_manager.ask(self.service_name, hasty=False)

    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinel_manager.aclose()


def open_pool(
    url: SentinelUrl, sentinel_login: tuple[str | None, str | None], options: dict[str, Any]
) -> MasterPool:
    """``options`` are redis-py's for a connection; the sentinels get those that are not about the store alone."""
    seconds = float(options["socket_connect_timeout"])
    user, password = sentinel_login
    shared = {
        **{name: value for name, value in options.items() if name.startswith("ssl_")},
        "protocol": 2,
        "socket_connect_timeout": seconds,
    }
    sentinels = _Sentinels(
        url.sentinels,
        seconds,
        {
            **shared,
            "ssl": url.tls,
            "username": user,
            "password": password,
            "retry": Retry(NoBackoff(), 0),
            "max_connections": 4,
        },
    )
    return MasterPool(  # type: ignore[no-untyped-call]  # redis-py's
        url.master,
        sentinels,
        connection_class=_SecureMasterConnection if url.tls else _MasterConnection,
        db=url.database,
        username=url.user,
        password=url.password,
        **options,
    )
