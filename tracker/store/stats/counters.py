"""What happened, and when: counters and distributions by slices of time, and the sums of all time.

Counting is kept in the process, by the second of the event, and written once a second, so that no announce pays for
it. Each batch has a number, and is sent until the store has said that it has it; a batch that arrives twice, because
an answer was lost, counts once. docs/counters.md names the counters and says what is exact.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreAway
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts
from tracker.store.series import Series
from tracker.store.slices import Distribution, finest_retained

FLUSH_SECONDS = 0.95
"""So that with the time of the call no count is older than a second when the store has it."""
_BATCH = 500
"""Slices of one second in a batch, about: the script writes each into seven slices, and nothing else runs meanwhile."""
_NEVER = -1

Tap = Callable[[Mapping[tuple[str, ...], int], Mapping[str, Sequence[float]]], None]
"""Hears, once for each second that ends, how often which names were counted together, and what was measured."""

log = structlog.get_logger("tracker.store")


class _Batch(NamedTuple):
    number: int
    argv: list[str]


class Cleaned(NamedTuple):
    """What one page of cleaning did."""

    slices: int
    entries: int
    wrong: int


class Counters(Series):
    """``clock`` gives epoch seconds. Counters whose name ``exports`` accepts also go out by outbox.lua, where at most
    ``outbox_most`` figures wait. ``tap`` hears of everything, whatever the store does."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        clock: Callable[[], float],
        *,
        exports: Callable[[str], bool] | None = None,
        outbox_most: int = 0,
        tap: Tap | None = None,
    ) -> None:
        super().__init__(connection, keys, clock)
        self._tap = tap
        self._scripts = scripts
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

    def observe(self, name: str, *values: float, at: float | None = None) -> None:
        """Something was measured, once or several times, now or ``at`` (epoch s)."""
        second = int(self._clock() if at is None else at)
        if second != self._second:
            self._turn(second)
        measuring = self._measuring
        if name in measuring:
            measuring[name].extend(values)
        else:
            measuring[name] = list(values)

    def _turn(self, second: int) -> None:
        """Closes the second under work, and opens ``second``."""
        if self._tap is not None and (self._counting or self._measuring):
            self._tap(self._counting, self._measuring)
        if self._counting:
            _add_counts(self._counts, self._second, self._counting)
        for name, values in self._measuring.items():
            distribution = Distribution.of(values)
            if distribution is not None:
                _add_measured(self._measured, self._second, name, distribution)
        self._second, self._counting, self._measuring = second, {}, {}

    # Writing

    async def run(self) -> None:
        """Writes about once a second until cancelled. While the store is away the counts are kept."""
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
        wrong = await self._scripts.count([self._process, batch.number, self._outbox_most, *batch.argv])
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

    # Cleaning

    async def clean(self, precision: int, page: int) -> AsyncIterator[Cleaned]:
        """Removes what is no longer retained of one precision, ``page`` names at a time."""
        for kind in ("count", "dist"):
            after: bytes | str = ""
            while True:
                argv = [int(self._clock()), kind, precision, after, page]
                after, *done = await self._scripts.clean(argv)
                yield Cleaned(*map(int, done))
                if not after:
                    break


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
