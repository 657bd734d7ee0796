"""The values that wait for StatHat or StatsD: those of torrents in their shards, all others at home."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from tracker.errors import StoreUnavailable
from tracker.store.stats.outbox import Outbox, OutboxBatch


class ShardedOutbox(Outbox):
    """A shard that is away is passed over: its values wait until it is back."""

    def __init__(self, home: Outbox, shards: Sequence[Outbox]) -> None:
        self._parts = (home, *shards)

    async def take(self, now: float, limit: int, seconds: float) -> list[OutboxBatch]:
        batches: list[OutboxBatch] = []
        for number in await self._filled():
            left = limit - sum(len(batch.counts) for batch in batches)
            if left <= 0:
                break
            with suppress(StoreUnavailable):
                taken = await self._parts[number].take(now, left, seconds)
                batches += [replace(batch, part=number) for batch in taken]
        return batches

    async def _filled(self) -> list[int]:
        """The parts where values wait; home is always one of them, so that its absence shows."""
        waiting = await asyncio.gather(*(part.waiting() for part in self._parts[1:]), return_exceptions=True)
        return [
            0,
            *(number for number, values in enumerate(waiting, 1) if isinstance(values, int) and values),
        ]

    async def acknowledge(self, batches: Sequence[OutboxBatch]) -> None:
        await self._by_part(batches, lambda part, some: part.acknowledge(some))

    async def drop(self, batches: Sequence[OutboxBatch]) -> None:
        await self._by_part(batches, lambda part, some: part.drop(some))

    async def release(self, batches: Sequence[OutboxBatch]) -> None:
        await self._by_part(batches, lambda part, some: part.release(some))

    async def _by_part(
        self, batches: Sequence[OutboxBatch], call: Callable[[Outbox, list[OutboxBatch]], Awaitable[None]]
    ) -> None:
        """A shard that is away meanwhile gives its values out once more, when their leases have ended."""
        parts = defaultdict[int, list[OutboxBatch]](list)
        for batch in batches:
            parts[batch.part].append(batch)
        for number, some in parts.items():
            try:
                await call(self._parts[number], some)
            except StoreUnavailable:
                if number == 0:
                    raise

    async def waiting(self) -> int:
        home, *shards = self._parts
        found = await asyncio.gather(*(part.waiting() for part in shards), return_exceptions=True)
        return await home.waiting() + sum(values for values in found if isinstance(values, int))
