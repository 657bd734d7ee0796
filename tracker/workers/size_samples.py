"""Samples the numbers of peers, torrents and users every 5 s, for charts of the past (docs/counters.md).

Peers by family and protocol are counted by the sweep, so their samples change once per round of it. The samples are
distributions like any other, so they take bounded memory. One tracker of a store writes them.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.sharding.away import noting_shards_away
from tracker.store.stats.size_samples import SAMPLE_SECONDS, SAMPLED, SAMPLED_PARTS
from tracker.store.store import Store
from tracker.store.swarms.peer_counts import read_peer_counts

log = structlog.get_logger("tracker.samples")


class SizeSampler:
    """``clock`` returns epoch seconds."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sleep = sleep
        self._token = secrets.token_hex(8)

    async def run(self) -> None:
        """Runs until cancelled; survives errors of the store."""
        try:
            while True:
                try:
                    await self.sample_once()
                except StoreUnavailable:
                    await self._store.connection.until_available()
                except RedisError as error:
                    log.error("cannot sample the numbers of peers and torrents", error=str(error))
                await self._sleep(SAMPLE_SECONDS)
        finally:
            await asyncio.shield(self._release())

    async def sample_once(self) -> bool:
        """Adds one sample. False where another tracker does that, and while a shard is away, because the numbers lack
        its torrents. Raises StoreUnavailable and RedisError."""
        store = self._store
        if not await store.size_samples.take(self._token, int(self._clock())):
            return False
        with noting_shards_away() as away:
            totals, torrents, users, peers = await asyncio.gather(
                store.counters.totals(),
                store.torrents.count(),
                store.users.count(),
                read_peer_counts(store.shards),
            )
        if away:
            return False
        sizes = (totals["seeders"], totals["leechers"], torrents, users)
        for name, size in zip(SAMPLED, sizes, strict=True):
            store.counters.observe(name, size)
        if peers is not None:
            for name in SAMPLED_PARTS:
                store.counters.observe(name, getattr(peers, name.replace(".", "_")))
        return True

    async def _release(self) -> None:
        """A lease that cannot be released ends by itself."""
        with suppress(StoreUnavailable, RedisError):
            await self._store.size_samples.release(self._token, int(self._clock()))
