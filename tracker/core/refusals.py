"""Why requests are refused, in words for people, and the count of them."""

import random

from tracker.errors import Busy, ClientError, RetryIn, StoreAway, StoreBehind
from tracker.store.counters import Counters
from tracker.store.swarms import Refused

_AWAY = "the tracker's store is away: your client will try again by itself"
_BUSY = "the tracker is busy: your client will try again by itself"
_BUSY_MINUTES = 5
"""Within which those who found it busy come back, each at a time of its own: else all would come at once again."""
REFUSALS: dict[str, tuple[str, RetryIn]] = {
    "unknown torrent": ("this torrent is not registered with this tracker", 30),
    "denied": ("this torrent is not allowed on this tracker", "never"),
    "disabled": ("this torrent is disabled", 60),
    "unknown passkey": ("unknown passkey: download the .torrent file again", 60),
    "user disabled": ("your account is disabled", 60),
    "may not leech": ("your account may not download", 60),
    "too many torrents": ("this tracker takes no more torrents", 60),
    "too many new torrents": ("too many new torrents from your address: try again in an hour", 60),
    "store full": ("the tracker is full: your client will try again by itself", 5),
    "torrent id in use": ("this torrent has the id of another: tell the people who run this tracker", 15),
    "bad torrent id": ("this torrent is registered wrongly: tell the people who run this tracker", 60),
}
"""By the label that counts them: the text, and the minutes until the peer may ask again."""


def refusal(code: str, reason: str = "") -> ClientError:
    """What the store refused, in words; ``reason`` is an operator's own text, or empty."""
    known = REFUSALS.get(code)
    if known is None:
        return ClientError("internal error", retry_in=5, label="internal error")
    text, retry_in = known
    return ClientError(reason or text, retry_in=retry_in, label=code)


class Failures:
    """Counts refused requests: ``kind`` is announces, scrapes or other."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def count(self, label: str, kind: str, number: int = 1) -> None:
        self._counters.count("requests", f"failures.{label}", f"refused.{kind}", by=number)

    def worded(self, error: Refused | ClientError | StoreAway, kind: str) -> ClientError:
        """Counts a refusal, and puts it into words. A request that crashes is counted by whoever answers it."""
        if isinstance(error, StoreBehind):
            error = Busy(_BUSY, retry_in=random.randint(1, _BUSY_MINUTES), label="busy")
        elif isinstance(error, StoreAway):
            error = ClientError(_AWAY, retry_in=1, label="store away")
        elif isinstance(error, Refused):
            error = refusal(error.code, error.reason)
        self.count(error.label, kind)
        return error
