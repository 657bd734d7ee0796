"""Maintenance of home and all shards, one after the other."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from tracker.errors import StoreUnavailable
from tracker.store.maintenance.maintenance import EXAMPLES, Finding, Maintenance, Progress
from tracker.store.sharding.away import note_shards_away


class ShardedMaintenance(Maintenance):
    """``home`` also deletes the unique users of all shards. Shards that are away are passed over, but statistics are
    wiped in all of them or not to the end."""

    def __init__(self, home: Maintenance, shards: Sequence[Maintenance]) -> None:
        self._home = home
        self._parts = (home, *shards)

    async def cleanup(self, dry_run: bool = True, progress: Progress = lambda _: None) -> list[Finding]:
        return _merged(await self._of_all(lambda part: part.cleanup(dry_run, progress)))

    async def cleanup_libraries(self, dry_run: bool = True) -> list[Finding]:
        return await self._home.cleanup_libraries(dry_run)

    async def _of_all(self, call: Callable[[Maintenance], Awaitable[list[Finding]]]) -> list[list[Finding]]:
        """The findings of home, and of the shards that are not away."""
        found = [await call(self._home)]
        for number, shard in enumerate(self._parts[1:]):
            try:
                found.append(await call(shard))
            except StoreUnavailable:
                note_shards_away([number])
        return found

    async def wipe_statistics(self, uniques: bool = False) -> AsyncIterator[int]:
        removed = total = 0
        for part in self._parts:
            removed = total
            async for number in part.wipe_statistics(uniques and part is self._home):
                total = removed + number
                yield total

    async def reindex(self, progress: Progress = lambda _: None) -> list[Finding]:
        return _merged(await self._of_all(lambda part: part.reindex(progress)))

    async def key_count(self) -> int:
        return await self._home.key_count()


def _merged(parts: Sequence[Sequence[Finding]]) -> list[Finding]:
    """The findings of all parts by kind, the largest first."""
    merged: dict[str, Finding] = {}
    for finding in (finding for part in parts for finding in part):
        known = merged.setdefault(finding.kind, Finding(finding.kind))
        known.count += finding.count
        known.changed += finding.changed
        known.examples = (known.examples + finding.examples)[:EXAMPLES]
    return sorted(merged.values(), key=lambda finding: -finding.count)
