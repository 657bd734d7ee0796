"""The indexes of torrents: adds torrents that an index misses."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.exceptions import OutOfMemoryError

from tracker.names import fold_name
from tracker.store.client.scripts import Scripts
from tracker.store.sharding.shards import Shard, scan


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A torrent that an index may miss. ``certain``: an index misses it, even if its listed name is correct."""

    info_hash: str
    torrent_id: str
    name: bytes
    listed: bytes
    certain: bool

    @property
    def folded(self) -> bytes:
        return fold_name(self.name.decode("utf-8", "replace")).encode()

    @property
    def wrong(self) -> bool:
        return self.certain or self.folded != self.listed


def unlisted(found: Sequence[Any]) -> list[Unlisted]:
    """Parses what note_unlisted() of unlisted.lua found. Leaves out torrents whose index entries are correct: only
    Python can fold their names and compare them."""
    rows = [
        Unlisted(info_hash.decode(), torrent_id.decode(), name, listed, certain == 1)
        for info_hash, torrent_id, name, listed, certain in zip(*(found[i::5] for i in range(5)), strict=True)
    ]
    return [row for row in rows if row.wrong]


async def list_torrents(scripts: Scripts, now: int, rows: Sequence[Unlisted]) -> None:
    """Adds torrents to the indexes. Does nothing if the store is out of memory: the next sweep finds them again."""
    if not rows:
        return
    argv: list[str | bytes | int | float] = [now]
    for row in rows:
        argv += (row.info_hash, row.torrent_id, row.name, row.folded)
    with suppress(OutOfMemoryError):
        await scripts.index(argv)


async def page_of_torrents(shard: Shard, cursor: int, count: int) -> tuple[int, list[tuple[str, float]]]:
    """Returns (next cursor, about ``count`` torrent ids with seeders), unordered. Cursor 0 begins and ends the walk."""
    after, flat = await shard.connection.command("ZSCAN", shard.keys.index("seeders"), cursor, "COUNT", count)
    return int(after), [(member.decode(), float(number)) for member, number in zip(flat[::2], flat[1::2], strict=True)]


async def pages_of_torrents(shard: Shard) -> AsyncIterator[Sequence[str]]:
    """The ids of all torrents, unordered."""
    async for members in scan(shard.connection, ("ZSCAN", shard.keys.index("seeders")), "COUNT", 500):
        yield [member.decode() for member in members[::2]]
