"""Failure reasons shown to peers, and the count of refused requests."""

import random

from tracker.errors import Busy, ClientError, RetryIn, StoreOverloaded, StoreUnavailable
from tracker.store.stats.counters import Counters
from tracker.store.swarms.codec import Refused

_UNAVAILABLE = "tracker temporarily unavailable; your client will retry"
_BUSY = "the tracker is busy; your client will retry"
_BUSY_MINUTES = 5
"""The retry times of busy answers are spread over this long, so that clients do not all return at once."""
REFUSALS: dict[str, tuple[str, RetryIn]] = {
    "unknown torrent": ("this torrent is not registered with this tracker", 30),
    "denied": ("this torrent is not allowed on this tracker", "never"),
    "disabled": ("this torrent is disabled", 60),
    "client denied": ("your client is on the deny list of this tracker; use another one", 60),
    "unknown passkey": ("unknown passkey: download the .torrent file again", 60),
    "bad user id": ("invalid account data; please report to the site staff", 60),
    "user id in use": ("user ID conflict; please report to the site staff", 15),
    "user disabled": ("your account is disabled", 60),
    "may not leech": ("your account may not download", 60),
    "too many downloads": ("you are downloading as many torrents as you may; finish or stop one first", 30),
    "too many torrents": ("this tracker accepts no more torrents", 60),
    "too many new torrents": ("too many new torrents from your address; try again in an hour", 60),
    "too many new torrents from network": (
        "too many new torrents from your network; try again in an hour",
        60,
    ),
    "store full": ("the tracker is full; your client will retry", 5),
    "torrent id in use": ("torrent ID conflict; please report to the site staff", 15),
    "bad torrent id": ("invalid torrent data; please report to the site staff", 60),
}
"""By the label that counts them: the text, and the minutes until the peer may retry."""


def refusal(code: str, reason: str = "") -> ClientError:
    """The failure for a refusal of the store; ``reason`` is an operator's own text, or empty."""
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

    def to_error(self, error: Refused | ClientError | StoreUnavailable, kind: str) -> ClientError:
        """Counts a refusal, and returns the failure to send. A request that crashes is counted where it is answered."""
        if isinstance(error, StoreOverloaded):
            error = Busy(_BUSY, retry_in=random.randint(1, _BUSY_MINUTES), label="busy")
        elif isinstance(error, StoreUnavailable):
            error = ClientError(_UNAVAILABLE, retry_in=1, label="store away")
        elif isinstance(error, Refused):
            error = refusal(error.code, error.reason)
        self.count(error.label, kind)
        return error
