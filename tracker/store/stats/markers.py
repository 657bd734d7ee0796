"""Deletes markers of unique users to free memory for peers, when the store refuses joins because it is full."""

import re
from collections.abc import AsyncIterator
from contextlib import suppress

from tracker.errors import StoreUnavailable
from tracker.store.schema.keys import SCOPES
from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Shard, StorePart, in_parts, scan
from tracker.store.stats.memory_usage import read_usage
from tracker.store.stats.slices import ALL_TIME, month_of

TARGET_SHARE = 0.75
"""Deletion stops at this share of maxmemory: joins work, and unique users are counted again."""
_MARKER = re.compile(rf"(?:{SCOPES[0]}|torrents)\..+\.users\.(?![0-9]{{4}}-[0-9]{{2}}$).+", re.DOTALL)
_KEEP_SECONDS = 30 * 86_400
_SCAN = 500
"""Keys scanned in one call. With the deletion of markers it takes the store less than a millisecond."""
_CALL = 100
"""Markers deleted in one call."""
_PAGES = 20
"""Pages between two readings of the store's memory use."""


class Markers(StorePart):
    """The markers of all shards. ``clock`` returns epoch seconds. Every method raises StoreUnavailable and
    redis.exceptions.RedisError."""

    async def refused_joins(self) -> int:
        return whole(await self._connection.command("HGET", self._keys.failures(), "store full"))

    async def make_room(self) -> AsyncIterator[int]:
        """Deletes markers until memory use is at TARGET_SHARE, or no marker is left. Another shard that is unavailable
        keeps its markers. Yields the total of deleted markers after each page."""
        deleted = 0
        for shard in self._shards.all:
            with suppress(*() if shard is self._shards.main else (StoreUnavailable,)):
                async for number in self._make_room_in(shard):
                    deleted += number
                    yield deleted

    async def _make_room_in(self, shard: Shard) -> AsyncIterator[int]:
        """Yields how many markers of each page were deleted."""
        pages, how = 0, ("MATCH", f"{shard.keys.prefix}*.users.*", "COUNT", _SCAN)
        async for keys in scan(shard.connection, ("SCAN",), *how):
            if pages % _PAGES == 0 and (await read_usage(shard.connection)).share <= TARGET_SHARE:
                return
            pages += 1
            yield await self._delete(shard, keys)

    async def _delete(self, shard: Shard, keys: list[bytes]) -> int:
        start, now = len(shard.keys.prefix.encode()), self._clock()
        # An address that loses its marker may be counted again within 30 days, also in the next month.
        periods = " ".join(dict.fromkeys((ALL_TIME, month_of(now), month_of(now + _KEEP_SECONDS))))
        markers = [key[start:] for key in keys if _MARKER.fullmatch(key[start:].decode("utf-8", "replace"))]
        return sum([int(await shard.scripts.forget_markers([periods, *some])) for some in in_parts(markers, _CALL)])
