"""The rate limits of one process alone, used while the store is unavailable (store/access/rate_limits.py).

Hits are added up in sliding windows and compared with the limits, as count_hits.lua does for all processes. The number
of subjects in a window and the number of stages in force are bounded.
"""

from collections.abc import Iterable, Mapping

from tracker.store.access.rate_limits import HOLD_SECONDS, MAX_STATES, WINDOW_SECONDS, Hit, RateLimitState

MAX_LOCAL_SUBJECTS = 4096


class LocalCounts:
    """The hits of this window and of the one before, by limit and subject."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
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
            stage = _stage(self._counts.get(key, 0) + weight * self._before.get(key, 0), allowed[limit])
            state = RateLimitState(stage, limit, subject, now + HOLD_SECONDS)
            if stage and (state[:3] in in_force or len(in_force) < MAX_STATES):
                in_force[stage, limit, subject] = state
        self._in_force = in_force
        return list(in_force.values())


def _stage(count: float, allowed: int) -> int:
    """0 to 3, as in count_hits.lua."""
    return sum(count >= times * allowed for times in (1, 2, 4))
