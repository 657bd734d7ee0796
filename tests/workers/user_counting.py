"""A counter of unique users on a store under test. Run as a program, it counts until it is killed."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.fake_time import FakeTime
from tests.store.harness import Clock, Store, info_hash
from tests.store.jobs.harness import Metrics
from tests.waiting import in_background
from tracker.bittorrent import Address
from tracker.geoip import Place
from tracker.settings.background import UniqueSettings
from tracker.store.schema.keys import Keys
from tracker.store.stats.unique_users import UniqueUsers
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.join_counts import FLUSH_SECONDS, MAX_WAITING, UniqueUserCounter

LONDON = Place("GB", "ENG", "London", "SW1A", "United Kingdom")
PARIS = Place("FR", "IDF", "Paris", "75001", "France")
NO_PLACES: Mapping[bytes, Place] = {}


def address(number: int) -> Address:
    """A routable address: even ones are in London, odd ones in Paris (see ``UserCounting``)."""
    return Address(b"\x0b" + number.to_bytes(3, "big"))


@dataclass
class UserCounting:
    """A counter and its arguments. Addresses not in ``places`` are in London or Paris, unless it is empty."""

    store: Store
    unique_users: UniqueUsers | None = None
    places: Mapping[bytes, Place | None] = field(default_factory=lambda: {b"": None})
    settings: UniqueSettings = field(default_factory=UniqueSettings)
    clock: Clock = field(default_factory=Clock)
    counts: "Counter[str]" = field(default_factory=Counter)
    lookups: list[bytes] = field(default_factory=list)
    refreshed: int = 0
    time: FakeTime = field(default_factory=FakeTime)
    flush_seconds: float = FLUSH_SECONDS
    max_waiting: int = MAX_WAITING

    def __post_init__(self) -> None:
        self.store.unique_users = self.unique_users or self.store.unique_users
        self.store.clock = self.clock
        Metrics(self.counts).follow(self.store)
        self.counter = UniqueUserCounter(
            self.store,
            self.settings,
            lookup=self.lookup,
            refresh=self.refresh,
            sleep=self.time,
            flush_seconds=self.flush_seconds,
            max_waiting=self.max_waiting,
        )

    def lookup(self, address: Address) -> Place | None:
        self.lookups.append(address)
        if not self.places or address in self.places:
            return self.places.get(address)
        return PARIS if address[-1] % 2 else LONDON

    def refresh(self) -> None:
        self.refreshed += 1

    def add(self, *numbers: int, torrent: int = 1) -> None:
        for number in numbers:
            self.counter.add(info_hash(torrent), address(number))

    async def counts_of(self, *metrics: str) -> list[int]:
        return [await self.store.unique_users.users_of(metric) for metric in metrics]

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Runs the counter and the store's watch; the counter is cancelled at the end, without a flush."""
        async with in_background(self.counter.run(), self.store.connection.watch()):
            yield


async def _count_for_ever(url: str, prefix: str, first: int, last: int) -> None:
    """Prints `ready`, counts the addresses ``first`` to ``last`` in torrents 1 to 3, and prints `done`."""
    work = UserCounting(Store(url, Keys(prefix), SwarmRules()))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for number in range(first, last):
        work.add(number, torrent=1 + number % 3)
    await work.counter.flush()
    sys.stdout.write("done\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _arguments: list[Any] = sys.argv[1:3] + [int(text) for text in sys.argv[3:]]
    asyncio.run(_count_for_ever(*_arguments))
