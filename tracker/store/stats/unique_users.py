"""Unique users by torrent and by place: counted once in 30 days by one script, and read back as figures and leaderboards.

What a batch counts, and the markers that say so, change in one script: a batch whose answer was lost is sent again,
and counts nothing twice. store/metrics.py has the names, docs/uniques.md the modes.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, NamedTuple

import structlog

from tracker.bittorrent import InfoHash
from tracker.store.connection import Connection
from tracker.store.figures import ranked, whole
from tracker.store.keys import Keys
from tracker.store.metrics import SCOPES, PlaceNames
from tracker.store.months import ALL_TIME, MONTHS_KEPT, month_of, month_start
from tracker.store.scripts import Scripts

MAX_BATCH = 64
BOARDS = (*SCOPES, "torrents")
_SCAN = 1000

log = structlog.get_logger("tracker.store")


class Sighting(NamedTuple):
    """Somebody joined a torrent. ``user`` is whom the address counts as (``metrics.user_name``)."""

    info_hash: InfoHash
    user: str
    place: PlaceNames


@dataclass(frozen=True, slots=True)
class UniqueRules:
    """How users are counted, and what of it waits to be sent elsewhere. ``secret`` keys the hashes of mode hashed."""

    mode: Literal["exact", "hashed", "hyperloglog"] = "exact"
    secret: bytes = b""
    outbox_most: int = 0
    """Most figures that may wait in the outbox; 0 when nobody wants them."""
    export_torrents: bool = False
    """Whether the figures of torrents go to the outbox too, and not only those of countries."""


class Standing(NamedTuple):
    """A place of a leaderboard: a place's name or an info hash in hex."""

    name: str
    users: int


class Uniques:
    """The unique users of one prefix."""

    def __init__(
        self, connection: Connection, scripts: Scripts, keys: Keys, rules: UniqueRules | None = None
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._rules = rules or UniqueRules()
        self._script = scripts.estimate if self._rules.mode == "hyperloglog" else scripts.sight

    async def sight(self, batch: Sequence[Sighting], now: float) -> int:
        """Counts at most 64 sightings, all of them or none; the answer is how many addresses were new to a torrent.

        Raises StoreAway when it cannot be known whether they were counted: the same batch may be sent again.
        """
        if len(batch) > MAX_BATCH:
            raise ValueError(f"at most {MAX_BATCH} sightings at a time")
        if not batch:
            return 0
        rules = self._rules
        month, until = month_of(now), int(month_start(now, 1 + MONTHS_KEPT).timestamp())
        argv: list[str | bytes | int | float] = [int(now), month, until]
        argv += [rules.outbox_most, int(rules.export_torrents), *map(self._pack, batch)]
        new, failed = await self._script(argv)
        if failed:
            log.error(
                "keys of the wrong type where unique users belong: somebody else wrote them", failed=failed
            )
        return int(new)

    def _pack(self, sighting: Sighting) -> bytes:
        """One sighting as the scripts read it."""
        user = sighting.user.encode()
        if self._rules.mode == "hashed":
            user = (
                blake2b(user, digest_size=16, key=self._rules.secret[:64], person=b"unique users")
                .hexdigest()
                .encode()
            )
        texts = (user, *(name.encode() for name in sighting.place))
        lengths_and_texts = b"".join(b"%c%b" % (len(text), text) for text in texts)
        return sighting.info_hash.hex().encode() + lengths_and_texts

    async def figure(self, metric: str, month: str | None = None) -> int:
        """The users of a metric, of all time or of a month (``YYYY-MM``); 0 where something else is stored."""
        key = self._keys.unique_month(metric, month) if month else self._keys.unique(metric)
        return whole(await self._connection.command("GET", key))

    async def top(
        self, scope: str, period: str = ALL_TIME, count: int = 10, offset: int = 0
    ) -> list[Standing]:
        """Most users first; ``scope`` is one of BOARDS, ``period`` ``all`` or a month."""
        return await self._ranked(self._keys.unique_index(scope, period), count, offset)

    async def places(
        self, info_hash: InfoHash, count: int = 10, offset: int = 0
    ) -> list[tuple[str, Standing]]:
        """(one of SCOPES, place) where a torrent was seen, of all time, most users first."""
        standings = await self._ranked(self._keys.torrent_places(info_hash), count, offset)
        parted = [(*standing.name.partition("."), standing.users) for standing in standings]
        return [(scope, Standing(name, users)) for scope, _, name, users in parted]

    async def _ranked(self, board: str, count: int, offset: int) -> list[Standing]:
        pairs = await self._connection.command(
            "ZRANGE", board, offset, offset + count - 1, "REV", "WITHSCORES"
        )
        return [Standing(name, users) for name, users in ranked(pairs)]

    async def flush(self) -> AsyncIterator[int]:
        """Deletes every figure, marker, estimate and leaderboard of unique users, page by page: how many keys so far.

        Torrents stay with all else they have; so do scores, counters, and what waits to be sent. It may run beside a
        tracker: whoever is seen meanwhile may be counted again later.
        """
        prefix = self._keys.prefix
        ours = tuple(f"{prefix}{name}" for name in (*(f"{scope}." for scope in BOARDS), "hll:", "i:unique:"))
        removed, cursor = 0, None
        while cursor != 0:
            after, keys = await self._connection.command(
                "SCAN", cursor or 0, "MATCH", f"{prefix}[cpthi]*", "COUNT", _SCAN
            )
            cursor = int(after)
            doomed = [key for key in keys if key.startswith(tuple(name.encode() for name in ours))]
            if doomed:
                removed += int(await self._connection.command("UNLINK", *doomed))
            yield removed
