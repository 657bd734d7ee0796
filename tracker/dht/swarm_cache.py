"""What the store said about torrents, for 10 seconds, and the queries that wait for it.

So a flood costs the store one reading of a torrent in 10 seconds. Both are bounded.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tracker.bittorrent import Endpoint, InfoHash
from tracker.dht.responder import Swarm
from tracker.wire.krpc import Query

LIFETIME_SECONDS = 10
MAX_SWARMS = 2500
"""More than may be asked for within the lifetime under the default limits: 400 at once, and 200 a second."""
MAX_WAITING = 1000

Key = tuple[InfoHash, int]
"""A torrent, and the address family: 4 or 6."""


class WaitingQuery(NamedTuple):
    query: Query
    source: Endpoint
    control: Sequence[tuple[int, int, bytes]] = ()
    """Control messages for the answer; this module does not use them."""


class SwarmCache:
    def __init__(self) -> None:
        self._swarms: dict[Key, tuple[float, Swarm]] = {}  # the oldest first
        self._waiting: dict[Key, list[WaitingQuery]] = {}
        self.waiting_count = 0
        self._changed: set[Key] = set()
        """Torrents that have changed since their reading began."""

    def get(self, key: Key, now: float) -> Swarm | None:
        """``None`` where nothing is known, or it is too old."""
        known = self._swarms.get(key)
        return known[1] if known is not None and now - known[0] < LIFETIME_SECONDS else None

    def forget(self, info_hash: InfoHash) -> None:
        """Forgets a torrent that has changed."""
        for key in ((info_hash, 4), (info_hash, 6)):
            self._swarms.pop(key, None)
            if key in self._waiting:
                self._changed.add(key)

    def clear(self) -> None:
        self._swarms.clear()
        self._changed.update(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether too many queries wait: no more may."""
        return self.waiting_count >= MAX_WAITING

    def wait(self, key: Key, waiting: WaitingQuery) -> bool:
        """Returns whether the caller must read the store: not where a reading is under way. Not to be called when
        full."""
        self.waiting_count += 1
        others = self._waiting.setdefault(key, [])
        others.append(waiting)
        return len(others) == 1

    def must_read_again(self, key: Key) -> bool:
        """Whether the torrent has changed since its reading began, or since the last call."""
        if key not in self._changed:
            return False
        self._changed.remove(key)
        return True

    def finish(self, key: Key, swarm: Swarm | None, now: float) -> list[WaitingQuery]:
        """Returns the queries that waited. ``swarm`` is ``None`` where the store could not be read: they are not
        answered then."""
        waiting = self._waiting.pop(key, [])
        self.waiting_count -= len(waiting)
        self._changed.discard(key)
        if swarm is None:
            return waiting
        self._swarms.pop(key, None)
        if len(self._swarms) >= MAX_SWARMS:
            del self._swarms[next(iter(self._swarms))]
        self._swarms[key] = now, swarm
        return waiting
