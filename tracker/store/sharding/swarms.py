"""The swarms of all shards: sends each announce to its shard, and puts scrapes of several shards together."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tracker.bittorrent import InfoHash
from tracker.errors import StoreOverloaded, StoreUnavailable
from tracker.store.client.batching import Settle
from tracker.store.sharding.shards import Shards
from tracker.store.swarms.announce_counts import AnnounceCounts, Pause
from tracker.store.swarms.codec import Admitted, PeerUpdate, Refused
from tracker.store.swarms.swarms import MAX_BATCH, Figures, Swarms, ignore_join
from tracker.store.swarms.unanswered import OnJoin


class ShardedSwarms(Swarms):
    """At most ``max_waiting`` announces wait, in all shards together; a full batch of each shard may be more."""

    def __init__(self, shards: Shards, max_waiting: int) -> None:
        self._shards = shards
        self._all = [shard.swarms for shard in shards]
        self._announces = [swarms.announces for swarms in self._all]
        self._max_waiting = max_waiting

    @property
    def waiting(self) -> int:
        return sum(swarms.waiting for swarms in self._all)

    @property
    def in_flight(self) -> int:
        return sum(swarms.in_flight for swarms in self._all)

    async def run(self, on_late_join: OnJoin = ignore_join) -> None:
        async with asyncio.TaskGroup() as tasks:
            for swarms in self._all:
                tasks.create_task(swarms.run(on_late_join))

    def submit(self, update: PeerUpdate, settle: Settle, context: Any) -> None:
        all_announces = self._announces
        announces = all_announces[update[0][0] % len(all_announces)]
        own = announces.waiting
        # The sum over all shards is too dear for each announce.
        if own and own % MAX_BATCH == 0 and self.waiting >= self._max_waiting:
            raise StoreOverloaded("too many requests wait for the store")
        announces.submit(update, settle, context)

    async def announce(self, update: PeerUpdate) -> Admitted | Refused:
        return await self._shards.of(update.info_hash).swarms.announce(update)

    def submit_scrape(
        self, info_hashes: Sequence[InfoHash], passkey: str, settle: Settle, context: Any
    ) -> None:
        parts: dict[Swarms, list[InfoHash]] = {}
        for info_hash in info_hashes:
            parts.setdefault(self._shards.of(info_hash).swarms, []).append(info_hash)
        if len(parts) <= 1:
            swarms = next(iter(parts), None) or self._any
            swarms.submit_scrape(info_hashes, passkey, settle, context)
            return
        whole = _Scrape(info_hashes, len(parts), settle, context)
        for swarms, part in parts.items():
            try:
                swarms.submit_scrape(part, passkey, _add_parts, whole)
            except StoreUnavailable as error:
                whole.add_part(error)

    @property
    def _any(self) -> Swarms:
        """The swarms of a shard that is not away."""
        away = self._shards.away
        return next((shard.swarms for shard in self._shards if shard.number not in away), self._all[0])

    async def scrape(self, info_hashes: Sequence[InfoHash], passkey: str = "") -> Figures | Refused:
        future: asyncio.Future[Figures | Refused | StoreUnavailable]
        future = asyncio.get_running_loop().create_future()

        def settle(settled: list[tuple[Any, Any]], batch: Any) -> None:
            del batch
            if not future.done():
                future.set_result(settled[0][1])

        self.submit_scrape(info_hashes, passkey, settle, None)
        outcome = await future
        if isinstance(outcome, StoreUnavailable):
            raise outcome
        return outcome

    async def scrape_all(self, passkey: str = "") -> Figures | Refused:
        """As with one shard, without the torrents of shards that are away."""
        files: Figures = {}
        for shard in self._shards:
            try:
                found = await shard.swarms.scrape_all(passkey)
            except StoreUnavailable as error:
                self._shards.leave_out([shard.number], error)
                continue
            if isinstance(found, Refused):
                return found
            files |= found
        return files


class ShardedAnnounceCounts(AnnounceCounts):
    """The counts of all shards, which are written together."""

    def __init__(self, shards: Shards) -> None:
        self._parts = [shard.announce_counts for shard in shards]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    async def flush(self, pause: Pause | None = None) -> None:
        if pause is None:
            await asyncio.gather(*(part.flush() for part in self._parts))
            return
        for part in self._parts:
            await part.flush(pause)


class _Scrape:
    """A scrape of torrents of several shards. Its outcome is complete when all parts have arrived. It leaves out the
    torrents of shards that are away, unless all of them are; any other failure of a part fails all of it."""

    def __init__(self, info_hashes: Sequence[InfoHash], parts: int, settle: Settle, context: Any) -> None:
        self._info_hashes = info_hashes
        self._missing = parts
        self._settle = settle
        self._context = context
        self._files: Figures = {}
        self._failed: Refused | StoreUnavailable | None = None
        self._away: StoreUnavailable | None = None

    def add_part(self, outcome: Figures | Refused | StoreUnavailable) -> None:
        if isinstance(outcome, dict):
            self._files |= outcome
        elif isinstance(outcome, StoreUnavailable) and not isinstance(outcome, StoreOverloaded):
            self._away = outcome
        else:
            self._failed = outcome
        self._missing -= 1
        if not self._missing:
            away = None if self._files else self._away
            self._settle([(self._context, self._failed or away or self._in_order())], None)

    def _in_order(self) -> Figures:
        return {each: self._files[each] for each in self._info_hashes if each in self._files}


def _add_parts(settled: list[tuple[_Scrape, Any]], batch: Any) -> None:
    del batch
    for whole, outcome in settled:
        whole.add_part(outcome)
