"""Reads what the sweep has counted, in all shards."""

from contextlib import suppress

from tracker.store.sharding.shards import Shards
from tracker.store.swarms.peer_counts import NO_PEERS, PeerCounts


class ShardedPeerCounts:
    """Works the same with one shard."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def read(self) -> PeerCounts | None:
        """The sums over the shards, each as of its last round of the sweep; None while a shard has no counts. Raises
        StoreUnavailable and RedisError."""
        # MGET, because GET would fail on a key of another type.
        found = await self._shards.each(lambda shard: ("MGET", shard.keys.peer_counts()))
        total = NO_PEERS
        with suppress(ValueError):  # missing, or another program wrote it
            for (value,) in found.values():
                total = total.plus(PeerCounts.decode(value or b""))
            return total
        return None
