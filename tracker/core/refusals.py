"""The count of refused requests, and the failures for what the store refuses or cannot serve."""

import random

from tracker.errors import Busy, ClientError, StoreOverloaded, StoreUnavailable
from tracker.refusals import REFUSALS, refusal
from tracker.store.stats.counters import Counters
from tracker.store.swarms.codec import Refused


class Failures:
    """Counts refused requests: ``kind`` is announces, scrapes or other."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def count(self, label: str, kind: str, number: int = 1) -> None:
        self._counters.count("requests", f"failures.{label}", f"refused.{kind}", by=number)

    def to_error(self, error: Refused | ClientError | StoreUnavailable, kind: str) -> ClientError:
        """Counts a refusal, and returns the failure to send. A request that crashes is counted where it is answered."""
        if isinstance(error, StoreOverloaded):
            error = _busy()
        elif isinstance(error, StoreUnavailable):
            error = refusal("store away")
        elif isinstance(error, Refused):
            error = refusal(error.code, error.reason)
        self.count(error.label, kind)
        return error


def _busy() -> Busy:
    """The retry times are spread, so that clients do not all return at once."""
    text, minutes, *_ = REFUSALS["busy"]
    assert minutes != "never"
    return Busy(text, retry_in=random.randint(1, minutes), label="busy")
