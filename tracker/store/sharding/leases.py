"""Which tracker does the background work of which shard."""

from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shard

LEASE_SECONDS = 15
_KIND, _NAME = "shard", "background"


class ShardLeases:
    """Leases are in the shards; the trackers that share them are listed at home. ``token`` names a tracker.

    Every method raises StoreUnavailable and redis.exceptions.RedisError.
    """

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._key = keys.leases("trackers")

    async def count_trackers(self, token: str, now: int) -> int:
        """Lists a tracker, and returns how many are listed."""
        answers = await self._connection.pipeline(
            ("ZADD", self._key, now + LEASE_SECONDS, token),
            ("ZREMRANGEBYSCORE", self._key, "-inf", now),
            ("ZCARD", self._key),
        )
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return int(answers[-1])

    async def leave(self, token: str) -> None:
        """Removes a tracker from the list."""
        await self._connection.command("ZREM", self._key, token)

    async def take(self, shard: Shard, token: str, now: int) -> bool:
        """Takes or renews a lease. False where another tracker has it."""
        return bool(await shard.scripts.named_lease([_KIND, _NAME, token, now, now + LEASE_SECONDS]))

    async def release(self, shard: Shard, token: str, now: int) -> None:
        await shard.scripts.named_lease([_KIND, _NAME, token, now, ""])
