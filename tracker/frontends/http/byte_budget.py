"""Limits the bytes that the connections of a process hold together, and closes one when they hold more.

A connection holds unfinished requests, requests that wait for an earlier answer, and unread answers. Each connection
has a limit; ten thousand connections together need one too.
"""

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Generic, TypeVar

_MAX_EXAMINED = 32
"""Connections that have held bytes for the longest time, of which one is closed."""

Holder = TypeVar("Holder")


class Budget(Generic[Holder]):
    """``close`` ends a connection and releases its bytes; ``network_of`` gives its network, or None."""

    def __init__(
        self, max_bytes: int, network_of: Callable[[Holder], bytes | None], close: Callable[[Holder], None]
    ) -> None:
        self._max_bytes = max_bytes
        self._network_of = network_of
        self._close = close
        self._held: dict[Holder, int] = {}
        self._of_network: dict[Hashable, int] = {}
        self.total = 0
        self.peak = 0
        """The largest total since it was last reset."""

    def hold(self, holder: Holder, size: int) -> None:
        """``holder`` now has ``size`` bytes. Beyond the limit connections are closed, perhaps this one."""
        if not size:
            self.release(holder)
            return
        self._add(holder, size - self._held.get(holder, 0))
        self._held[holder] = size
        self.peak = max(self.peak, self.total)
        while self.total > self._max_bytes:
            self._close(self._worst())

    def release(self, holder: Holder) -> None:
        size = self._held.pop(holder, 0)
        if size:
            self._add(holder, -size)

    def _add(self, holder: Holder, size: int) -> None:
        self.total += size
        owner: Hashable = self._network_of(holder) or holder
        left = self._of_network.get(owner, 0) + size
        if left:
            self._of_network[owner] = left
        else:
            self._of_network.pop(owner, None)

    def _worst(self) -> Holder:
        """Among the oldest, the one whose network holds the most bytes: one network must not displace the others."""
        return max(
            islice(self._held, _MAX_EXAMINED),
            key=lambda holder: self._of_network[self._network_of(holder) or holder],
        )
