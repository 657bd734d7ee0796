"""Draws the samples that nodes of the DHT show (BEP 51) where public torrents are among them.

All reading of the store is here, so packets cause none: some pages of the register for a new set, and a look at the
shown torrents every few seconds. A torrent that takes part no longer is then shown no more.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass

from redis.exceptions import RedisError

from tracker.dht.node import DhtNode
from tracker.dht.samples import MAX_SAMPLES
from tracker.errors import StoreUnavailable
from tracker.store.dht.torrents import DhtTorrents
from tracker.workers.loop import Sleep, forever

CHECK_SECONDS = 5
"""A torrent made private may be shown for 10 seconds, the time of the reading included."""


@dataclass(eq=False)
class SampleWorker:
    """``nodes`` by 4 and 6, whose sets are drawn by this worker. ``timer`` returns the time of the nodes."""

    torrents: DhtTorrents
    nodes: Mapping[int, DhtNode]
    _: KW_ONLY
    all_torrents: bool
    timer: Callable[[], float]
    rng: random.Random
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self._shown = [(each.samples, each.announced) for each in self.nodes.values() if each.samples is not None]

    async def run(self) -> None:
        """Runs until cancelled."""
        await forever(self.round, CHECK_SECONDS, sleep=self.sleep)

    async def round(self) -> None:
        """Draws the sets that are due, and removes what takes part no longer. Without the store nothing is shown, as
        what is private is unknown meanwhile."""
        try:
            await self._draw()
            await self._check()
        except (StoreUnavailable, RedisError):
            for samples, _ in self._shown:
                samples.clear()

    async def _draw(self) -> None:
        due = [each for each in self._shown if each[0].is_due(self.timer())]
        if not due:
            return
        public, total = await self.torrents.some_public(MAX_SAMPLES)
        for samples, announced in due:
            # Unless all torrents take part, what was announced is public, and so is counted already.
            hashes = list(announced.hashes()) if self.all_torrents else []
            others = await self.torrents.no_longer_part(hashes, all_torrents=False)
            samples.draw(others, self.timer(), self.rng, others=public, others_total=total)

    async def _check(self) -> None:
        """A shown torrent is public, or a node announced it and all torrents take part."""
        for samples, announced in self._shown:
            gone = set(await self.torrents.no_longer_part(samples.hashes(), all_torrents=False))
            if self.all_torrents:
                unknown = list(gone.intersection(announced.hashes()))
                gone -= set(unknown)
                gone.update(await self.torrents.no_longer_part(unknown, all_torrents=True))
            for each in gone:
                samples.forget(each)
