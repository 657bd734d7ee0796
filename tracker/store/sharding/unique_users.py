"""Unique users: torrents and their places in shards, places of the world at home.

One event is counted in two calls. Each count has markers of its own, so each is counted once. If the tracker is killed
between the calls, the event is counted in one of the two places only.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace

from tracker.bittorrent import InfoHash
from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.stats.markers import Markers
from tracker.store.stats.months import ALL_TIME
from tracker.store.stats.unique_users import LeaderboardEntry, UniqueRules, UniqueUserEvent, UniqueUsers

_OF_TORRENT = re.compile(r"torrents\.([0-9a-f]{40})\.", re.ASCII)


class ShardedUniqueUsers(UniqueUsers):
    def __init__(
        self, connection: Connection, scripts: Scripts, keys: Keys, rules: UniqueRules, shards: Shards
    ) -> None:
        super().__init__(connection, scripts, keys, rules)
        self._shards = shards
        own = replace(rules, max_outbox=-(-rules.max_outbox // len(shards)))
        self._parts = [UniqueUsers(shard.connection, shard.scripts, shard.keys, own) for shard in shards]

    def use_secret(self, secret: bytes) -> None:
        for part in self._parts:
            part.use_secret(secret)
        super().use_secret(secret)

    async def count(self, batch: Sequence[UniqueUserEvent], now: float) -> int:
        """As with one shard. Events of shards that are away count for places only, and are added to ``dropped``."""

        async def count_part(part: UniqueUsers, events: Sequence[UniqueUserEvent]) -> list[int]:
            return [await part.count(events, now)] + [0] * (len(events) - 1)

        away = self._shards.away
        present = [event for event in batch if self._shards.of(event.info_hash).number not in away]
        new = await self._shards.split(
            present,
            lambda event: event.info_hash,
            lambda shard, events: count_part(self._parts[shard.number], events),
        )
        await super().count(batch, now)
        self.dropped += len(batch) - len(present)
        return sum(new)

    async def users_of(self, metric: str, month: str | None = None) -> int:
        match = _OF_TORRENT.match(metric)
        if match is None:
            return await super().users_of(metric, month)
        return await self._part_of(InfoHash(bytes.fromhex(match[1]))).users_of(metric, month)

    def _part_of(self, info_hash: InfoHash) -> UniqueUsers:
        return self._parts[self._shards.of(info_hash).number]

    async def may_exceed(self, period: str = ALL_TIME) -> int:
        parts = await self._shards.each(lambda shard: ("HGET", shard.keys.unique_forgotten(), period))
        return await super().may_exceed(period) + sum(map(whole, parts.values()))

    async def with_users(self, periods: Sequence[str]) -> list[str]:
        known = await super().with_users(periods)
        while others := [period for period in periods if period not in known]:
            shard, number = max((await self._with_torrents(others)).items(), key=lambda each: each[1])
            if not number:
                break
            # The shard with most of them tells which these are; the next round asks all shards for the rest.
            keys = [shard.keys.unique_index("torrents", each) for each in others]
            exist = await self._shards.send([(shard, ("EXISTS", key)) for key in keys])
            if not any(exist):  # they have just expired
                break
            known += [period for period, exists in zip(others, exist, strict=True) if exists]
        return [period for period in periods if period in known]

    async def _with_torrents(self, periods: Sequence[str]) -> dict[Shard, int]:
        """Of how many of ``periods`` each shard has torrents with users."""
        return await self._shards.each(
            lambda shard: ("EXISTS", *(shard.keys.unique_index("torrents", each) for each in periods))
        )

    async def top(
        self, scope: str, period: str = ALL_TIME, count: int = 10, offset: int = 0
    ) -> list[LeaderboardEntry]:
        if scope != "torrents":
            return await super().top(scope, period, count, offset)
        pairs = await top_of(
            self._shards, lambda shard: shard.keys.unique_index(scope, period), count, offset
        )
        return [LeaderboardEntry(name, int(users)) for name, users in pairs]

    async def places(
        self, info_hash: InfoHash, count: int = 10, offset: int = 0
    ) -> list[tuple[str, LeaderboardEntry]]:
        return await self._part_of(info_hash).places(info_hash, count, offset)

    async def _users_from(self, info_hashes: Sequence[InfoHash], place: str) -> list[int]:
        return await self._shards.split(
            info_hashes,
            lambda info_hash: info_hash,
            lambda shard, part: self._parts[shard.number]._users_from(part, place),
        )

    async def flush(self) -> AsyncIterator[int]:
        removed = total = 0
        for part in (super().flush, *(part.flush for part in self._parts)):
            removed = total
            async for number in part():
                total = removed + number
                yield total


class ShardedMarkers(Markers):
    """The markers at home and in all shards. A shard that is away keeps its markers."""

    def __init__(self, home: Markers, shards: Sequence[Markers]) -> None:
        self._home = home
        self._parts = (home, *shards)

    async def refused_joins(self) -> int:
        return await self._home.refused_joins()

    async def make_room(self) -> AsyncIterator[int]:
        deleted = total = 0
        for part in self._parts:
            deleted = total
            with suppress(StoreUnavailable):
                async for number in part.make_room():
                    total = deleted + number
                    yield total
