"""A store under test: the real objects on a real server, with a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tracker.bittorrent import Endpoint, InfoHash, PeerId
from tracker.store.clients import Clients
from tracker.store.connection import Connection, connect
from tracker.store.counters import Counters
from tracker.store.keys import Keys
from tracker.store.maintenance import Maintenance
from tracker.store.reaping import Reaping
from tracker.store.scores import Scores
from tracker.store.scripts import Scripts
from tracker.store.software import Software
from tracker.store.swarms import Admitted, PeerUpdate, Refused, SwarmRules, Swarms
from tracker.store.tokens import Tokens
from tracker.store.torrents import Torrents
from tracker.store.uniques import Uniques
from tracker.store.users import Users

START = 1_800_000_000
SCORED_EVERY = 3600
ALICE = "a" * 20
BOB = "b" * 20


@dataclass
class Clock:
    now: float = START

    def __call__(self) -> float:
        return self.now


@dataclass
class Store:
    url: str
    keys: Keys
    rules: SwarmRules
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.connection = Connection(connect(self.url, connect_timeout=5), timeout=5)
        self.scripts = Scripts(self.connection, self.keys.prefix)
        self.swarms = Swarms(self.connection, self.scripts, self.keys, self.rules, self.clock)
        self.reaping = Reaping(self.connection, self.scripts, self.keys, self.rules, self.clock)
        self.torrents = Torrents(self.connection, self.scripts, self.keys, self.clock)
        self.scores = Scores(
            self.connection, self.scripts, self.keys, self.clock, interval_seconds=SCORED_EVERY
        )
        self.uniques = Uniques(self.connection, self.scripts, self.keys)
        self.tokens = Tokens(self.connection, self.scripts, self.keys, self.clock)
        self.users = Users(self.connection, self.keys)
        self.clients = Clients(self.connection, self.keys)
        self.software = Software(self.connection, self.scripts, self.keys)
        self.maintenance = Maintenance(
            self.connection,
            self.scripts,
            self.keys,
            self.clock,
            reindex_hit_and_runs=self.users.reindex_hit_and_runs,
            flush_uniques=self.uniques.flush,
        )
        self.counters = Counters(self.connection, self.scripts, self.keys, self.clock)

    @property
    def redis(self) -> Any:  # redis-py's types cover both bytes and text: too wide to be of use
        return self.connection.client

    async def announce(self, update: PeerUpdate) -> Admitted:
        reply = await self.swarms.announce(update)
        assert isinstance(reply, Admitted), reply
        return reply

    async def refused(self, update: PeerUpdate) -> str:
        reply = await self.swarms.announce(update)
        assert isinstance(reply, Refused), reply
        return reply.code

    async def torrent(self, info_hash: InfoHash) -> dict[str, str]:
        return text(await self.redis.hgetall(self.keys.torrent(info_hash)))

    async def peer(self, update: PeerUpdate, torrent_id: str = "1") -> dict[str, Any]:
        row = await self.redis.hgetall(self.keys.peer(torrent_id, update.peer_id))
        return {k.decode(): v if k in (b"endpoints", b"key") else v.decode() for k, v in row.items()}

    async def pass_time(self, seconds: float) -> None:
        """Time passes while a tracker is here: its heartbeat goes on."""
        self.clock.now += seconds
        await self.redis.set(self.keys.heartbeat(), int(self.clock.now))

    async def silence(self, update: PeerUpdate, torrent_id: str = "1") -> int:
        """The peer's timeout runs out, and the reaper hears of it: the number reaped."""
        await self.redis.delete(self.keys.timeout(torrent_id, update.peer_id))
        return await self.reaping.reap([(torrent_id, update.peer_id.hex())])

    async def dump(self) -> dict[bytes, Any]:
        """Everything under the prefix, for comparing before and after."""
        return {
            key: await self.redis.dump(key)
            async for key in self.redis.scan_iter(f"{self.keys.prefix}*", 1000)
        }


def text(row: dict[bytes, bytes]) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in row.items()}


@asynccontextmanager
async def running(store: Store) -> AsyncIterator[Store]:
    """The store with its batch loop at work."""
    task = asyncio.Task(store.swarms.run())
    try:
        yield store
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await store.connection.close()


def info_hash(number: int) -> InfoHash:
    return InfoHash(number.to_bytes(20, "big"))


def peer_id(number: int) -> PeerId:
    return PeerId(b"-XX0001-" + number.to_bytes(12, "big"))


def endpoint(number: int, *, v6: bool = False, port: int = 6881) -> Endpoint:
    address = b"\x20\x01\x0d\xb8" + number.to_bytes(12, "big") if v6 else b"\x0b" + number.to_bytes(3, "big")
    return Endpoint(address + port.to_bytes(2, "big"))


def update(peer: int, event: str = "u", torrent: int = 1, **changes: Any) -> PeerUpdate:
    """An announce of peer number ``peer``: a leecher on IPv4 unless told otherwise. Byte counts may be numbers."""
    values: dict[str, Any] = {
        "info_hash": info_hash(torrent),
        "peer_id": peer_id(peer),
        "event": event.encode(),
        "uploaded": 0,
        "downloaded": 0,
        "bytes_left": 1000,
        "endpoint": endpoint(peer),
        "peers_wanted": 50,
        "key_digest": b"",
        "passkey": "",
        "timeout_seconds": 2700.0,
        "random": 7,
        "with_ids": False,
    }
    return PeerUpdate(**digits({**values, **changes}))


def digits(said: dict[str, Any]) -> dict[str, Any]:
    """Byte counts as announces carry them, of numbers that are easier to write."""
    counts = ("uploaded", "downloaded", "bytes_left")
    return {name: b"%d" % n if name in counts and n is not None else n for name, n in said.items()}
