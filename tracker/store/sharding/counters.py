"""Counters, with the totals that the scripts of swarms keep in each shard."""

from typing import Any

from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Shards
from tracker.store.stats.counters import Counters
from tracker.store.stats.series import FIGURES


class ShardedCounters(Counters):
    def __init__(self, shards: Shards, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._shards = shards

    async def totals(self) -> dict[str, int]:
        totals = await super().totals()
        parts = await self._shards.each(lambda shard: ("MGET", *(shard.keys.stat(name) for name in FIGURES)))
        for part in parts.values():
            for name, value in zip(FIGURES, part, strict=True):
                totals[name] += whole(value)
        return totals
