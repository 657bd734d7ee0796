"""The indexes of torrents: adds torrents that an index misses."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import OutOfMemoryError

from tracker.names import fold_name
from tracker.store.client.scripts import Scripts
from tracker.store.sharding.shards import Shard, scan

Row = tuple[bytes, bytes, bytes, bytes]
"""Of a torrent that an index misses, as index.lua takes it: info hash, torrent id, name and folded name."""


def unlisted(found: Sequence[Any]) -> list[Row]:
    """Parses what note_unlisted() of unlisted.lua found. Leaves out torrents whose index entries are correct: only
    Python can fold their names and compare them."""
    rows: list[Row] = []
    for info_hash, torrent_id, name, listed, certain in zip(*(found[i::5] for i in range(5)), strict=True):
        folded = fold_name(name.decode("utf-8", "replace")).encode()
        if certain or folded != listed:
            rows.append((info_hash, torrent_id, name, folded))
    return rows


async def list_torrents(scripts: Scripts, now: int, rows: Iterable[Row]) -> None:
    """Adds torrents to the indexes. Does nothing if the store is out of memory: the next sweep finds them again."""
    if parts := [part for row in rows for part in row]:
        with suppress(OutOfMemoryError):
            await scripts.index([now, *parts])


async def list_denials(scripts: Scripts, now: int, info_hashes: Iterable[str]) -> None:
    """Lists those that are denied, and removes others from the list."""
    await list_torrents(scripts, now, [(info_hash.encode(), b"", b"", b"") for info_hash in info_hashes])


async def page_of_torrents(shard: Shard, cursor: int, count: int) -> tuple[int, list[tuple[str, float]]]:
    """Returns (next cursor, about ``count`` torrent ids with seeders), unordered. Cursor 0 begins and ends the walk."""
    after, flat = await shard.connection.command("ZSCAN", shard.keys.index("seeders"), cursor, "COUNT", count)
    return int(after), [(member.decode(), float(number)) for member, number in zip(flat[::2], flat[1::2], strict=True)]


async def pages_of_torrents(shard: Shard) -> AsyncIterator[Sequence[str]]:
    """The ids of all torrents, unordered."""
    async for members in scan(shard.connection, ("ZSCAN", shard.keys.index("seeders")), "COUNT", 500):
        yield [member.decode() for member in members[::2]]
