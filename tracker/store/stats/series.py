"""Reads counters: by slices of time, and totals of all time."""

import fnmatch
from collections.abc import Callable
from contextlib import suppress
from functools import reduce

from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.stats.slices import PRECISIONS, Distribution, oldest_retained, start_of

FIGURES = (
    *("seeders", "leechers", "announces", "scrapes", "requests", "reaped", "repairs", "forgotten"),
    *("credit_cut", "tally_dropped", "software_dropped", "unique_skipped", "outbox_dropped"),
)
_PAGE = 500


class Series:
    """The reading half of Counters. ``clock`` returns epoch seconds. Methods raise StoreUnavailable and
    redis.exceptions.RedisError."""

    def __init__(self, shards: Shards, clock: Callable[[], float], *, page: int = _PAGE) -> None:
        self._shards = shards
        self._connection, self._keys = shards.main.connection, shards.main.keys
        self._clock = clock
        self._page = page

    async def totals(self) -> dict[str, int]:
        """The global totals of all time, with those that the scripts of swarms keep in each shard; 0 for a value of
        another type. Shards that are unavailable are left out, and so is the main prefix, which has those of requests.
        """
        read = self._connection.command(*_read_totals(self._shards.main))
        values = await self._shards.main_or(read, [None] * len(FIGURES))
        parts = await self._shards.each(_read_totals, self._shards.others)
        rows = zip(*(map(whole, part) for part in (values, *parts.values())), strict=True)
        return dict(zip(FIGURES, map(sum, rows), strict=True))

    @property
    def is_unavailable(self) -> bool:
        """Whether only the main prefix is unavailable, which has all but ``totals``."""
        return self._shards.main_is_unavailable

    async def failures(self) -> dict[str, int]:
        """Refused requests of all time, by reason."""
        return {
            reason.decode("utf-8", "replace"): whole(number)
            for reason, number in await self._hash(self._keys.failures())
        }

    async def names(self, pattern: str = "*") -> list[str]:
        """Names of counters that have slices and match a glob, sorted."""
        return await self._names(self._keys.known_counters(), pattern)

    async def distribution_names(self, pattern: str = "*") -> list[str]:
        """The same for distributions."""
        return await self._names(self._keys.known_distributions(), pattern)

    async def series(
        self, name: str, precision: int, first: float | None = None, last: float | None = None, fill: bool = False
    ) -> list[tuple[int, int]]:
        """(start, count) of each retained slice, sorted. ``first`` and ``last`` (epoch s) lie in the first and last
        slice wanted. ``fill`` adds empty slices as 0, up to the current one."""
        slices = await self._slices(self._keys.counter(precision, name), precision, first, last)
        found = {start: whole(value) for start, value in slices if value.isdigit()}
        if fill:
            now = self._clock()
            since = max(oldest_retained(now, precision), start_of(first or 0, precision))
            until = int(now if last is None else min(now, last))
            found = dict.fromkeys(range(since, until + 1, precision), 0) | found
        return sorted(found.items())

    async def distribution(
        self, name: str, precision: int, first: float | None = None, last: float | None = None
    ) -> tuple[list[tuple[int, Distribution]], Distribution | None]:
        """(start, distribution) of each slice as in series(), and the distribution of all of them or None."""
        slices = await self._slices(self._keys.distribution(precision, name), precision, first, last)
        found: list[tuple[int, Distribution]] = []
        for start, value in slices:
            with suppress(ValueError):  # not a value of ours
                found.append((start, Distribution.decode(value)))
        return found, reduce(Distribution.merge, (each for _, each in found)) if found else None

    async def _slices(
        self, key: str, precision: int, first: float | None, last: float | None
    ) -> list[tuple[int, bytes]]:
        if precision not in PRECISIONS:
            raise ValueError(f"there are no slices of {precision} s")
        since = max(oldest_retained(self._clock(), precision), start_of(first or 0, precision))
        # Fields that are not times, and values that are not counts, are not ours.
        times = ((start, value) for start, value in await self._hash(key) if start.isdigit())
        found = ((whole(start), value) for start, value in times)
        return sorted(kept for kept in found if since <= kept[0] and (last is None or kept[0] <= last))

    async def _hash(self, key: str) -> list[tuple[bytes, bytes]]:
        flat = await self._connection.command("HGETALL", key)
        return list(zip(flat[::2], flat[1::2], strict=True))

    async def _names(self, key: str, pattern: str) -> list[str]:
        names: set[str] = set()
        after: bytes = b"-"
        while True:
            page = await self._connection.command("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, self._page)
            names.update(entry.partition(b":")[2].decode("utf-8", "replace") for entry in page)
            if len(page) < self._page:
                return sorted(name for name in names if fnmatch.fnmatchcase(name, pattern))
            after = b"(" + page[-1]


def _read_totals(shard: Shard) -> tuple[str, ...]:
    return ("MGET", *(shard.keys.stat(name) for name in FIGURES))
