"""Reports the limits on self-registering torrents: a counter for each event, and at most one log line a minute."""

from collections.abc import Callable

import structlog

from tracker.store.stats.count import Count

LOG_SECONDS = 60.0

log = structlog.get_logger("tracker")


class RegistrationLimits:
    """The report of one process. ``clock`` gives epoch seconds.

    No address is logged. Refused torrents are counted, by reason, where they are answered.
    """

    def __init__(self, count: Count, clock: Callable[[], float]) -> None:
        self._count = count
        self._clock = clock
        self._logged = -LOG_SECONDS
        self._forgotten = self._refused = 0

    def note(self, forgotten: int, refused: int) -> None:
        """Adds empty torrents that were forgotten to make room, and new torrents that were refused."""
        if forgotten:
            self._count("forgotten", "forgotten.full", by=forgotten)
        self._forgotten += forgotten
        self._refused += refused
        now = self._clock()
        if self._forgotten + self._refused and abs(now - self._logged) >= LOG_SECONDS:
            log.warning("new torrents are limited", refused=self._refused, forgotten=self._forgotten)
            self._logged, self._forgotten, self._refused = now, 0, 0
