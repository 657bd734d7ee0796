"""Counts the requests of each network in tables of bounded size, however many addresses send requests."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter

from tracker.bittorrent import Address
from tracker.store.access.rate_limits import HOLD_SECONDS, MAX_STATES, WINDOW_SECONDS, Hit, RateLimitState

MAX_LOCAL_SUBJECTS = 4096


class LocalCounts:
    """The rate limits of one process alone, used while the store is unavailable: hits are added up in sliding windows
    and compared with the limits, as count_hits.lua does for all processes."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        """The hits of this window by limit and subject."""
        self._before: dict[tuple[str, str], int] = {}
        self._in_force: dict[tuple[int, str, str], RateLimitState] = {}

    def begin_window(self) -> None:
        self._counts, self._before = {}, self._counts

    def add(self, hits: Iterable[Hit]) -> None:
        counts = self._counts
        for limit, subject, number in hits:
            key = limit, subject
            if key in counts or len(counts) < MAX_LOCAL_SUBJECTS:
                counts[key] = counts.get(key, 0) + number

    def decide(self, hits: Iterable[Hit], allowed: Mapping[str, int], now: float) -> list[RateLimitState]:
        """All stages in force at ``now`` (epoch s), with those that ``hits``, added before, lead to."""
        weight = 1 - now % WINDOW_SECONDS / WINDOW_SECONDS
        in_force = {key: state for key, state in self._in_force.items() if state.until > now}
        for limit, subject, _ in hits:
            key = limit, subject
            count = self._counts.get(key, 0) + weight * self._before.get(key, 0)
            stage = sum(count >= times * allowed[limit] for times in (1, 2, 4))  # 0 to 3, as in count_hits.lua
            state = RateLimitState(stage, limit, subject, now + HOLD_SECONDS)
            if stage and (state[:3] in in_force or len(in_force) < MAX_STATES):
                in_force[stage, limit, subject] = state
        self._in_force = in_force
        return list(in_force.values())


MAX_REGULAR_NETWORKS = 8192
"""Networks whose regular announces a process counts at a time."""
CELLS = 1 << 16


network: Callable[[bytes], bytes] = itemgetter(slice(8))
"""The unit that is counted: the /64 of an IPv6 address, or an IPv4 address, which is shorter."""


class Sketch:
    """Counts by a hash of the key, in a table of fixed size. Keys may share a cell; each process has its own hash."""

    __slots__ = ("_cells", "_floor")

    def __init__(self, limit: int) -> None:
        self._floor = min(limit // 8, 65_000)
        self._cells = array("H", bytes(2 * CELLS))

    def add(self, key: bytes, number: int = 1) -> int:
        """Returns the hits to report: none up to the floor, all so far when the count passes it, then each one."""
        cell = hash(key) & (CELLS - 1)
        seen = self._cells[cell]
        if seen > self._floor:
            return number
        total = seen + number
        self._cells[cell] = min(total, 65_535)
        return total if total > self._floor else 0

    def clear(self) -> None:
        self._cells = array("H", bytes(2 * CELLS))


class RegularAnnounces:
    """Counts by network in a table of bounded size that keeps the largest counts. Each announce is counted in C."""

    __slots__ = ("_counts", "_taken")

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._taken: dict[bytes, int] = {}

    def add(self, addresses: Iterable[Address]) -> None:
        counts = self._counts
        counts.update(map(network, addresses))
        if len(counts) > MAX_REGULAR_NETWORKS:
            largest = sorted(counts.items(), key=itemgetter(1), reverse=True)
            self._counts = Counter(dict(largest[: MAX_REGULAR_NETWORKS // 2]))
            self._taken = {net: count for net, count in self._taken.items() if net in self._counts}

    def take(self, floor: int) -> list[tuple[bytes, int]]:
        """The growth of each count above ``floor`` since the last call; all of a count that was not above it then."""
        grown = []
        for net, count in [item for item in self._counts.items() if item[1] > floor]:
            if count > self._taken.get(net, 0):
                grown.append((net, count - self._taken.get(net, 0)))
                self._taken[net] = count
        return grown

    def clear(self) -> None:
        self._counts.clear()
        self._taken.clear()
