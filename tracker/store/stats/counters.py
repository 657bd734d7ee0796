"""Counters and distributions by slices of time, and totals of all time.

The process counts by the second of the event and writes once a second, so announces do not wait. Each batch has a
number and is sent until the store confirms it; a batch that arrives twice counts once. docs/counters.md lists the
counters and says what is exact.
"""

import asyncio
import fnmatch
import secrets
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import NamedTuple, Protocol

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Shard, Shards, StorePart
from tracker.store.stats.slices import PRECISIONS, Distribution, finest_retained, oldest_retained, start_of
from tracker.system.logger import Logger

FIGURES = (
    *("seeders", "leechers", "announces", "scrapes", "requests", "reaped", "repairs", "forgotten"),
    *("credit_cut", "tally_dropped", "software_dropped", "unique_skipped", "outbox_dropped"),
)
FLUSH_SECONDS = 0.95
"""Period of writes: with the time of the call, a count reaches the store within a second."""
_BATCH = 500
"""About how many slices of one second a batch has. The script writes each into seven slices and blocks the store
meanwhile."""
_NEVER = -1
_PAGE = 500
"""Names in one call."""

Tap = Callable[[Mapping[tuple[str, ...], int], Mapping[str, Sequence[float]]], None]
"""Called once per second with the counts by names counted together, and the measured values by name."""

log = Logger("tracker.store")


class Count(Protocol):
    """One event, or ``by`` of them, that counts under each of ``names``."""

    def __call__(self, *names: str, by: int = 1) -> None: ...


class _Batch(NamedTuple):
    number: int
    argv: list[str]


class Counters(StorePart):
    """``clock`` returns epoch seconds. Counters whose name ``exports`` accepts also go to the outbox, where at most
    ``max_outbox`` values wait. ``tap`` gets all counts, also while the store is unavailable. Methods that read raise
    StoreUnavailable and redis.exceptions.RedisError."""

    def __init__(
        self,
        shards: Shards,
        clock: Callable[[], float],
        *,
        exports: Callable[[str], bool] | None = None,
        max_outbox: int = 0,
        tap: Tap | None = None,
    ) -> None:
        super().__init__(shards, clock)
        self._tap = tap
        self._exports = exports or (lambda name: False)
        self._max_outbox = max_outbox
        self._process = secrets.token_hex(8)
        self._batches = 0
        self._unwritten: _Batch | None = None
        self._writing = asyncio.Lock()
        self._counts = defaultdict[int, Counter[tuple[str, ...]]](Counter)
        self._measured: dict[int, dict[str, Distribution]] = {}
        # The current second: its counts, by the names counted together, and its measured values.
        self._second = _NEVER
        self._counting: dict[tuple[str, ...], int] = {}
        self._measuring: dict[str, list[float]] = {}

    # Counting

    def count(self, *names: str, by: int = 1, at: float | None = None) -> None:
        """Counts one event (or ``by`` > 0 of them) under each of ``names``, now or ``at`` (epoch s)."""
        second = int(self._clock() if at is None else at)
        if second != self._second:
            self._turn(second)
        counting = self._counting
        counting[names] = counting.get(names, 0) + by

    def observe(self, name: str, *values: float, at: float | None = None) -> None:
        """Adds measured values, now or ``at`` (epoch s)."""
        second = int(self._clock() if at is None else at)
        if second != self._second:
            self._turn(second)
        measuring = self._measuring
        if name in measuring:
            measuring[name].extend(values)
        else:
            measuring[name] = list(values)

    def _turn(self, second: int) -> None:
        """Closes the current second and opens ``second``."""
        if self._tap is not None and (self._counting or self._measuring):
            self._tap(self._counting, self._measuring)
        if self._counting:
            self._counts[self._second].update(self._counting)
        for name, values in self._measuring.items():
            distribution = Distribution.of(values)
            if distribution is not None:
                _add_measured(self._measured, self._second, name, distribution)
        self._second, self._counting, self._measuring = second, {}, {}

    # Writing

    async def run(self, pause_seconds: float = FLUSH_SECONDS) -> None:
        """Writes every ``pause_seconds`` until cancelled. While the store is unavailable, counts are kept."""
        while True:
            await asyncio.sleep(pause_seconds)
            await self.flush()

    async def flush(self) -> None:
        """Writes all counts; what cannot be written is kept."""
        async with self._writing:
            try:
                if self._unwritten is not None:  # the store may have this one already: it goes first
                    await self._write(self._unwritten)
                self._turn(_NEVER)
                while self._counts or self._measured:
                    self._unwritten = self._take()
                    await self._write(self._unwritten)
            except StoreUnavailable:
                self._merge_old()
            except RedisError as error:
                self._merge_old()
                log.error("counts were not written", error=str(error))

    async def _write(self, batch: _Batch) -> None:
        wrong = await self._scripts.count([self._process, batch.number, self._max_outbox, *batch.argv])
        self._unwritten = None
        if wrong:
            log.error("the store has keys of a wrong type where counts belong", keys=int(wrong))

    def _take(self) -> _Batch:
        """The oldest seconds as arguments of the script: at least one second, about _BATCH slices."""
        counts: dict[str, list[str]] = {}
        measured: dict[str, list[str]] = {}
        size = 0
        for second in sorted({*self._counts, *self._measured}):
            if size >= _BATCH:
                break
            sums = _by_name(self._counts.pop(second, Counter()))
            distributions = self._measured.pop(second, {})
            for name, number in sums.items():
                counts.setdefault(name, []).append(f"{second} {number}")
            for name, distribution in distributions.items():
                measured.setdefault(name, []).append(f"{second} {distribution.encode()}")
            size += len(sums) + len(distributions)
        exported = [name for name in counts if self._exports(name)]
        ordered = dict.fromkeys([*exported, *counts])
        argv = [str(len(counts)), str(len(exported))]
        for name in ordered:
            argv += (name, " ".join(counts[name]))
        for name, slices in measured.items():
            argv += (name, " ".join(slices))
        self._batches += 1
        return _Batch(self._batches, argv)

    def _merge_old(self) -> None:
        """Merges seconds whose finer slices are no longer shown, so that memory stays bounded during an outage."""
        self._turn(_NEVER)
        now = self._clock()
        for second in [second for second in self._counts if second != finest_retained(second, now)]:
            counts = self._counts.pop(second)
            self._counts[finest_retained(second, now)].update(counts)
        for second in [second for second in self._measured if second != finest_retained(second, now)]:
            for name, distribution in self._measured.pop(second).items():
                _add_measured(self._measured, finest_retained(second, now), name, distribution)

    # Cleaning

    async def clean(self, precision: int, page: int) -> AsyncIterator[tuple[int, int, int]]:
        """Removes slices of one precision that are no longer retained, ``page`` names at a time. Yields the numbers of
        slices and of names that were removed, and of keys of a wrong type."""
        for kind in ("count", "dist"):
            after: bytes | str = ""
            while True:
                argv = [int(self._clock()), kind, precision, after, page]
                after, slices, names, wrong = await self._scripts.clean(argv)
                yield int(slices), int(names), int(wrong)
                if not after:
                    break

    # Reading

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
            page = await self._connection.command("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, _PAGE)
            names.update(entry.partition(b":")[2].decode("utf-8", "replace") for entry in page)
            if len(page) < _PAGE:
                return sorted(name for name in names if fnmatch.fnmatchcase(name, pattern))
            after = b"(" + page[-1]


def _read_totals(shard: Shard) -> tuple[str, ...]:
    return ("MGET", *(shard.keys.stat(name) for name in FIGURES))


def _by_name(counts: dict[tuple[str, ...], int]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for names, number in counts.items():
        for name in names:
            sums[name] += number
    return +sums


def _add_measured(to: dict[int, dict[str, Distribution]], second: int, name: str, distribution: Distribution) -> None:
    there = to.setdefault(second, {})
    there[name] = there[name].merge(distribution) if name in there else distribution
