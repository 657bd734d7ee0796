"""A cache of recent readers of /metrics, for when the store is unavailable and tokens cannot be looked up.

Without it Prometheus would lose the tracker exactly during an incident. It applies to /metrics only: a token that is
revoked or expires during the outage can read metrics until the store is back, if it was used shortly before.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

REMEMBERED_SECONDS = 900.0
"""Time since the last successful lookup."""
MAX_REMEMBERED = 16

Owner = TypeVar("Owner")


class MetricsAuthCache(Generic[Owner]):
    """``clock`` returns monotonic seconds. Secrets are kept as SHA-256 hashes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, Owner]] = OrderedDict()

    def note(self, secret: str, owner: Owner | None) -> None:
        """Record a lookup: ``secret`` belongs to ``owner``; None: to no one."""
        self._known.pop(_digest(secret), None)
        if owner is not None:
            self._known[_digest(secret)] = self._clock(), owner
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)

    def recall(self, secret: str) -> Owner | None:
        """The owner of ``secret``, as of a recent lookup; else None."""
        noted, owner = self._known.get(_digest(secret), (0.0, None))
        return owner if owner is not None and self._clock() - noted <= REMEMBERED_SECONDS else None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
