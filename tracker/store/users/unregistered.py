"""Torrents that a user announced and that are not registered, in all shards. announce.lua keeps them."""

from typing import NamedTuple

from tracker.bittorrent import InfoHash, info_hash_of
from tracker.store.schema.lenient_numbers import ranked
from tracker.store.sharding.shards import StorePart

MAX_KEPT = 100
"""In each shard; as many are read."""
KEPT_SECONDS = 90 * 86_400


class Tried(NamedTuple):
    """A torrent, and when the user first announced it (epoch s)."""

    info_hash: InfoHash
    at: int


class Unregistered(StorePart):
    """``clock`` gives epoch seconds."""

    async def of(self, user_id: str) -> list[Tried]:
        """The last MAX_KEPT of a user, newest first. Removes those that are registered by now."""
        oldest = int(self._clock()) - KEPT_SECONDS
        replies = await self._shards.each(
            lambda shard: (
                *("ZRANGE", shard.keys.user_unregistered(user_id), "+inf", oldest, "BYSCORE", "REV"),
                *("LIMIT", 0, MAX_KEPT, "WITHSCORES"),
            )
        )
        pairs = [pair for reply in replies.values() for pair in ranked(reply)]
        tried = [Tried(found, at) for text, at in pairs if (found := info_hash_of(text.encode())) is not None]
        newest = sorted(tried, key=lambda each: (-each.at, each.info_hash))[:MAX_KEPT]
        of, hashes = self._shards.of, [each.info_hash for each in newest]
        known = await self._shards.ask([(shard := of(each), ("EXISTS", shard.keys.info_hash(each))) for each in hashes])
        gone = [each for each, is_known in zip(hashes, known, strict=True) if is_known]
        await self._shards.ask(
            [(shard := of(each), ("ZREM", shard.keys.user_unregistered(user_id), each.hex())) for each in gone]
        )
        return [each for each in newest if each.info_hash not in gone]
