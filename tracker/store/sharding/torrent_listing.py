"""Lists of torrents: sorted by an index, filtered, and searched by name, over all shards.

A filter whose torrents have an index of their own reads them from there, and knows their number. Any other filter, and
one with very many torrents in another order, walks through the index of the order, some torrents in each script call.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from redis.exceptions import OutOfMemoryError

from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, StoreUnavailable
from tracker.store.client.pipe import Argument
from tracker.store.schema.folding import fold, fold_name
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.sharding.torrent_filter import (
    VALUES,
    WHOLE_ORDERS,
    Index,
    KeyOf,
    Order,
    TorrentFilter,
    disabled_key,
    index_key,
    indexes_of,
    private_key,
    seeders_key,
)
from tracker.store.sharding.torrents import top_of
from tracker.store.torrents.torrents import Torrent, Torrents

TORRENTS_A_CALL, RANKED_A_CALL = 500, 200
"""Torrents that one script call looks at, and that one ranks. Takes the store two to four milliseconds. Announces wait
for that call."""
TORRENTS_A_PAGE = 7_000
"""Max torrents that are looked at for one page: takes the store about 40 ms. The next page continues from there."""
MAX_MATCHES, MATCHES_A_CALL = 20_000, 1000
"""A filter by an index of at most this many torrents sorts them for each page; MATCHES_A_CALL are read in one command.
Takes the store about 20 ms."""
MAX_FEW = 1000
"""At most this many torrents are read to sort them by name, or to search their names."""
LISTS_AT_ONCE = 2
"""Max concurrent lists with a filter. Announces run between the script calls of a few lists, but would wait for the
calls of many."""
TORRENTS_A_ROUND = 20_000
"""Max torrents that ``rank`` visits, unless their indexes are incomplete."""
INDEXES = b"1"
"""The version of the indexes that ``rank`` writes. A new one has all torrents ranked."""
END = -1
_CURSOR = re.compile(r"f([0-9]{1,9})|w((?:e|[0-9]{1,12})(?:\.(?:e|[0-9]{1,12})){0,255})", re.ASCII)


class ListPage(NamedTuple):
    """Torrents of a list. ``cursor``: that of the next page, '' at the end. ``total`` and ``first``, the place of the
    first one from 0 on, are None if they are unknown."""

    torrents: list[Torrent]
    cursor: str
    total: int | None = None
    first: int | None = None


class _Match(NamedTuple):
    """A torrent that fits, its place in the order, and the position after it in the index of its shard."""

    key: tuple[float, bytes]
    info_hash: InfoHash
    position: int


class TorrentListing:
    """``torrents`` reads the rows of all shards."""

    def __init__(self, shards: Shards, torrents: Torrents) -> None:
        self._shards = shards
        self._torrents = torrents
        self._lists = asyncio.Semaphore(LISTS_AT_ONCE)
        self._rank_cursors = dict.fromkeys(shards, b"0")

    async def page(self, wanted: TorrentFilter, offset: int = 0, count: int = 100) -> ListPage:
        """Returns ``count`` torrents from ``offset`` on, of a list without a filter.

        Orders ``name``, ``size`` and ``score`` list only torrents that have one. ``size``, ``added`` and
        ``last_activity`` follow announces, and what a site writes, within some minutes: see ``rank``.
        """
        total = await self.count(wanted.order)
        pairs = await self._pairs(lambda shard: index_key(shard, wanted.order), wanted, offset, count, total)
        if wanted.order == "name":
            hashes = [InfoHash(bytes.fromhex(entry[-40:])) for entry, _ in pairs]
            torrents = await self._torrents.get_all(hashes)
        else:
            torrents = await self._torrents.by_ids([torrent_id for torrent_id, _ in pairs])
        return ListPage(torrents, "", total, offset)

    async def _pairs(
        self, key_of: KeyOf, wanted: TorrentFilter, offset: int, count: int, total: int
    ) -> list[tuple[str, float]]:
        """Read from the nearer end of an index of ``total`` torrents: several shards are read from there to the
        page."""
        count = min(count, total - offset)
        if count <= 0:
            return []
        rest, ascending = total - offset - count, not wanted.descending
        from_end = rest < offset
        pairs = await top_of(
            self._shards,
            key_of,
            count,
            rest if from_end else offset,
            ascending=ascending != from_end,
        )
        return pairs[::-1] if from_end else pairs

    async def filtered(self, wanted: TorrentFilter, cursor: str = "", count: int = 100) -> ListPage:
        """Returns at most ``count`` torrents that fit. Raises ClientError for an invalid cursor.

        A page may be short before the end. Torrents that change between pages may be missing or repeated.
        """
        match = _CURSOR.fullmatch(cursor) if cursor else None
        if cursor and match is None:
            raise ClientError("invalid cursor")
        async with self._lists:
            if match is None or match[1]:
                first = int(match[1]) if match else 0
                page = await self._matches(wanted, first, count)
                if page is not None:
                    return page
            page = await self._walk(wanted, (match[2] if match else "") or "", count)
            return page._replace(total=await self._total(wanted))

    async def count(self, order: Order) -> int:
        """Returns the number of torrents in the index of an order."""
        sizes = await self._shards.each(lambda shard: ("ZCARD", index_key(shard, order)))
        return sum(sizes.values())

    async def _matches(self, wanted: TorrentFilter, first: int, count: int) -> ListPage | None:
        """Those that fit, from an index; None if no index has only them, or if that has too many to sort them."""
        indexes = indexes_of(wanted)
        sizes = [await self._size(index) for index in indexes]
        if not sizes:
            return None
        index, size = min(zip(indexes, sizes, strict=True), key=lambda pair: pair[1])
        if wanted.name or wanted.order == "name":
            if size > MAX_FEW:
                return None
            ids = [torrent_id for torrent_id, _ in await self._read(index, wanted)]
            torrents = await self._torrents.by_ids(ids)
            named = _by_name([each for each in torrents if wanted.fits(each)], wanted)
            return _page_of(named[first : first + count], first, count, len(named))
        if index.order == wanted.order and wanted.flags == 1:
            ids = await self._in_order(index, wanted, first, min(count, size - first))
        elif size <= MAX_MATCHES:
            pairs = [(score, id) for id, score in await self._read(index, wanted) if score is not None]
            pairs.sort(reverse=wanted.descending)
            size, ids = len(pairs), [id for _, id in pairs[first : first + count]]
        else:
            return None
        # What a site changed since a job listed the torrents is left out.
        torrents = [each for each in await self._torrents.by_ids(ids) if wanted.fits(each)]
        return _page_of(torrents, first, count, size)

    async def _size(self, index: Index) -> int:
        sizes = await self._shards.each(
            lambda shard: ("ZCOUNT", index.key(shard), index.lowest, index.highest)
        )
        return sum(sizes.values())

    async def _in_order(self, index: Index, wanted: TorrentFilter, first: int, count: int) -> list[str]:
        """The ids of ``count`` torrents of an index in its own order. Those that fit are at one end of it."""
        size, total = await self._size(index), await self._size(index._replace(lowest="-inf", highest="+inf"))
        if (index.lowest == "-inf") == wanted.descending:  # those that do not fit come first
            first += total - size
        return [id for id, _ in await self._pairs(index.key, wanted, first, count, total)]

    async def _read(self, index: Index, wanted: TorrentFilter) -> list[tuple[str, float | None]]:
        """The torrents of an index that fit, with their score in the order; None if it does not list them."""
        parts = await self._shards.gather(lambda shard: _read_shard(shard, index, wanted))
        return [pair for part in parts.values() for pair in part]

    async def _total(self, wanted: TorrentFilter) -> int | None:
        """The number of torrents that fit, where an index tells: with one property, in an order that lists all."""
        if wanted.flags != 1 or wanted.name or wanted.order not in WHOLE_ORDERS:
            return None
        indexes = indexes_of(wanted)
        if indexes:
            return await self._size(indexes[0])
        enabled, private = (False if wanted.enabled else None), (True if wanted.private is False else None)
        (others,) = indexes_of(replace(wanted, enabled=enabled, private=private))
        return max(0, await self.count(wanted.order) - await self._size(others))

    async def _walk(self, wanted: TorrentFilter, cursor: str, count: int) -> ListPage:
        walks = [_Walk(self._shards, shard, wanted) for shard in self._shards]
        positions = cursor.split(".") if cursor else ["0"] * len(walks)
        if len(positions) != len(walks):
            raise ClientError("invalid cursor")
        for walk, position in zip(walks, positions, strict=True):
            walk.position = END if position == "e" else int(position)
        left, found = TORRENTS_A_PAGE, list[InfoHash]()
        while len(found) < count:
            hungry = [walk for walk in walks if walk.is_hungry]
            if hungry and left <= 0:
                break
            await asyncio.gather(*(walk.read(count - len(found)) for walk in hungry))
            left -= TORRENTS_A_CALL * len(hungry)
            found += _merged(walks, wanted, count - len(found))
            if not any(walk.is_hungry or walk.matches for walk in walks):
                break
        after = [walk.next_position for walk in walks]
        is_end = all(position == END for position in after)
        text = ".".join("e" if position == END else str(position) for position in after)
        return ListPage(await self._torrents.get_all(found), "" if is_end else f"w{text}")

    async def is_complete(self) -> bool:
        """Whether all torrents were ranked since the indexes were introduced. Before, lists may lack some."""
        versions = await self._shards.each(lambda shard: ("HGET", shard.keys.indexed(), "torrents"))
        return all(version == INDEXES for version in versions.values())

    async def rank(self, torrents: int = TORRENTS_A_ROUND, *, all_of_them: bool = False) -> None:
        """Ranks the next torrents, about ``torrents`` of them; each process keeps its own position.

        If ``all_of_them``, or if the indexes of a shard are incomplete, ranks all torrents. Does nothing if the store
        is out of memory.
        """
        for shard in self._shards:
            try:
                version = await shard.connection.command("HGET", shard.keys.indexed(), "torrents")
                await self._rank(shard, torrents // len(self._shards), all_of_them or version != INDEXES)
            except OutOfMemoryError:
                return
            except StoreUnavailable as error:
                self._shards.leave_out([shard.number], error)

    async def _rank(self, shard: Shard, torrents: int, all_of_them: bool) -> None:
        if all_of_them:
            self._rank_cursors[shard] = b"0"
        visited = 0
        while all_of_them or visited < torrents:
            cursor = self._rank_cursors[shard]
            after, ranked = await shard.scripts.rank_torrents([cursor, RANKED_A_CALL])
            self._rank_cursors[shard] = after
            visited += int(ranked)
            if after == b"0":
                break
        if all_of_them:
            await shard.connection.command("HSET", shard.keys.indexed(), "torrents", INDEXES)


class _Walk:
    """A walk through the index of one shard. ``matches``: those read and not used yet, in order."""

    def __init__(self, shards: Shards, shard: Shard, wanted: TorrentFilter) -> None:
        self._shards = shards
        self._shard = shard
        self._wanted = wanted
        self.position = 0
        self.matches: list[_Match] = []

    @property
    def is_hungry(self) -> bool:
        """Whether the next match is unknown."""
        return not self.matches and self.position != END

    @property
    def next_position(self) -> int:
        return self.matches[0].position - 1 if self.matches else self.position

    async def read(self, count: int) -> None:
        """Reads the next matches, at most ``count``. A shard that is away is passed over."""
        wanted, by_name = self._wanted, bool(self._wanted.name)
        order = "name" if by_name else wanted.order
        index = f"torrent_{VALUES[order]}" if order in VALUES else order
        flags = ("" if f is None else int(f) for f in (wanted.enabled, wanted.private, wanted.seeded))
        argv: list[Argument] = [index, int(wanted.is_descending), self.position, TORRENTS_A_CALL, count]
        try:
            self.position, found = await self._shard.scripts.list_torrents([*argv, *flags, fold(wanted.name)])
        except StoreUnavailable as error:
            self._shards.leave_out([self._shard.number], error)
            self.position, found = END, []
        triples = zip(found[::3], found[1::3], found[2::3], strict=True)
        for info_hash, position, key in triples:
            place = (0.0, key) if order == "name" else (float(key), b"")
            self.matches.append(_Match(place, InfoHash(bytes.fromhex(info_hash.decode())), position))


def _merged(walks: Sequence[_Walk], wanted: TorrentFilter, count: int) -> list[InfoHash]:
    """The next matches of all shards, in order, as far as they are known."""
    found: list[InfoHash] = []
    best_of: Callable[..., Any] = max if wanted.is_descending else min
    while len(found) < count and not any(walk.is_hungry for walk in walks):
        ready = [walk for walk in walks if walk.matches]
        if not ready:
            break
        found.append(best_of(ready, key=lambda walk: walk.matches[0].key).matches.pop(0).info_hash)
    return found


async def _read_shard(shard: Shard, index: Index, wanted: TorrentFilter) -> list[tuple[str, float | None]]:
    command, found = shard.connection.command, list[tuple[str, float | None]]()
    for first in range(0, MAX_MATCHES, MATCHES_A_CALL):
        limits = (index.lowest, index.highest, "BYSCORE", "LIMIT", first, MATCHES_A_CALL)
        ids = await command("ZRANGE", index.key(shard), *limits)
        if not ids:
            break
        scores: dict[KeyOf, list[float | None]] = {}
        for key, flag in (
            (disabled_key, wanted.enabled),
            (private_key, wanted.private),
            (seeders_key, wanted.seeded),
        ):
            if flag is not None and key is not index.key:
                scores[key] = _numbers(await command("ZMSCORE", key(shard), *ids))
        order = _numbers(await command("ZMSCORE", index_key(shard, wanted.order), *ids))
        for place, torrent_id in enumerate(ids):
            own = {key: some[place] for key, some in scores.items()}
            if (
                (disabled_key not in own or (own[disabled_key] is None) == wanted.enabled)
                and (private_key not in own or (own[private_key] is not None) == wanted.private)
                and (seeders_key not in own or ((own[seeders_key] or 0) > 0) == wanted.seeded)
            ):
                found.append((torrent_id.decode(), order[place]))
        if len(ids) < MATCHES_A_CALL:
            break
    return found


def _numbers(scores: list[bytes | float | None]) -> list[float | None]:
    return [None if score is None else float(score) for score in scores]


def _page_of(torrents: list[Torrent], first: int, count: int, total: int) -> ListPage:
    return ListPage(torrents, f"f{first + count}" if first + count < total else "", total, first)


def _by_name(torrents: list[Torrent], wanted: TorrentFilter) -> list[Torrent]:
    """Sorted as the index of names is, without the torrents that have none."""
    named = [
        (folded.encode(), each.info_hash.hex(), each) for each in torrents if (folded := fold_name(each.name))
    ]
    named.sort(key=lambda row: row[:2], reverse=wanted.is_descending)
    return [torrent for _, _, torrent in named]
