"""Whose peers are being removed, in all shards: users and clients that are refused from now on, and torrents."""

from collections.abc import Sequence

from tracker.store.sharding.shards import Shard, Shards

TORRENTS_A_ROUND = 100


class Removals:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def begin(self, prefix: bytes) -> None:
        """Begins the removal of a denied client's peers: they are told to nobody from now on. In a shard that is away,
        the sweep removes them."""
        await self._shards.run(
            lambda shard: shard.scripts.begin_removal, {shard: [prefix.hex()] for shard in self._shards}
        )

    async def end(self, prefix: bytes) -> None:
        """The peers of a client that is no longer denied are told to others again."""
        entry = f"client:{prefix.hex()}"
        await self._shards.run(
            lambda shard: shard.scripts.end_removal, {shard: [entry] for shard in self._shards}
        )

    async def pending(self, numbers: Sequence[int]) -> dict[Shard, list[str]]:
        """What is to be removed in shards with these numbers, as ``Reaping.remove`` takes it."""
        replies = await self._shards.run(
            lambda shard: shard.scripts.pending_removals,
            {shard: [TORRENTS_A_ROUND] for shard in self._shards if shard.number in numbers},
        )
        return {
            shard: [entry.decode("ascii", "replace") for entry in entries]
            for shard, entries in replies.items()
            if entries
        }
