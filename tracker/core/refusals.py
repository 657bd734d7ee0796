"""Counts refused requests and limits on new torrents, and returns the failures for what the store refuses or cannot
serve."""

from collections.abc import Callable

from tracker.errors import StoreOverloaded, StoreUnavailable
from tracker.refusals import Busy, Label, Refusal
from tracker.store.stats.counters import Count, Counters
from tracker.store.swarms.codec import Refused
from tracker.system.logger import Logger

LOG_SECONDS = 60.0

log = Logger("tracker")


class Failures:
    """Counts refused requests, also those refused before a decision: ``kind`` is announces, scrapes or other."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def count(self, label: Label, kind: str = "other", number: int = 1) -> None:
        self._counters.count("requests", f"failures.{label}", f"refused.{kind}", by=number)

    def to_error(self, error: Refused | Refusal | StoreUnavailable, kind: str, passkey: str | None = None) -> Refusal:
        """Counts a refusal, and returns the failure to send. A request that crashes is counted where it is answered.
        ``passkey``: that of the request, empty without one, or None if the refusal does not depend on it."""
        if isinstance(error, StoreOverloaded):
            error = Busy()
        elif isinstance(error, StoreUnavailable):
            error = Refusal("store unavailable")
        elif isinstance(error, Refused):
            missing = error.code == "unknown passkey" and passkey == ""
            error = Refusal("no passkey") if missing else Refusal(error.code, error.reason)
        self.count(error.label, kind)
        return error


class RegistrationLimits:
    """The report on limits of self-registering torrents in one process: a counter for each event, and at most one log
    line a minute. ``clock`` gives epoch seconds. No address is logged. Refused torrents are counted, by reason, where
    they are answered."""

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
