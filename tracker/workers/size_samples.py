"""Samples the numbers of peers, torrents and users every 5 s, for charts of the past (docs/counters.md).

Peers by family and protocol are counted by the sweep, so their samples change once per round of it. The samples are
distributions like any other, so they take bounded memory. One tracker of a store writes them.
"""

import asyncio
from collections.abc import Callable

from tracker.store.jobs.lease import Lease
from tracker.store.sharding.unavailable import noting_unavailable_shards
from tracker.store.stats.slices import SAMPLE_SECONDS, SAMPLED, SAMPLED_PARTS
from tracker.store.store import Store
from tracker.store.swarms.peer_counts import read_peer_counts
from tracker.workers.loop import Sleep, forever

LEASE_SECONDS = 15


class SizeSampler:
    """``clock`` returns epoch seconds."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sleep = sleep

    async def run(self) -> None:
        await forever(
            self.sample_once,
            SAMPLE_SECONDS,
            "cannot sample the numbers of peers and torrents",
            connection=self._store.connection,
            lease=Lease(self._store.scripts, "samples", "sizes", LEASE_SECONDS, self._clock),
            sleep=self._sleep,
        )

    async def sample_once(self) -> bool:
        """Adds one sample. False while a shard is unavailable, because the numbers are without its torrents then.
        Raises StoreUnavailable and RedisError."""
        store = self._store
        with noting_unavailable_shards() as unavailable:
            totals, torrents, users, peers = await asyncio.gather(
                store.counters.totals(),
                store.torrents.count(),
                store.users.count(),
                read_peer_counts(store.shards),
            )
        if unavailable:
            return False
        sizes = (totals["seeders"], totals["leechers"], torrents, users)
        for name, size in zip(SAMPLED, sizes, strict=True):
            store.counters.observe(name, size)
        if peers is not None:
            for name in SAMPLED_PARTS:
                store.counters.observe(name, getattr(peers, name.replace(".", "_")))
        return True
