"""Samples of the info hashes that this node stores, or that the tracker knows (BEP 51)."""

import random
from collections.abc import Sequence

from tracker.bittorrent import InfoHash
from tracker.wire.krpc import MAX_INTERVAL_SECONDS

MAX_SAMPLES = 20


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
