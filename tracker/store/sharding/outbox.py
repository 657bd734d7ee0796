"""The values that wait for StatHat or StatsD: those of torrents in their shards, all others at home."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from tracker.errors import StoreUnavailable
from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.stats.outbox import Outbox, OutboxBatch


class ShardedOutbox(Outbox):
    """A shard that is away is passed over: its values wait until it is back."""

    def __init__(self, shards: Shards, home: Outbox, parts: Sequence[Outbox]) -> None:
        self._shards = shards
        self._parts = (home, *parts)

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
        return [0, *(shard.number + 1 for shard, values in (await self._waiting()).items() if values)]

    async def _waiting(self) -> dict[Shard, int]:
        """The values that wait in each shard that is not away."""
        try:
            found = await self._shards.several(lambda shard: [("GET", shard.keys.outbox_waiting())])
        except StoreUnavailable:
            return {}
        return {shard: whole(text) for shard, (text,) in found.items() if isinstance(text, bytes)}

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
        return await self._parts[0].waiting() + sum((await self._waiting()).values())
