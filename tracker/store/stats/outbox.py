"""Values that wait in the store for StatHat or StatsD, by the minute they were counted in: those of torrents in their
shards, all others under the main prefix.

Scripts write them with lua/lib/outbox.lua. A sender leases them, so several trackers send each value once. When a
sender dies, its lease ends and another tracker sends the values.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument, flattened
from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Shard, StorePart

MINUTE_SECONDS = 60
MAX_WAITING = 100_000
"""Values that may wait while the receiver is unavailable: days of a tracker's values, 10 MB. More are dropped and
counted."""


@dataclass(frozen=True, slots=True)
class OutboxBatch:
    """Values of one minute (its start in epoch s) to send; ``token`` identifies the lease. Names are bytes as stored,
    so that a malformed one can be deleted too."""

    minute: int
    token: bytes
    counts: Mapping[bytes, int]
    part: int = 0  # where the values wait: a place in ``Shards.all``


class Outbox(StorePart):
    """A shard that is unavailable is passed over: its values wait until it is back. Every method raises
    StoreUnavailable when the main store does not reply, else redis.exceptions.RedisError."""

    async def take(self, now: float, limit: int, seconds: float) -> list[OutboxBatch]:
        """Leases at most ``limit`` values of past minutes for ``seconds``, oldest first. Return them by
        ``acknowledge``, ``drop`` or ``release``."""
        others = await self._waiting_in_others()
        batches: list[OutboxBatch] = []
        for part, shard in enumerate(self._shards.all):
            left = limit - sum(len(batch.counts) for batch in batches)
            if left <= 0 or not others.get(shard, True):
                continue
            with self._passing_over(shard):
                minute = int(now) - int(now) % MINUTE_SECONDS
                reply = await shard.scripts.collect([f"{now:.3f}", minute, f"{now + seconds:.3f}", left])
                batches += [
                    OutboxBatch(int(start), token, dict(zip(found[::2], map(int, found[1::2]), strict=True)), part)
                    for start, token, found in reply
                ]
        return batches

    def _passing_over(self, shard: Shard) -> AbstractContextManager[None]:
        """A block in which this shard may become unavailable, unless it is the main one."""
        return suppress(*() if shard is self._shards.main else (StoreUnavailable,))

    async def acknowledge(self, batches: Sequence[OutboxBatch]) -> None:
        """Deletes sent values from the store; later counts stay. A repeated call does nothing."""
        await self._finish(0, [(batch, batch.counts) for batch in batches])

    async def drop(self, batches: Sequence[OutboxBatch]) -> None:
        """Deletes values that the receiver will never accept, and counts them as dropped."""
        await self._finish(1, [(batch, batch.counts) for batch in batches])

    async def release(self, batches: Sequence[OutboxBatch]) -> None:
        """Returns unsent values; any tracker may lease them again."""
        await self._finish(0, [(batch, {}) for batch in batches])

    async def _finish(self, dropped: int, batches: Sequence[tuple[OutboxBatch, Mapping[bytes, int]]]) -> None:
        """A shard that is unavailable meanwhile gives its values out once more, when their leases have ended. One call
        for all minutes of a shard: after an outage they may be a thousand, and announces wait for a reconnection."""
        parts = defaultdict[int, list[Argument]](list)
        for batch, counts in batches:
            parts[batch.part] += (batch.minute, batch.token, len(counts), *flattened(counts))
        for part, argv in parts.items():
            shard = self._shards.all[part]
            with self._passing_over(shard):
                await shard.scripts.acknowledge([dropped, *argv])

    async def waiting(self) -> int:
        own = int(await self._connection.command("GET", self._keys.outbox_waiting()) or 0)
        return own + sum((await self._waiting_in_others()).values())

    async def _waiting_in_others(self) -> dict[Shard, int]:
        """The values that wait in each other shard; 0 in one that is unavailable."""
        others = self._shards.others
        try:
            found = await self._shards.each(lambda shard: ("MGET", shard.keys.outbox_waiting()), others)
        except StoreUnavailable:
            found = {}
        return dict.fromkeys(others, 0) | {shard: whole(text) for shard, (text,) in found.items()}
