"""The torrents of all shards: calls for one torrent go to its shard, and lists are merged."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, StoreUnavailable
from tracker.store.sharding.shards import ScanCursors, Shard, Shards
from tracker.store.torrents.torrents import (
    RANKINGS,
    SEARCHES_AT_ONCE,
    Denial,
    Peer,
    Point,
    Torrent,
    Torrents,
)

_SPARE = 8
"""Pairs of a ranking that a shard is asked for beyond twice its share."""
_CURSOR = re.compile(r"([0-9]{1,3})-([^-]*)", re.ASCII)


class ShardedTorrents(Torrents):
    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._cursors = ScanCursors(shards)
        self._searches = asyncio.Semaphore(SEARCHES_AT_ONCE)

    def _of(self, info_hash: InfoHash) -> Torrents:
        return self._shards.of(info_hash).torrents

    # One torrent

    async def add(
        self, info_hash: InfoHash, fields: Mapping[str, str] | None = None, *, reset_score: bool = False
    ) -> tuple[str, bool]:
        return await self._of(info_hash).add(info_hash, fields, reset_score=reset_score)

    async def edit(self, info_hash: InfoHash, fields: Mapping[str, str]) -> None:
        await self._of(info_hash).edit(info_hash, fields)

    async def remove(self, info_hash: InfoHash) -> bool:
        return await self._of(info_hash).remove(info_hash)

    async def deny(self, info_hash: InfoHash, reason: str) -> None:
        await self._of(info_hash).deny(info_hash, reason)

    async def allow(self, info_hash: InfoHash) -> bool:
        return await self._of(info_hash).allow(info_hash)

    async def history(self, torrent: Torrent) -> list[Point]:
        return await self._of(torrent.info_hash).history(torrent)

    async def completers(self, torrent: Torrent) -> list[tuple[str, int]]:
        return await self._of(torrent.info_hash).completers(torrent)

    async def peers(self, torrent: Torrent, cursor: int = 0, count: int = 100) -> tuple[int, list[Peer]]:
        return await self._of(torrent.info_hash).peers(torrent, cursor, count)

    # Several torrents

    async def add_many(
        self, torrents: Sequence[tuple[InfoHash, Mapping[str, str]]]
    ) -> list[tuple[str, bool] | ClientError]:
        return await self._shards.split(
            torrents, lambda each: each[0], lambda shard, part: shard.torrents.add_many(part)
        )

    async def get_all(self, info_hashes: Sequence[InfoHash]) -> list[Torrent]:
        async def get(shard: Shard, part: list[InfoHash]) -> list[Torrent | None]:
            found = {torrent.info_hash: torrent for torrent in await shard.torrents.get_all(part)}
            return [found.get(info_hash) for info_hash in part]

        found = await self._shards.split(info_hashes, _itself, get)
        return [torrent for torrent in found if torrent is not None]

    async def registered(self, info_hashes: Sequence[InfoHash]) -> set[InfoHash]:
        missing = await self.unregistered(info_hashes)
        return set(info_hashes) - set(missing)

    async def unregistered(self, info_hashes: Sequence[InfoHash]) -> list[InfoHash]:
        async def is_registered(shard: Shard, part: list[InfoHash]) -> list[bool]:
            found = await shard.torrents.registered(part)
            return [info_hash in found for info_hash in part]

        known = await self._shards.split(info_hashes, _itself, is_registered)
        return [info_hash for info_hash, found in zip(info_hashes, known, strict=True) if not found]

    async def history_entries(self, torrents: Sequence[Torrent]) -> list[list[bytes]]:
        return await self._shards.split(
            torrents,
            lambda torrent: torrent.info_hash,
            lambda shard, part: shard.torrents.history_entries(part),
        )

    async def by_ids(self, ids: Sequence[str]) -> list[Torrent]:
        found = await self._shards.find_torrents(ids)
        return await self.get_all([found[torrent_id][1] for torrent_id in ids if torrent_id in found])

    # Lists

    async def count(self) -> int:
        return sum((await self._shards.each(lambda shard: ("ZCARD", shard.keys.index("seeders")))).values())

    async def page(self, cursor: int, count: int = 100) -> tuple[int, list[Torrent]]:
        return await self._cursors.page(cursor, lambda shard, own: shard.torrents.page(own, count))

    async def top(
        self, ranking: str, count: int, offset: int = 0, *, ascending: bool = False
    ) -> list[Torrent]:
        if ranking not in RANKINGS:
            raise ClientError("torrents are not ranked by this")
        pairs = await top_of(
            self._shards, lambda shard: shard.keys.index(ranking), count, offset, ascending=ascending
        )
        return await self.by_ids([torrent_id for torrent_id, _ in pairs])

    async def denials(self, offset: int = 0, count: int = 100) -> list[Denial]:
        found = await self._shards.gather(lambda shard: shard.torrents.denials(0, offset + count))
        merged = [denial for part in found.values() for denial in part]
        merged.sort(key=lambda denial: (denial.since, denial.info_hash), reverse=True)
        return merged[offset : offset + count]

    async def denial_count(self) -> int:
        return sum((await self._shards.each(lambda shard: ("ZCARD", shard.keys.denied()))).values())

    async def search(self, text: str, count: int = 100, cursor: str = "") -> tuple[str, list[Torrent]]:
        """As with one shard, but the results of each shard follow those of the shard before."""
        number, own = self._search_cursor(cursor)
        found: list[Torrent] = []
        async with self._searches:
            while True:
                try:
                    own, more = await self._shards[number].torrents.search(text, count - len(found), own)
                except StoreUnavailable as error:
                    self._shards.leave_out([number], error)
                    own, more = "", []
                found += more
                if not own:
                    number += 1
                if number == len(self._shards):
                    return "", found
                if own or len(found) >= count:
                    return f"{number}-{own}", found

    def _search_cursor(self, cursor: str) -> tuple[int, str]:
        match = _CURSOR.fullmatch(cursor or "0-")
        if match is None or int(match[1]) >= len(self._shards):
            raise ClientError("invalid cursor")
        return int(match[1]), match[2]


async def top_of(
    shards: Shards, key_of: Callable[[Shard], str], count: int, offset: int, *, ascending: bool = False
) -> list[tuple[str, float]]:
    """``count`` pairs (member, score) from ``offset`` on, of the sorted sets of all shards together: highest score
    first, unless ``ascending``. Members with equal scores are in the order of one sorted set.

    Each shard is asked for some more than its share, and again only if all that it gave belong to the first ones.
    """
    order = () if ascending else ("REV",)
    first, wanted = offset if len(shards) == 1 else 0, offset + count
    some = min(wanted, first + 2 * wanted // len(shards) + _SPARE)
    parts = await shards.each(lambda shard: ("ZRANGE", key_of(shard), first, some - 1, *order, "WITHSCORES"))
    pairs = _merged(parts.values(), ascending=ascending)
    last = pairs[wanted - 1] if first == 0 and len(pairs) >= wanted else None
    more = [
        shard
        for shard, flat in parts.items()
        if some < wanted
        and len(flat) == 2 * (some - first)
        and (last is None or _is_first(flat, last, ascending))
    ]
    if more:  # of the others, nothing is asked
        rest = await shards.each(
            lambda shard: (
                *("ZRANGE", key_of(shard)),
                *((some, wanted - 1) if shard in more else (1, 0)),
                *(*order, "WITHSCORES"),
            )
        )
        pairs = _merged([*parts.values(), *rest.values()], ascending=ascending)
    found = pairs[offset - first :][:count]
    return [(member.decode("utf-8", "replace"), score) for score, member in found]


def _merged(parts: Iterable[list[bytes]], *, ascending: bool) -> list[tuple[float, bytes]]:
    """The pairs (score, member) of lists of members and their scores, in order."""
    pairs = (
        (float(score), member) for flat in parts for member, score in zip(flat[::2], flat[1::2], strict=True)
    )
    return sorted(pairs, reverse=not ascending)


def _is_first(flat: list[bytes], other: tuple[float, bytes], ascending: bool) -> bool:
    """Whether the last member of a list is not behind another one."""
    own = float(flat[-1]), flat[-2]
    return own <= other if ascending else own >= other


def _itself(info_hash: InfoHash) -> InfoHash:
    return info_hash
