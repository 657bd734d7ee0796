"""The scores of all shards: due torrents of one shard after the other, and rankings that are merged."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tracker.errors import StoreUnavailable
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import ScanCursors, Shard, Shards
from tracker.store.torrents.scores import Finished, Lag, Scored, ScorePlace, Scores, Taken

SHARDS_A_CALL = 4
"""Shards that one call of ``take`` asks until one has due torrents. An idle tracker asks so many a second."""
_Item = TypeVar("_Item", Scored, Taken)
_Result = TypeVar("_Result")


class ShardedScores(Scores):
    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._cursors = ScanCursors(shards)
        self._next = 0

    # Scoring

    async def take(self, count: int) -> list[Taken]:
        """Takes due torrents of one shard; the next call begins with the next shard. Shards that are away are passed
        over."""
        for _ in range(min(SHARDS_A_CALL, len(self._shards))):
            shard = self._shards[self._next]
            self._next = (self._next + 1) % len(self._shards)
            try:
                taken = await shard.scores.take(count)
            except StoreUnavailable as error:
                self._shards.leave_out([shard.number], error)
                continue
            if taken:
                return taken
        return []

    async def take_one(self, torrent_id: str) -> Taken | None:
        found = await self._shards.find_torrent(torrent_id)
        return await found[0].scores.take_one(torrent_id) if found else None

    async def finish(self, results: Sequence[Scored]) -> Finished:
        found = await self._by_shard(
            results, lambda result: result.taken, lambda shard, part: shard.scores.finish(part)
        )
        return Finished(sum(each.counted for each in found), tuple(id for each in found for id in each.void))

    async def give_back(self, taken: Sequence[Taken]) -> None:
        await self._by_shard(taken, lambda each: each, lambda shard, part: shard.scores.give_back(part))

    async def _by_shard(
        self,
        items: Sequence[_Item],
        taken_of: Callable[[_Item], Taken],
        call: Callable[[Shard, list[_Item]], Awaitable[_Result]],
    ) -> list[_Result]:
        parts = defaultdict[Shard, list[_Item]](list)
        for item in items:
            parts[self._shards.of(taken_of(item).info_hash)].append(item)
        return list(await asyncio.gather(*(call(shard, part) for shard, part in parts.items())))

    async def reset(self, torrent_ids: Sequence[str]) -> int:
        parts = defaultdict[Shard, list[str]](list)
        for torrent_id, (shard, _) in (await self._shards.find_torrents(torrent_ids)).items():
            parts[shard].append(torrent_id)
        return sum(await asyncio.gather(*(shard.scores.reset(part) for shard, part in parts.items())))

    # Reading

    async def count(self) -> int:
        return sum((await self._shards.each(lambda shard: ("ZCARD", shard.keys.index("score")))).values())

    async def top(self, count: int, offset: int = 0) -> list[tuple[str, float]]:
        return await top_of(self._shards, lambda shard: shard.keys.index("score"), count, offset)

    async def of(self, torrent_ids: Sequence[str]) -> list[float | None]:
        found = await self._shards.find_torrents(torrent_ids)
        known = list(found.items())
        scores = await self._shards.send(
            [(shard, ("ZSCORE", shard.keys.index("score"), id)) for id, (shard, _) in known]
        )
        by_id = {
            torrent_id: float(score)
            for (torrent_id, _), score in zip(known, scores, strict=True)
            if score is not None
        }
        return [by_id.get(torrent_id) for torrent_id in torrent_ids]

    async def page_by_seeders(self, cursor: str, count: int) -> tuple[str, list[tuple[str, float]]]:
        async def read(shard: Shard, own: int) -> tuple[int, list[tuple[str, float]]]:
            after, found = await shard.scores.page_by_seeders(str(own), count)
            return int(after), found

        after, found = await self._cursors.page(int(cursor), read)
        return str(after), found

    async def place(self, torrent_id: str) -> ScorePlace | None:
        found = await self._shards.find_torrent(torrent_id)
        place = await found[0].scores.place(torrent_id) if found else None
        if found is None or place is None:
            return None
        (score,) = await self.of([torrent_id])
        higher = await self._shards.each(
            lambda shard: ("ZCOUNT", shard.keys.index("score"), f"({score!r}", "+inf")
        )
        others = sum(number for shard, number in higher.items() if shard is not found[0])
        return ScorePlace(
            place.rank + others,
            await self.count(),
            place.last_processed,
            place.next_turn,
            place.being_scored,
        )

    async def lag(self) -> Lag:
        parts = await self._shards.several(lambda shard: shard.scores._lag_commands())
        lags = [shard.scores._lag_of(replies) for shard, replies in parts.items()]
        return Lag(
            sum(each.count for each in lags),
            sum(each.waiting for each in lags),
            sum(each.late for each in lags),
            max(each.longest_seconds for each in lags),
        )
