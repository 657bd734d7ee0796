"""A store under test: the real objects on a real server, with a clock that the test moves."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from tests.waiting import in_background
from tracker.bittorrent import Address, Endpoint, InfoHash, PeerId
from tracker.store.client.connection import Connection, connect
from tracker.store.client.scripts import Scripts
from tracker.store.maintenance.maintenance import Maintenance
from tracker.store.schema.keys import Keys
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.stats.client_software import MIN_ADDRESSES, ClientEvent, ClientSoftware
from tracker.store.store import Store as RealStore
from tracker.store.store import StoreOptions
from tracker.store.swarms.codec import Admitted, PeerUpdate, Refused, TrafficTotals
from tracker.store.swarms.rules import SwarmRules

START = 1_800_000_000
SCORED_EVERY = 3600
ALICE = "a" * 20
BOB = "b" * 20


@dataclass
class Clock:
    now: float = START

    def __call__(self) -> float:
        return self.now


class Store(RealStore):
    """The store over its own connection, with helpers for tests."""

    clock: Clock
    _redis: Any = None

    def __init__(
        self,
        url: str,
        keys: Keys,
        rules: SwarmRules,
        clock: Clock | None = None,
        shards: int = 1,
        connection: Connection | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        connection = connection or Connection(connect(url, connect_timeout=20, timeout=20))
        self.url, self.clock = url, clock or Clock()
        options = StoreOptions(rules=rules, scoring_interval_seconds=SCORED_EVERY, shards=shards)
        super().__init__(connection, keys.prefix, options, clock=self.clock, timer=timer)

    async def torrents_of(self, user_id: str, name: str) -> list[str]:
        """The ids in a set of a user's torrents, sorted by number."""
        found, _ = await self.users.first_torrents(user_id, name, sys.maxsize)
        return sorted(found, key=lambda i: (len(i), i))

    async def top_scores(self, count: int, offset: int = 0) -> list[tuple[str, float]]:
        """(torrent id, score) from ``offset`` on, highest score first."""
        return await top_of(self.shards, lambda shard: shard.keys.index("score"), count, offset)

    def shard(self, info_hash: InfoHash) -> Shard:
        """The shard of a torrent."""
        return self.shards.of(info_hash)

    @property
    def redis(self) -> Any:  # redis-py's types cover both bytes and text: too wide to be of use
        pool = self.connection.server.client.connection_pool
        if self._redis is None or self._redis.connection_pool is not pool:  # making one takes its time
            self._redis = redis_of(self.connection)
        return self._redis

    @property
    def maintenance(self) -> Maintenance:
        return Maintenance(self)

    async def announce(self, update: PeerUpdate) -> Admitted:
        reply = await self.swarms.announce(update)
        assert isinstance(reply, Admitted), reply
        return reply

    async def announce_together(self, *updates: PeerUpdate) -> tuple[list[Any], TrafficTotals]:
        """The outcomes and the totals of announces that share one call."""
        done: asyncio.Future[tuple[list[Any], TrafficTotals]] = asyncio.get_running_loop().create_future()

        def settle(settled: Iterable[tuple[Any, Any]], batch: tuple[int, TrafficTotals] | None) -> None:
            assert batch is not None
            outcomes = [Admitted(*outcome) if type(outcome) is tuple else outcome for _, outcome in settled]
            done.set_result((outcomes, batch[1]))

        for each in updates:
            self.swarms.submits[each.info_hash[0]](each, settle, None)
        return await done

    async def refused(self, update: PeerUpdate) -> str:
        reply = await self.swarms.announce(update)
        assert isinstance(reply, Refused), reply
        return reply.code

    async def torrent(self, info_hash: InfoHash) -> dict[str, str]:
        return text(await self.redis.hgetall(self.shard(info_hash).keys.torrent(info_hash)))

    async def peer(self, update: PeerUpdate, torrent_id: str = "1") -> dict[str, Any]:
        row = await self.redis.hgetall(self.keys.peer(torrent_id, update.peer_id))
        return {k.decode(): v if k in (b"endpoints", b"key") else v.decode() for k, v in row.items()}

    async def pass_time(self, seconds: float) -> None:
        """Advances the clock while a tracker runs and sends heartbeats."""
        self.clock.now += seconds
        for shard in self.shards.all:
            await self.redis.set(shard.keys.heartbeat(), int(self.clock.now))
        for reaping in self.reapings.values():  # knows by now that time has passed, and no clock has stepped
            await reaping.heartbeat()

    async def silence(self, update: PeerUpdate, torrent_id: str = "1") -> int:
        """The peer's timeout ends and the reaper handles it; returns the number reaped."""
        shard = self.shard(update.info_hash)
        await self.redis.delete(timeout_key(shard.keys, torrent_id, update.peer_id))
        return await self.reapings[shard].reap([(torrent_id, update.peer_id.hex())])

    async def dump(self) -> dict[bytes, Any]:
        """Everything under the prefix, for comparing before and after."""
        found = {key async for key in self.redis.scan_iter(f"{self.keys.prefix}*", 1000)}
        pipeline = self.redis.pipeline(transaction=False)
        for key in found:
            pipeline.dump(key)
        return dict(zip(found, await pipeline.execute(), strict=True))


def one_shard(connection: Connection, prefix: str) -> Shards:
    """The store under a prefix with a single shard, over a connection of its own."""
    shard = Shard(0, connection, Scripts(connection, prefix), Keys(prefix))
    return Shards([shard], shard)


def redis_of(connection: Connection) -> Any:
    """A client of redis-py for the same server."""
    return Redis(connection_pool=connection.server.client.connection_pool)


def timeout_key(keys: Keys, torrent_id: int | str, peer_id: PeerId) -> str:
    """Only scripts build this key."""
    return f"{keys.prefix}ptimeout:{torrent_id}:{peer_id.hex()}"


def dht_peers_key(keys: Keys, info_hash: InfoHash, family: int) -> str:
    """Only scripts build this key."""
    return f"{keys.prefix}dht:peers:{info_hash.hex()}{':6' if family == 6 else ''}"


def due_deadline(now: float, timeout_seconds: float) -> int:
    """The due list of a timeout, as swarm.lua chooses it: its end, rounded up to an even second."""
    return -int(-(now + timeout_seconds) // 2) * 2


def text(row: dict[bytes, bytes]) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in row.items()}


@asynccontextmanager
async def running(store: Store) -> AsyncIterator[Store]:
    """The store with its batch loop running."""
    try:
        async with in_background(store.swarms.run()):
            yield store
    finally:
        await store.connection.close()


def info_hash(number: int) -> InfoHash:
    return InfoHash(number.to_bytes(20, "big"))


def peer_id(number: int) -> PeerId:
    return PeerId(b"-XX0001-" + number.to_bytes(12, "big"))


def endpoint(number: int, *, v6: bool = False, port: int = 6881) -> Endpoint:
    address = b"\x20\x01\x0d\xb8" + number.to_bytes(12, "big") if v6 else b"\x0b" + number.to_bytes(3, "big")
    return Endpoint(address + port.to_bytes(2, "big"))


def update(peer: int, event: str = "u", torrent: int = 1, **changes: Any) -> PeerUpdate:
    """An announce of peer number ``peer``; by default a leecher on IPv4. Byte counts may be numbers."""
    values: dict[str, Any] = {
        "info_hash": info_hash(torrent),
        "peer_id": peer_id(peer),
        "event": event.encode(),
        "uploaded": 0,
        "downloaded": 0,
        "bytes_left": 1000,
        "endpoint": endpoint(peer),
        "peers_wanted": 50,
        "key": b"",
        "passkey": "",
        "timeout_seconds": 2700.0,
        "random": 7,
        "form": 0,
        "unbounded": False,
    }
    return PeerUpdate(**digits({**values, **changes}))


def digits(said: dict[str, Any]) -> dict[str, Any]:
    """Byte counts in the form of announces, from numbers."""
    counts = ("uploaded", "downloaded", "bytes_left")
    return {name: b"%d" % n if name in counts and n is not None else n for name, n in said.items()}


async def count_software(software: ClientSoftware, number: int, counts: Mapping[ClientEvent, int], now: float) -> None:
    """Adds a batch of clients that came from as many addresses as it takes to be listed."""
    addresses = [Address(endpoint(one)[:-2]) for one in range(MIN_ADDRESSES)]
    await software.add(number, counts, now, dict.fromkeys(counts, addresses))
