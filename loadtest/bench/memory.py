"""Memory per peer in the store, by kind of key."""

import re
import time
from collections import Counter

import redis

from loadtest.bench.loader import BenchError

_SAMPLE_EVERY = 50
_SETTLE_SECONDS = 5.0
_HEX, _NUMBER = re.compile(r"[0-9a-f]{40}"), re.compile(r"\b\d+\b")


def used(store: "redis.Redis") -> int:
    """Bytes of ``used_memory``."""
    return int(store.info("memory")["used_memory"])


def active_peers(store: "redis.Redis", expected: int | None = None) -> int:
    """The tracker's global count of peers; waits until it is ``expected``, as it may be a second late."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        peers = counted_peers(store)
        if peers == expected or time.monotonic() > deadline:
            return peers
        time.sleep(0.1)


def counted_peers(store: "redis.Redis") -> int:
    """The current global count of peers."""
    return sum(int(count or 0) for count in store.mget("t:stats:seeders", "t:stats:leechers"))


def per_peer(store: "redis.Redis", empty: int, expected: int) -> float:
    """Bytes per active peer; raises BenchError if the store does not hold the announced peers."""
    peers = active_peers(store, expected)
    if peers != expected:
        raise BenchError(f"the store counts {peers} peers, {expected} were announced")
    return (used(store) - empty) / peers


def by_key_kind(store: "redis.Redis", peers: int, every: int = _SAMPLE_EVERY) -> dict[str, float]:
    """Bytes per peer by kind of key, the most expensive first: from the MEMORY USAGE of one key in ``every``."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    sampled: Counter[str] = Counter()
    for key in store.scan_iter(count=1000):
        kind = _NUMBER.sub("<n>", _HEX.sub("<hex>", key.decode("latin-1")))
        counts[kind] += 1
        if counts[kind] % every == 1 % every:
            sampled[kind] += 1
            sizes[kind] += store.memory_usage(key, samples=0) or 0
    costs = {kind: counts[kind] * sizes[kind] / sampled[kind] / peers for kind in counts}
    return dict(sorted(costs.items(), key=lambda item: -item[1]))
