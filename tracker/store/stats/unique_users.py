"""Unique users by torrent and location: counted once in 30 days, read as counts and leaderboards.

One script changes the counts of a batch and their markers. A batch whose reply was lost is sent again and counts
once. metric_names.py has the names, docs/uniques.md the modes.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal, NamedTuple

from redis.exceptions import OutOfMemoryError

from tracker.bittorrent import InfoHash
from tracker.store.client.pipe import Argument
from tracker.store.schema.keys import BOARDS, SCOPES
from tracker.store.schema.lenient_numbers import ranked, score, whole
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import Shard, Shards, StorePart, scan
from tracker.store.stats.memory_usage import Memory
from tracker.store.stats.metric_names import PlaceNames
from tracker.store.stats.slices import ALL_TIME, MONTHS_KEPT, month_of, month_start
from tracker.system.logger import Logger

MAX_BATCH = 64
_SCAN = 1000
_HASH = re.compile("[0-9a-f]{40}", re.ASCII)
_OF_TORRENT = re.compile(r"torrents\.([0-9a-f]{40})\.", re.ASCII)

log = Logger("tracker.store")


class UniqueUserEvent(NamedTuple):
    """A peer joined a torrent. ``user`` is the address or network that counts (``metric_names.user_name``)."""

    info_hash: InfoHash
    user: str
    place: PlaceNames


@dataclass(frozen=True, slots=True)
class UniqueRules:
    """How users are counted, and which counts go to the outbox. ``secret`` keys the hashes of mode hashed."""

    mode: Literal["exact", "hashed", "hyperloglog"] = "exact"
    secret: bytes = b""
    max_outbox: int = 0  # maximum number of values in the outbox; 0 exports none
    export_torrents: bool = False  # whether counts of torrents go to the outbox too
    export_places: bool = True  # whether counts of cities and postcodes go to the outbox, besides those of countries


class LeaderboardEntry(NamedTuple):
    """``name`` is a location or an info hash in hex."""

    name: str
    users: int


class UniqueUsers(StorePart):
    """Torrents and their places are counted in their shards, places of the world under the main prefix. Each count has
    markers of its own, so each is counted once. If the tracker is killed between the calls, an event is counted in one
    of the two places only."""

    def __init__(self, shards: Shards, rules: UniqueRules | None = None) -> None:
        super().__init__(shards)
        self._rules = rules or UniqueRules()
        self.skipped = 0
        """Events that were not counted because the store was nearly full."""
        self.dropped = 0
        """Events that were not counted for their torrents, because a shard was unavailable."""
        self._memory = {shard: Memory(shard.connection) for shard in shards.all}

    def use_secret(self, secret: bytes) -> None:
        """Hashes users with ``secret`` from now on, in mode hashed."""
        self._rules = replace(self._rules, secret=secret)

    async def count(self, batch: Sequence[UniqueUserEvent], now: float) -> int:
        """Counts at most 64 events, under a prefix all or none; returns how many addresses were new to a torrent.

        Events of other shards that are unavailable count for places only, and are added to ``dropped``. While the store
        is nearly full, events that need a marker are not counted, but added to ``skipped``.

        Raises StoreUnavailable when the result is unknown: the same batch may be sent again.
        """
        if len(batch) > MAX_BATCH:
            raise ValueError(f"at most {MAX_BATCH} events at a time")
        main, unavailable = self._shards.main, self._shards.unavailable
        parts = self._shards.by_shard(batch, lambda event: event.info_hash)
        parts.pop(main, None)
        present = {shard: events for shard, events in parts.items() if shard.number not in unavailable}
        max_outbox = -(-self._rules.max_outbox // len(self._shards))
        new = await asyncio.gather(
            *(self._count_in(shard, events, now, max_outbox) for shard, events in present.items())
        )
        new_in_main = await self._count_in(main, batch, now, self._rules.max_outbox)
        self.dropped += sum(len(events) for shard, events in parts.items() if shard not in present)
        return sum(new) + new_in_main

    async def _count_in(self, shard: Shard, batch: Sequence[UniqueUserEvent], now: float, max_outbox: int) -> int:
        if not batch:
            return 0
        rules = self._rules
        month, until = month_of(now), int(month_start(now, 1 + MONTHS_KEPT).timestamp())
        argv: list[Argument] = [int(now), month, until]
        estimates = rules.mode == "hyperloglog"
        nearly_full = not estimates and await self._memory[shard].nearly_full()
        flags = (rules.export_torrents, rules.export_places, nearly_full)
        argv += [max_outbox, *map(int, flags), " ".join(SCOPES[1:]), int(estimates), *map(self._pack, batch)]
        try:
            new, failed, skipped = await shard.scripts.count_unique(argv)
        except OutOfMemoryError:
            if not nearly_full:
                raise
            new, failed, skipped = 0, 0, len(batch)
        self.skipped += int(skipped)
        if failed:
            log.error("keys of unique users have a wrong type", failed=failed)
        return int(new)

    def _pack(self, event: UniqueUserEvent) -> bytes:
        """One event as the scripts read it."""
        user = event.user.encode()
        if self._rules.mode == "hashed":
            user = (
                blake2b(user, digest_size=16, key=self._rules.secret[:64], person=b"unique users").hexdigest().encode()
            )
        texts = (user, *(name.encode() for name in event.place))
        lengths_and_texts = b"".join(b"%c%b" % (len(text), text) for text in texts)
        return event.info_hash.hex().encode() + lengths_and_texts

    async def users_of(self, metric: str, month: str | None = None) -> int:
        """The users of a metric, of all time or of a month (``YYYY-MM``); 0 for a value of another type."""
        match = _OF_TORRENT.match(metric)
        shard = self._shards.of(InfoHash(bytes.fromhex(match[1]))) if match else self._shards.main
        key = shard.keys.unique_month(metric, month) if month else shard.keys.unique(metric)
        return whole(await shard.connection.command("GET", key))

    async def may_exceed(self, period: str = ALL_TIME) -> int:
        """By how much the counts of a period (``all`` or a month) may be too high, because markers were deleted to
        make room."""
        read = self._connection.command("HGET", self._keys.unique_forgotten(), period)
        own = await self._shards.main_or(read, None)
        parts = await self._shards.each(
            lambda shard: ("HGET", shard.keys.unique_forgotten(), period), self._shards.others
        )
        return sum(map(whole, (own, *parts.values())))

    async def with_users(self, periods: Sequence[str]) -> list[str]:
        """Those of ``periods`` that have users. Users without a location count for torrents only, those of removed
        torrents for countries only."""
        index = self._keys.unique_index
        found = await self._connection.pipeline(
            *(("EXISTS", index(SCOPES[0], each), index("torrents", each)) for each in periods)
        )
        known = {period for period, boards in zip(periods, found, strict=True) if boards}
        others = [(shard, each) for shard in self._shards.others for each in periods if each not in known]
        replies = await self._shards.ask(
            [(shard, ("EXISTS", shard.keys.unique_index("torrents", each))) for shard, each in others]
        )
        known |= {each for (_, each), exists in zip(others, replies, strict=True) if exists}
        return [period for period in periods if period in known]

    async def top(self, scope: str, period: str = ALL_TIME, count: int = 10, offset: int = 0) -> list[LeaderboardEntry]:
        """Most users first; ``scope`` is one of BOARDS, ``period`` ``all`` or a month."""
        if scope != "torrents":
            main = self._shards.main
            return await _ranked(main, main.keys.unique_index(scope, period), count, offset)
        pairs = await top_of(self._shards, lambda shard: shard.keys.unique_index(scope, period), count, offset)
        return [LeaderboardEntry(name, score(users)) for name, users in pairs]

    async def places(self, info_hash: InfoHash, count: int = 10, offset: int = 0) -> list[tuple[str, LeaderboardEntry]]:
        """(one of SCOPES, place) where a torrent was seen, of all time, most users first."""
        shard = self._shards.of(info_hash)
        entries = await _ranked(shard, shard.keys.torrent_places(info_hash), count, offset)
        parted = [(*entry.name.partition("."), entry.users) for entry in entries]
        return [(scope, LeaderboardEntry(name, users)) for scope, _, name, users in parted]

    async def torrents_at(self, scope: str, place: str, candidates: int = 1000) -> list[LeaderboardEntry]:
        """Torrents by their users from a place, of all time, most users first. ``scope`` is one of SCOPES. Only the
        ``candidates`` torrents with the most users are looked at."""
        torrents = [entry.name for entry in await self.top("torrents", ALL_TIME, candidates)]
        known = [InfoHash(bytes.fromhex(name)) for name in torrents if _HASH.fullmatch(name)]
        of, member = self._shards.of, f"{scope}.{place}"
        scores = await self._shards.send(
            [(shard := of(each), ("ZSCORE", shard.keys.torrent_places(each), member)) for each in known],
            keep_errors=True,
        )
        users = [0 if isinstance(found, Exception) else whole(found) for found in scores]  # a key of another type
        entries = [LeaderboardEntry(each.hex(), n) for each, n in zip(known, users, strict=True) if n > 0]
        return sorted(entries, key=lambda entry: (-entry.users, entry.name))

    async def flush(self) -> AsyncIterator[int]:
        """Deletes all counts, markers, estimates and leaderboards of unique users; yields the number of keys so far. It
        keeps torrents, scores, counters and the outbox. Users who join meanwhile may count again later."""
        removed = 0
        for shard in self._shards.all:
            async for number in _flush(shard):
                removed += number
                yield removed


async def _ranked(shard: Shard, board: str, count: int, offset: int) -> list[LeaderboardEntry]:
    how = ("ZRANGE", board, offset, offset + count - 1, "REV", "WITHSCORES")
    return [LeaderboardEntry(name, users) for name, users in ranked(await shard.connection.command(*how))]


async def _flush(shard: Shard) -> AsyncIterator[int]:
    """Yields how many keys of each page were deleted."""
    prefix = shard.keys.prefix
    heads = (*(f"{board}." for board in BOARDS), "hll:", "i:unique:")
    letters, ours = {head[0] for head in heads}, tuple(f"{prefix}{head}".encode() for head in heads)
    yield int(await shard.connection.command("UNLINK", shard.keys.unique_forgotten()))
    how = ("MATCH", f"{prefix}[{''.join(sorted(letters))}]*", "COUNT", _SCAN)
    async for keys in scan(shard.connection, ("SCAN",), *how):
        doomed = [key for key in keys if key.startswith(ours)]
        yield int(await shard.connection.command("UNLINK", *doomed)) if doomed else 0
