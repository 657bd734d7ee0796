"""Who may read /metrics while the store is away, and nobody can look a token up: whoever read them shortly before.

Without that Prometheus would lose sight of the tracker just when something is wrong. Nothing else is let through so:
a token that was revoked meanwhile reads figures until the store is back, and only if it was used just before.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

REMEMBERED_SECONDS = 900.0
"""Since the last time that the store knew the token."""
MOST_REMEMBERED = 16

Who = TypeVar("Who")


class Scrapers(Generic[Who]):
    """``clock`` gives seconds since whenever. Secrets are kept as their SHA-256."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, Who]] = OrderedDict()

    def note(self, secret: str, who: Who | None) -> None:
        """The store was asked: ``secret`` is of ``who``, or of nobody."""
        self._known.pop(_digest(secret), None)
        if who is not None:
            self._known[_digest(secret)] = self._clock(), who
            if len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)

    def recall(self, secret: str) -> Who | None:
        """Who that was, when the store cannot be asked."""
        noted, who = self._known.get(_digest(secret), (0.0, None))
        return who if who is not None and self._clock() - noted <= REMEMBERED_SECONDS else None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
