"""Whether this tracker is ready, and if not, why: for /ready on both ports.

A check reads what the loops know already and sends the store no command, so clients may call it at any rate.
"""

from collections.abc import Callable

from tracker.store.sharding.shards import Shards
from tracker.workers.shard_reapers import AnyReaper

STORE_UNAVAILABLE = "the store does not answer"
NO_EXPIRY_EVENTS = "no subscription to the store's expiry events"
SWEEP_BEHIND = "the sweep is behind"
STOPPING = "shutting down"
NO_WEB_PROCESS = "no web process is running"


class Readiness:
    """``stopping`` returns whether the shutdown has begun. ``reaper`` is None if another process reaps.

    A tracker is ready while at least one shard is served: Shards.notices names the unavailable ones.
    """

    def __init__(self, shards: Shards, stopping: Callable[[], bool], reaper: AnyReaper | None) -> None:
        self._shards = shards
        self._stopping = stopping
        self._reaper = reaper

    def problems(self) -> list[str]:
        """Fixed public texts; empty if ready. Problems that an unavailable store causes are left out."""
        found = [STOPPING] if self._stopping() else []
        if len(self._shards.away) == len(self._shards):
            return [*found, STORE_UNAVAILABLE]
        if self._reaper is not None:
            found += [NO_EXPIRY_EVENTS] if self._reaper.missing_events else []
            found += [SWEEP_BEHIND] if self._reaper.sweep_behind else []
        return found
