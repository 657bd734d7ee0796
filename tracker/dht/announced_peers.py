"""The peers that nodes announce to us, in one address family.

Peers live in memory only, and are bounded.

Strangers write here, so only hashes and counts go to the store, for two minutes. Of too many hashes those nearest to
our id are kept, because others look for them there. Samples of the hashes are shown (BEP 51).
"""

import random
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from tracker.bittorrent import Endpoint, InfoHash
from tracker.dht.buckets import Buckets
from tracker.dht.node_id import to_id, to_number
from tracker.wire.krpc import MAX_INTERVAL_SECONDS, NodeId

MAX_SAMPLES = 20
LIFETIME_SECONDS = 2700
"""Clients announce again within half an hour."""


class AnnouncedPeer(NamedTuple):
    endpoint: Endpoint
    seed: bool
    announced_at: float


_Swarm = dict[bytes, AnnouncedPeer]
"""The peers of a hash by address, the latest announce last."""


class AnnouncedPeers:
    """``max_peers``: of all hashes together."""

    def __init__(
        self,
        own: NodeId,
        bucket_hashes: int = 80,
        max_hashes: int = 2000,
        max_peers_of_hash: int = 500,
        max_peers: int = 100_000,
    ) -> None:
        self.max_peers_of_hash, self.max_peers = max_peers_of_hash, max_peers
        self.swarms: Buckets[_Swarm] = Buckets(
            to_number(own), bucket_hashes, max_entries=max_hashes, on_drop=self._on_drop
        )
        self.peer_count = 0

    def __len__(self) -> int:
        return len(self.swarms)

    def __contains__(self, info_hash: InfoHash) -> bool:
        return to_number(info_hash) in self.swarms

    def has_room(self, info_hash: InfoHash, address: bytes, now: float) -> bool:
        """Whether an announce is stored. One that renews an entry always is."""
        swarm = self._fresh(info_hash, now)
        if swarm is not None and address in swarm:
            return True
        if self.peer_count >= self.max_peers:
            return False
        if swarm is None:
            return self.swarms.has_room(to_number(info_hash))
        return len(swarm) < self.max_peers_of_hash

    def announce(self, info_hash: InfoHash, endpoint: Endpoint, now: float, *, seed: bool) -> bool:
        """One entry per address and hash: the latest port and kind count. Returns False where there is no room."""
        address = endpoint[:-2]
        if not self.has_room(info_hash, address, now):
            return False
        number = to_number(info_hash)
        swarm = self.swarms.get(number)
        if swarm is None:
            swarm = {}
            self.swarms.put(number, swarm)
        if swarm.pop(address, None) is None:
            self.peer_count += 1
        swarm[address] = AnnouncedPeer(endpoint, seed, now)
        return True

    def peers(self, info_hash: InfoHash, now: float) -> list[AnnouncedPeer]:
        return list((self._fresh(info_hash, now) or {}).values())

    def hashes(self) -> Iterator[InfoHash]:
        return (InfoHash(to_id(number)) for number, _ in self.swarms.items())

    def expire(self, now: float) -> None:
        """Removes all that is too old. For every minute."""
        for info_hash in list(self.hashes()):
            self._fresh(info_hash, now)

    def forget(self, info_hash: InfoHash) -> None:
        self.swarms.drop(to_number(info_hash))

    def change_id(self, own: NodeId) -> None:
        """Our id changed: the hashes are filed again."""
        self.swarms.rebase(to_number(own))
        self.peer_count = sum(map(len, self.swarms))

    def _fresh(self, info_hash: InfoHash, now: float) -> _Swarm | None:
        """The swarm without peers that are too old; ``None`` where nothing is left."""
        swarm = self.swarms.get(to_number(info_hash))
        if swarm is None:
            return None
        oldest = now - LIFETIME_SECONDS
        expired = list(takewhile(lambda address: swarm[address].announced_at <= oldest, swarm))
        for address in expired:
            del swarm[address]
        self.peer_count -= len(expired)
        if swarm:
            return swarm
        self.forget(info_hash)
        return None

    def _on_drop(self, swarm: _Swarm) -> None:
        self.peer_count -= len(swarm)


class SampleSet:
    """A random set that stays the same for an interval, so that asking often reveals no more."""

    def __init__(self, interval_seconds: int = 3600, *, by_worker: bool = False) -> None:
        """``by_worker``: a worker draws the sets, as it reads public torrents from the store for them
        (tracker/workers/dht.py). Else the responder does, when it is asked."""
        self.by_worker = by_worker
        self._interval_seconds = min(max(interval_seconds, 0), MAX_INTERVAL_SECONDS)
        self._hashes: list[InfoHash] = []
        self.total = 0
        """The size of what the set was drawn from."""
        self._until: float | None = None

    def is_due(self, now: float) -> bool:
        return self._until is None or now >= self._until

    def draw(
        self,
        hashes: Sequence[InfoHash],
        now: float,
        rng: random.Random,
        *,
        others: Sequence[InfoHash] = (),
        others_total: int = 0,
    ) -> None:
        """Draws another set. For when one is due, as ``hashes`` may be long. ``others``: up to MAX_SAMPLES random ones
        of ``others_total`` that are not among ``hashes``; each of all has the same chance."""
        self.total = len(hashes) + others_total
        chosen = rng.sample(range(self.total), min(self.total, MAX_SAMPLES))
        count = sum(each < len(hashes) for each in chosen)
        self._hashes = rng.sample(hashes, count) + list(others[: len(chosen) - count])
        rng.shuffle(self._hashes)
        self._until = now + self._interval_seconds

    def clear(self) -> None:
        """Shows nothing until the next set."""
        self._hashes, self.total, self._until = [], 0, None

    def hashes(self) -> list[InfoHash]:
        return list(self._hashes)

    def forget(self, info_hash: InfoHash) -> None:
        if info_hash in self._hashes:
            self._hashes.remove(info_hash)
            self.total -= 1

    def seconds_left(self, now: float) -> int:
        return 0 if self._until is None else max(int(self._until - now), 0)
