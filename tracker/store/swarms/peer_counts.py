"""Peers of all swarms by kind, family and protocol, as the sweep counts them."""

from contextlib import suppress
from typing import NamedTuple

from tracker.store.sharding.shards import Shards

_MAX = 2**53 - 1


class PeerCounts(NamedTuple):
    """A peer on both families counts in each. The protocol of a peer is that of its last join."""

    seeders: int = 0
    leechers: int = 0
    seeders_v4: int = 0
    leechers_v4: int = 0
    seeders_v6: int = 0
    leechers_v6: int = 0
    seeders_udp: int = 0
    leechers_udp: int = 0
    seeders_ws: int = 0
    """Those with a WebSocket, which may have an endpoint as well."""
    leechers_ws: int = 0

    @property
    def seeders_http(self) -> int:
        return max(0, self.seeders - self.seeders_udp - self.seeders_ws)

    @property
    def leechers_http(self) -> int:
        return max(0, self.leechers - self.leechers_udp - self.leechers_ws)

    def plus(self, other: "PeerCounts") -> "PeerCounts":
        return PeerCounts(*(a + b for a, b in zip(self, other, strict=True)))

    def encode(self) -> str:
        return " ".join(map(str, self))

    @classmethod
    def decode(cls, text: bytes) -> "PeerCounts":
        """Raises ValueError for anything else than ``encode`` returns."""
        counts = list(map(int, text.split()))
        if len(counts) != len(cls._fields) or not 0 <= min(counts) <= max(counts) <= _MAX:
            raise ValueError("these are no counts of peers")
        return cls(*counts)


NO_PEERS = PeerCounts()


async def read_peer_counts(shards: Shards) -> PeerCounts | None:
    """The sums over the shards, each as of its last round of the sweep; None while a shard has no counts. Raises
    StoreUnavailable and RedisError."""
    # MGET, because GET would fail on a key of another type.
    found = await shards.each(lambda shard: ("MGET", shard.keys.peer_counts()))
    total = NO_PEERS
    with suppress(ValueError):  # missing, or another program wrote it
        for (value,) in found.values():
            total = total.plus(PeerCounts.decode(value or b""))
        return total
    return None
