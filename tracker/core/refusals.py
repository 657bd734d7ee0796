"""The count of refused requests, and the failures for what the store refuses or cannot serve."""

from tracker.errors import StoreOverloaded, StoreUnavailable
from tracker.refusals import Busy, Label, Refusal
from tracker.store.stats.counters import Counters
from tracker.store.swarms.codec import Refused


class Failures:
    """Counts refused requests: ``kind`` is announces, scrapes or other."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def count(self, label: Label, kind: str, number: int = 1) -> None:
        self._counters.count("requests", f"failures.{label}", f"refused.{kind}", by=number)

    def to_error(self, error: Refused | Refusal | StoreUnavailable, kind: str) -> Refusal:
        """Counts a refusal, and returns the failure to send. A request that crashes is counted where it is answered."""
        if isinstance(error, StoreOverloaded):
            error = Busy()
        elif isinstance(error, StoreUnavailable):
            error = Refusal("store unavailable")
        elif isinstance(error, Refused):
            error = Refusal(error.code, error.reason)
        self.count(error.label, kind)
        return error
