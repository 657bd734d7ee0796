"""Whether this tracker is fit to serve, and why not: for /ready, on both ports.

Nothing here asks the store: what the loops have noticed anyway is looked at, so that anybody may ask at any rate.
"""

from collections.abc import Callable

from tracker.store.connection import Connection
from tracker.workers.reaper import Reaper

STORE_AWAY = "the store does not answer"
DEAF = "expiry events of the store are not heard"
SWEEP_BEHIND = "the sweep is behind"
STOPPING = "shutting down"
NOBODY_SERVES = "no web process serves"


class Readiness:
    """``stopping`` says whether the stop has begun. Where another process reaps there is no ``reaper``."""

    def __init__(self, connection: Connection, stopping: Callable[[], bool], reaper: Reaper | None) -> None:
        self._connection = connection
        self._stopping = stopping
        self._reaper = reaper

    def problems(self) -> list[str]:
        """Fixed texts, fit for anybody; none when all is well. What follows from a store that is away is left out."""
        found = [STOPPING] if self._stopping() else []
        if self._connection.away:
            return [*found, STORE_AWAY]
        if self._reaper is not None:
            found += [DEAF] if self._reaper.deaf else []
            found += [SWEEP_BEHIND] if self._reaper.sweep_behind else []
        return found
