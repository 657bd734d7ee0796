"""Values that wait in the store for StatHat or StatsD, by the minute they were counted in.

Scripts write them with lua/lib/outbox.lua. A sender leases them, so several trackers send each value once. When a
sender dies, its lease ends and another tracker sends the values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys

MINUTE_SECONDS = 60
MAX_WAITING = 100_000
"""Values that may wait while the receiver is unavailable: days of a tracker's values, 10 MB. More are dropped and
counted."""


@dataclass(frozen=True, slots=True)
class OutboxBatch:
    """Values of one minute (its start in epoch s) to send; ``token`` identifies the lease.

    Names are bytes as stored, so that a malformed one can be deleted too.
    """

    minute: int
    token: bytes
    counts: Mapping[bytes, int]
    part: int = 0
    """With several shards: where the values wait, 0 under the main prefix."""


class Outbox:
    """Every method raises StoreUnavailable when the store does not reply, else redis.exceptions.RedisError."""

    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys) -> None:
        self._connection = connection
        self._collect = scripts.collect
        self._acknowledge = scripts.acknowledge
        self._keys = keys

    async def take(self, now: float, limit: int, seconds: float) -> list[OutboxBatch]:
        """Leases at most ``limit`` values of past minutes for ``seconds``, oldest first.

        Return them by ``acknowledge``, ``drop`` or ``release``.
        """
        minute = int(now) - int(now) % MINUTE_SECONDS
        reply = await self._collect([f"{now:.3f}", minute, f"{now + seconds:.3f}", limit])
        return [
            OutboxBatch(int(start), token, {s: int(n) for s, n in zip(found[::2], found[1::2], strict=True)})
            for start, token, found in reply
        ]

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
        argv: list[str | bytes | int] = [dropped]
        for batch, counts in batches:
            argv += [batch.minute, batch.token, len(counts)]
            argv += [part for pair in counts.items() for part in pair]
        if batches:
            await self._acknowledge(argv)

    async def waiting(self) -> int:
        """The number of values that wait."""
        return int(await self._connection.command("GET", self._keys.outbox_waiting()) or 0)
