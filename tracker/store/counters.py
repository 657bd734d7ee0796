"""What happened, and when: counters and distributions by slices of time, and the sums of all time.

Counting is kept in the process, by the second of the event, and written once a second, so that no announce pays for
it. Each batch has a number, and is sent until the store has said that it has it; a batch that arrives twice, because
an answer was lost, counts once. docs/counters.md names the counters and says what is exact.
"""

import asyncio
import fnmatch
import secrets
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreAway
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts
from tracker.store.slices import PRECISIONS, Distribution, finest_retained, oldest_retained, start_of

FLUSH_SECONDS = 1.0
FIGURES = (
    "seeders",
    "leechers",
    "announces",
    "scrapes",
    "requests",
    "reaped",
    "repairs",
    "forgotten",
    "credit_cut",
    "tally_dropped",
    "outbox_dropped",
)
_BATCH = 500
"""Slices of one second in a batch, about: the script writes each into seven slices, and nothing else runs meanwhile."""
_PAGE = 500
_NEVER = -1

log = structlog.get_logger("tracker.store")


class _Batch(NamedTuple):
    number: int
    argv: list[str]


class Counters:
    """``clock`` gives epoch seconds. Counters whose name ``exports`` accepts also go out by outbox.lua, where at most
    ``outbox_most`` figures wait."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        clock: Callable[[], float],
        *,
        exports: Callable[[str], bool] | None = None,
        outbox_most: int = 0,
    ) -> None:
        self._connection = connection
        self._script = scripts.count
        self._keys = keys
        self._clock = clock
        self._exports = exports or (lambda name: False)
        self._outbox_most = outbox_most
        self._process = secrets.token_hex(8)
        self._batches = 0
        self._unwritten: _Batch | None = None
        self._writing = asyncio.Lock()
        self._counts: dict[int, dict[tuple[str, ...], int]] = {}
        self._measured: dict[int, dict[str, Distribution]] = {}
        # The second under work: what it counted, by the names counted together, and what it measured, not yet summed up.
        self._second = _NEVER
        self._counting: dict[tuple[str, ...], int] = {}
        self._measuring: dict[str, list[float]] = {}

    # Counting

    def count(self, *names: str, by: int = 1, at: float | None = None) -> None:
        """One event (or ``by`` of them, more than 0) that counts under each of ``names``, now or ``at`` (epoch s)."""
        second = int(self._clock() if at is None else at)
        if second != self._second:
            self._turn(second)
        counting = self._counting
        counting[names] = counting.get(names, 0) + by

    def observe(self, name: str, value: float, at: float | None = None) -> None:
        """Something was measured, now or ``at`` (epoch s)."""
        second = int(self._clock() if at is None else at)
        if second != self._second:
            self._turn(second)
        measuring = self._measuring
        if name in measuring:
            measuring[name].append(value)
        else:
            measuring[name] = [value]

    def _turn(self, second: int) -> None:
        """Closes the second under work, and opens ``second``."""
        if self._counting:
            _add_counts(self._counts, self._second, self._counting)
        for name, values in self._measuring.items():
            distribution = Distribution.of(values)
            if distribution is not None:
                _add_measured(self._measured, self._second, name, distribution)
        self._second, self._counting, self._measuring = second, {}, {}

    # Writing

    async def run(self) -> None:
        """Writes every second until cancelled. While the store is away the counts are kept."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Writes what was counted; what could not be written is kept for the next time."""
        async with self._writing:
            try:
                if self._unwritten is not None:  # whether the store has this one nobody knows: it goes first
                    await self._write(self._unwritten)
                self._turn(_NEVER)
                while self._counts or self._measured:
                    self._unwritten = self._take()
                    await self._write(self._unwritten)
            except StoreAway:
                self._merge_old()
            except RedisError as error:
                self._merge_old()
                log.error("counts were not written", error=str(error))

    async def _write(self, batch: _Batch) -> None:
        wrong = await self._script([self._process, batch.number, self._outbox_most, *batch.argv])
        self._unwritten = None
        if wrong:
            log.error("the store has keys of a wrong type where counts belong", keys=int(wrong))

    def _take(self) -> _Batch:
        """The oldest seconds counted, as the script takes them; at least one, and about _BATCH slices."""
        counts: dict[str, list[str]] = {}
        measured: dict[str, list[str]] = {}
        size = 0
        for second in sorted({*self._counts, *self._measured}):
            if size >= _BATCH:
                break
            sums = _by_name(self._counts.pop(second, {}))
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
        """Puts seconds together whose finer slices nobody could read any more, so that an outage fills no memory."""
        self._turn(_NEVER)
        now = self._clock()
        for second in [second for second in self._counts if second != finest_retained(second, now)]:
            _add_counts(self._counts, finest_retained(second, now), self._counts.pop(second))
        for second in [second for second in self._measured if second != finest_retained(second, now)]:
            for name, distribution in self._measured.pop(second).items():
                _add_measured(self._measured, finest_retained(second, now), name, distribution)

    # Reading

    async def totals(self) -> dict[str, int]:
        """The global figures of all time, as stored."""
        values = await self._connection.command("MGET", *(self._keys.stat(name) for name in FIGURES))
        return {name: int(value or 0) for name, value in zip(FIGURES, values, strict=True)}

    async def failures(self) -> dict[str, int]:
        """Refused requests of all time, by reason."""
        return {
            reason.decode("utf-8", "replace"): int(number)
            for reason, number in await self._hash(self._keys.failures())
        }

    async def names(self, pattern: str = "*") -> list[str]:
        """Counters that have slices and match a glob, sorted."""
        return await self._names(self._keys.known_counters(), pattern)

    async def distribution_names(self, pattern: str = "*") -> list[str]:
        """The same for distributions."""
        return await self._names(self._keys.known_distributions(), pattern)

    async def series(
        self,
        name: str,
        precision: int,
        first: float | None = None,
        last: float | None = None,
        fill: bool = False,
    ) -> list[tuple[int, int]]:
        """(start, count) of each slice, sorted, as far as it is retained; ``first`` and ``last`` (epoch s) are moments
        in the first and last slice wanted. ``fill`` puts in zeros, up to the current slice."""
        found = {
            start: int(value)
            for start, value in await self._slices(
                self._keys.counter(precision, name), precision, first, last
            )
        }
        if fill:
            now = self._clock()
            since = max(oldest_retained(now, precision), start_of(first or 0, precision))
            until = int(now if last is None else min(now, last))
            found = dict.fromkeys(range(since, until + 1, precision), 0) | found
        return sorted(found.items())

    async def distribution(
        self, name: str, precision: int, first: float | None = None, last: float | None = None
    ) -> tuple[list[tuple[int, Distribution]], Distribution | None]:
        """(start, distribution) of each slice as in series(), and of them all together, None when there is none."""
        slices = await self._slices(self._keys.distribution(precision, name), precision, first, last)
        found = [(start, Distribution.decode(value)) for start, value in slices]
        total: Distribution | None = None
        for _, distribution in found:
            total = distribution if total is None else total.merge(distribution)
        return found, total

    async def _slices(
        self, key: str, precision: int, first: float | None, last: float | None
    ) -> list[tuple[int, bytes]]:
        if precision not in PRECISIONS:
            raise ValueError(f"there are no slices of {precision} s")
        since = max(oldest_retained(self._clock(), precision), start_of(first or 0, precision))
        found = ((int(start), value) for start, value in await self._hash(key))
        return sorted(kept for kept in found if since <= kept[0] and (last is None or kept[0] <= last))

    async def _hash(self, key: str) -> list[tuple[bytes, bytes]]:
        return list((await self._connection.command("HGETALL", key)).items())

    async def _names(self, key: str, pattern: str) -> list[str]:
        names: set[str] = set()
        after: bytes = b"-"
        while True:
            page = await self._connection.command("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, _PAGE)
            names.update(entry.partition(b":")[2].decode("utf-8", "replace") for entry in page)
            if len(page) < _PAGE:
                return sorted(name for name in names if fnmatch.fnmatchcase(name, pattern))
            after = b"(" + page[-1]


def _by_name(counts: dict[tuple[str, ...], int]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for names, number in counts.items():
        for name in names:
            sums[name] += number
    return +sums


def _add_counts(
    to: dict[int, dict[tuple[str, ...], int]], second: int, counts: dict[tuple[str, ...], int]
) -> None:
    there = to.get(second)
    if there is None:
        to[second] = counts
        return
    for names, number in counts.items():
        there[names] = there.get(names, 0) + number


def _add_measured(
    to: dict[int, dict[str, Distribution]], second: int, name: str, distribution: Distribution
) -> None:
    there = to.setdefault(second, {})
    there[name] = there[name].merge(distribution) if name in there else distribution
