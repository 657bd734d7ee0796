"""What the store said about torrents, for 10 seconds, and the queries that wait for it.

So a flood costs the store one reading of a torrent in 10 seconds. Both are bounded.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tracker.bittorrent import Endpoint, InfoHash
from tracker.dht.responder import Swarm
from tracker.wire.krpc import Query

LIFETIME_SECONDS = 10
MAX_SWARMS = 1000
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
        self._waiting_count = 0

    def __len__(self) -> int:
        return len(self._swarms)

    @property
    def waiting_count(self) -> int:
        return self._waiting_count

    def get(self, key: Key, now: float) -> Swarm | None:
        """``None`` where nothing is known, or it is too old."""
        known = self._swarms.get(key)
        return known[1] if known is not None and now - known[0] < LIFETIME_SECONDS else None

    def forget(self, info_hash: InfoHash) -> None:
        """For a torrent that has changed."""
        for family in (4, 6):
            self._swarms.pop((info_hash, family), None)

    def clear(self) -> None:
        self._swarms.clear()

    def wait(self, key: Key, waiting: WaitingQuery) -> bool:
        """Returns whether the caller must read the store: not where a reading is under way, nor where too many queries
        wait, of which this one is then dropped."""
        if self._waiting_count >= MAX_WAITING:
            return False
        self._waiting_count += 1
        others = self._waiting.setdefault(key, [])
        others.append(waiting)
        return len(others) == 1

    def finish(self, key: Key, swarm: Swarm | None, now: float) -> list[WaitingQuery]:
        """Returns the queries to answer: none where the store could not be read (``swarm`` is ``None``), which leaves
        them without an answer."""
        waiting = self._waiting.pop(key, [])
        self._waiting_count -= len(waiting)
        if swarm is None:
            return []
        self._swarms.pop(key, None)
        if len(self._swarms) >= MAX_SWARMS:
            del self._swarms[next(iter(self._swarms))]
        self._swarms[key] = now, swarm
        return waiting
