"""Unique users by torrent and location: counted once in 30 days, read as counts and leaderboards.

One script changes the counts of a batch and their markers. A batch whose reply was lost is sent again and counts
once. metric_names.py has the names, docs/uniques.md the modes.
"""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal, NamedTuple

import structlog
from redis.exceptions import OutOfMemoryError

from tracker.bittorrent import InfoHash
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.lenient_numbers import ranked, whole
from tracker.store.stats.memory_usage import Memory
from tracker.store.stats.metric_names import SCOPES, PlaceNames
from tracker.store.stats.months import ALL_TIME, MONTHS_KEPT, month_of, month_start

MAX_BATCH = 64
BOARDS = (*SCOPES, "torrents")
_SCAN = 1000
_HASH = re.compile("[0-9a-f]{40}", re.ASCII)

log = structlog.get_logger("tracker.store")


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
    max_outbox: int = 0
    """Maximum number of values in the outbox; 0 exports none."""
    export_torrents: bool = False
    """Whether counts of torrents go to the outbox too."""
    export_places: bool = True
    """Whether counts of cities and postcodes go to the outbox, besides those of countries."""


class LeaderboardEntry(NamedTuple):
    """``name`` is a location or an info hash in hex."""

    name: str
    users: int


class UniqueUsers:
    """The unique users of one prefix."""

    def __init__(
        self, connection: Connection, scripts: Scripts, keys: Keys, rules: UniqueRules | None = None
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._rules = rules or UniqueRules()
        self.skipped = 0
        """Events that were not counted because the store was nearly full."""
        self.dropped = 0
        """Events that were not counted for their torrents, because a shard was unavailable."""
        self._memory = Memory(connection)
        self._script = scripts.estimate_unique if self._rules.mode == "hyperloglog" else scripts.count_unique

    def use_secret(self, secret: bytes) -> None:
        """Hashes users with ``secret`` from now on, in mode hashed."""
        self._rules = replace(self._rules, secret=secret)

    async def count(self, batch: Sequence[UniqueUserEvent], now: float) -> int:
        """Counts at most 64 events, all or none; returns how many addresses were new to a torrent.

        While the store is nearly full, events that need a marker are not counted, but added to ``skipped``.

        Raises StoreUnavailable when the result is unknown: the same batch may be sent again.
        """
        if len(batch) > MAX_BATCH:
            raise ValueError(f"at most {MAX_BATCH} events at a time")
        if not batch:
            return 0
        rules = self._rules
        month, until = month_of(now), int(month_start(now, 1 + MONTHS_KEPT).timestamp())
        argv: list[str | bytes | int | float] = [int(now), month, until]
        nearly_full = rules.mode != "hyperloglog" and await self._memory.nearly_full()
        flags = (rules.export_torrents, rules.export_places, nearly_full)
        argv += [rules.max_outbox, *map(int, flags), *map(self._pack, batch)]
        try:
            new, failed, skipped = await self._script(argv)
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
                blake2b(user, digest_size=16, key=self._rules.secret[:64], person=b"unique users")
                .hexdigest()
                .encode()
            )
        texts = (user, *(name.encode() for name in event.place))
        lengths_and_texts = b"".join(b"%c%b" % (len(text), text) for text in texts)
        return event.info_hash.hex().encode() + lengths_and_texts

    async def users_of(self, metric: str, month: str | None = None) -> int:
        """The users of a metric, of all time or of a month (``YYYY-MM``); 0 for a value of another type."""
        key = self._keys.unique_month(metric, month) if month else self._keys.unique(metric)
        return whole(await self._connection.command("GET", key))

    async def may_exceed(self, period: str = ALL_TIME) -> int:
        """By how much the counts of a period (``all`` or a month) may be too high, because markers were deleted to
        make room."""
        return whole(await self._connection.command("HGET", self._keys.unique_forgotten(), period))

    async def with_users(self, periods: Sequence[str]) -> list[str]:
        """Those of ``periods`` that have users. Users without a location count for torrents only, those of removed
        torrents for countries only."""
        index = self._keys.unique_index
        found = await self._connection.pipeline(
            *(("EXISTS", index("countries", each), index("torrents", each)) for each in periods)
        )
        return [period for period, boards in zip(periods, found, strict=True) if boards]

    async def top(
        self, scope: str, period: str = ALL_TIME, count: int = 10, offset: int = 0
    ) -> list[LeaderboardEntry]:
        """Most users first; ``scope`` is one of BOARDS, ``period`` ``all`` or a month."""
        return await self._ranked(self._keys.unique_index(scope, period), count, offset)

    async def places(
        self, info_hash: InfoHash, count: int = 10, offset: int = 0
    ) -> list[tuple[str, LeaderboardEntry]]:
        """(one of SCOPES, place) where a torrent was seen, of all time, most users first."""
        entries = await self._ranked(self._keys.torrent_places(info_hash), count, offset)
        parted = [(*entry.name.partition("."), entry.users) for entry in entries]
        return [(scope, LeaderboardEntry(name, users)) for scope, _, name, users in parted]

    async def torrents_at(self, scope: str, place: str, candidates: int = 1000) -> list[LeaderboardEntry]:
        """Torrents by their users from a place, of all time, most users first. ``scope`` is one of SCOPES.

        Only the ``candidates`` torrents with the most users are looked at.
        """
        torrents = [entry.name for entry in await self.top("torrents", ALL_TIME, candidates)]
        known = [InfoHash(bytes.fromhex(name)) for name in torrents if _HASH.fullmatch(name)]
        users = await self._users_from(known, f"{scope}.{place}")
        found = [LeaderboardEntry(each.hex(), n) for each, n in zip(known, users, strict=True) if n > 0]
        return sorted(found, key=lambda entry: (-entry.users, entry.name))

    async def _users_from(self, info_hashes: Sequence[InfoHash], place: str) -> list[int]:
        """The users of each torrent from a place (``countries.France``); 0 for a key of another type."""
        commands = [("ZSCORE", self._keys.torrent_places(each), place) for each in info_hashes]
        scores = await self._connection.pipeline(*commands)
        return [0 if isinstance(score, Exception) else whole(score) for score in scores]

    async def _ranked(self, board: str, count: int, offset: int) -> list[LeaderboardEntry]:
        pairs = await self._connection.command(
            "ZRANGE", board, offset, offset + count - 1, "REV", "WITHSCORES"
        )
        return [LeaderboardEntry(name, users) for name, users in ranked(pairs)]

    async def flush(self) -> AsyncIterator[int]:
        """Deletes all counts, markers, estimates and leaderboards of unique users; yields the number of keys so far.

        It keeps torrents, scores, counters and the outbox. Users who join meanwhile may count again later.
        """
        prefix = self._keys.prefix
        ours = tuple(f"{prefix}{name}" for name in (*(f"{scope}." for scope in BOARDS), "hll:", "i:unique:"))
        removed, cursor = int(await self._connection.command("UNLINK", self._keys.unique_forgotten())), None
        while cursor != 0:
            after, keys = await self._connection.command(
                "SCAN", cursor or 0, "MATCH", f"{prefix}[cpthi]*", "COUNT", _SCAN
            )
            cursor = int(after)
            doomed = [key for key in keys if key.startswith(tuple(name.encode() for name in ours))]
            if doomed:
                removed += int(await self._connection.command("UNLINK", *doomed))
            yield removed
