"""A tally on a store under test; run as a program, it counts until it is killed."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.store.harness import Clock, Store, info_hash
from tracker.bittorrent import Address
from tracker.geoip import Place
from tracker.settings import UniqueSettings
from tracker.store.keys import Keys
from tracker.store.swarms import SwarmRules
from tracker.store.uniques import Uniques
from tracker.workers.tally import Tally

LONDON = Place("GB", "ENG", "London", "SW1A")
PARIS = Place("FR", "IDF", "Paris", "75001")
NOBODY_KNOWS: Mapping[bytes, Place] = {}


def address(number: int) -> Address:
    """A routable one: even ones are in London, odd ones in Paris (see ``Tallying``)."""
    return Address(b"\x0b" + number.to_bytes(3, "big"))


@dataclass
class Tallying:
    """A tally with what is handed to it; addresses not in ``places`` are in London or Paris, unless it is empty."""

    store: Store
    uniques: Uniques | None = None
    places: Mapping[bytes, Place | None] = field(default_factory=lambda: {b"": None})
    settings: UniqueSettings = field(default_factory=UniqueSettings)
    clock: Clock = field(default_factory=Clock)
    counts: "Counter[str]" = field(default_factory=Counter)
    asked: list[bytes] = field(default_factory=list)
    refreshed: int = 0

    def __post_init__(self) -> None:
        self.tally = Tally(
            self.uniques or self.store.uniques,
            self.store.connection,
            self.settings,
            lookup=self.lookup,
            refresh=self.refresh,
            count=self.count,
            clock=self.clock,
        )

    def lookup(self, address: Address) -> Place | None:
        self.asked.append(address)
        if not self.places or address in self.places:
            return self.places.get(address)
        return PARIS if address[-1] % 2 else LONDON

    def refresh(self) -> None:
        self.refreshed += 1

    def count(self, *names: str, by: int = 1) -> None:
        for name in names:
            self.counts[name] += by

    def offer(self, *numbers: int, torrent: int = 1) -> None:
        for number in numbers:
            self.tally.offer(info_hash(torrent), address(number))

    async def figures(self, *metrics: str) -> list[int]:
        return [await self.store.uniques.figure(metric) for metric in metrics]

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """The tally and the store's watch run; the tally stops as a killed one would."""
        tasks = [asyncio.Task(self.tally.run()), asyncio.Task(self.store.connection.watch())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _count_for_ever(url: str, prefix: str, first: int, last: int) -> None:
    """Says `ready`, then counts the addresses ``first`` to ``last`` in torrents 1 to 3, and says `done`."""
    work = Tallying(Store(url, Keys(prefix), SwarmRules()))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for number in range(first, last):
        work.offer(number, torrent=1 + number % 3)
    await work.tally.flush()
    sys.stdout.write("done\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _arguments: list[Any] = sys.argv[1:3] + [int(text) for text in sys.argv[3:]]
    asyncio.run(_count_for_ever(*_arguments))
