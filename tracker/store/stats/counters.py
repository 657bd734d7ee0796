"""Counters and distributions by slices of time, and totals of all time.

The process counts by the second of the event and writes once a second, so announces do not wait. Each batch has a
number and is sent until the store confirms it; a batch that arrives twice counts once. docs/counters.md lists the
counters and says what is exact.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.sharding.shards import Shards
from tracker.store.stats.series import Series
from tracker.store.stats.slices import Distribution, finest_retained
from tracker.system.logger import Logger

FLUSH_SECONDS = 0.95
"""Period of writes: with the time of the call, a count reaches the store within a second."""
_BATCH = 500
"""About how many slices of one second a batch has. The script writes each into seven slices and blocks the store
meanwhile."""
_NEVER = -1

Tap = Callable[[Mapping[tuple[str, ...], int], Mapping[str, Sequence[float]]], None]
"""Called once per second with the counts by names counted together, and the measured values by name."""

log = Logger("tracker.store")


class Count(Protocol):
    """One event, or ``by`` of them, that counts under each of ``names``."""

    def __call__(self, *names: str, by: int = 1) -> None: ...


class _Batch(NamedTuple):
    number: int
    argv: list[str]


class Cleaned(NamedTuple):
    """The result of one page of cleanup."""

    slices: int
    entries: int
    wrong: int


class Counters(Series):
    """``clock`` returns epoch seconds. Counters whose name ``exports`` accepts also go to the outbox, where at most
    ``max_outbox`` values wait. ``tap`` gets all counts, also while the store is unavailable."""

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
        self._scripts = shards.main.scripts
        self._exports = exports or (lambda name: False)
        self._max_outbox = max_outbox
        self._process = secrets.token_hex(8)
        self._batches = 0
        self._unwritten: _Batch | None = None
        self._writing = asyncio.Lock()
        self._counts: dict[int, dict[tuple[str, ...], int]] = {}
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
            _add_counts(self._counts, self._second, self._counting)
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
        """Merges seconds whose finer slices are no longer shown, so that memory stays bounded during an outage."""
        self._turn(_NEVER)
        now = self._clock()
        for second in [second for second in self._counts if second != finest_retained(second, now)]:
            _add_counts(self._counts, finest_retained(second, now), self._counts.pop(second))
        for second in [second for second in self._measured if second != finest_retained(second, now)]:
            for name, distribution in self._measured.pop(second).items():
                _add_measured(self._measured, finest_retained(second, now), name, distribution)

    # Cleaning

    async def clean(self, precision: int, page: int) -> AsyncIterator[Cleaned]:
        """Removes slices of one precision that are no longer retained, ``page`` names at a time."""
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


def _add_counts(to: dict[int, dict[tuple[str, ...], int]], second: int, counts: dict[tuple[str, ...], int]) -> None:
    there = to.setdefault(second, {})
    for names, number in counts.items():
        there[names] = there.get(names, 0) + number


def _add_measured(to: dict[int, dict[str, Distribution]], second: int, name: str, distribution: Distribution) -> None:
    there = to.setdefault(second, {})
    there[name] = there[name].merge(distribution) if name in there else distribution
