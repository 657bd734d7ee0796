"""Lists of torrents: sorted by an index, filtered, and searched by name, over all shards.

A filter whose torrents have an index of their own reads them from there, and knows their number. Any other filter, and
one with very many torrents in another order, walks through the index of the order, some torrents in each script call.
"""

import asyncio
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, StoreUnavailable
from tracker.names import fold, fold_name
from tracker.store.client.pipe import Argument
from tracker.store.sharding.ranking import INDEXES, Pause, RankWalk, top_of
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.torrents.filter import (
    VALUES,
    WHOLE_ORDERS,
    Index,
    KeyOf,
    Order,
    TorrentFilter,
    checks_of,
    index_key,
    indexes_of,
)
from tracker.store.torrents.hybrids import Hybrids
from tracker.store.torrents.records import Enabled
from tracker.store.torrents.torrents import Torrent, Torrents

TORRENTS_A_CALL, RANKED_A_CALL = 250, 100
"""Torrents that one script call looks at, and that one ranks. Takes the store at most two milliseconds. Announces wait
for that call."""
CALLS_AT_ONCE = 4
"""The script calls of one round look at as many torrents in all shards as so many calls of a store with one shard."""
TORRENTS_A_PAGE = 7_000
"""Max torrents that are looked at for one page: takes the store about 40 ms. The next page continues from there."""
MAX_MATCHES, MATCHES_A_CALL = 20_000, 1000
"""A filter by an index of at most this many torrents sorts them for each page; MATCHES_A_CALL are read in one command.
Takes the store about 20 ms."""
_MIN_LOOKED_AT, _SPARE = 10, 8
"""Torrents that a script call looks at, at least; and matches that a shard is asked for beyond twice its share."""
MAX_FEW = 1000
"""At most this many torrents are read to sort them by name, or to search their names."""
LISTS_AT_ONCE = 2
"""Max concurrent lists with a filter. Announces run between the script calls of a few lists, but would wait for the
calls of many."""
TORRENTS_A_ROUND = 20_000
"""Max torrents that ``rank`` visits, unless their indexes are incomplete."""
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

    def __init__(self, shards: Shards, torrents: Torrents, hybrids: Hybrids) -> None:
        self._shards = shards
        self._torrents = torrents
        self._hybrids = hybrids
        self._lists = asyncio.Semaphore(LISTS_AT_ONCE)
        self._rank_walks = {shard: RankWalk(shard, "torrents", partial(self._rank, shard)) for shard in shards}

    async def page(self, wanted: TorrentFilter, offset: int = 0, count: int = 100) -> ListPage:
        """Returns ``count`` torrents from ``offset`` on, of a list without a filter.

        Orders ``name``, ``size`` and ``score`` list only torrents that have one. ``size``, ``added`` and
        ``last_activity`` follow announces, and what a site writes, within some minutes: see ``rank``.
        """
        total, pairs = await asyncio.gather(
            self.count(wanted.order),
            top_of(
                self._shards,
                lambda shard: index_key(shard, wanted.order),
                count,
                offset,
                ascending=not wanted.descending,
            ),
        )
        if wanted.order == "name":
            hashes = [InfoHash(bytes.fromhex(entry[-40:])) for entry, _ in pairs]
            torrents = await self._torrents.get_all(hashes)
        else:
            torrents = await self._torrents.by_ids([torrent_id for torrent_id, _ in pairs])
        return _page_of(torrents, offset, count, total)

    async def filtered(self, wanted: TorrentFilter, cursor: str = "", count: int = 100) -> ListPage:
        """Returns at most ``count`` torrents that fit. Raises ClientError for an invalid cursor.

        A page may be short before the end. Torrents that change between pages may be missing or repeated. While the
        indexes are incomplete, properties are read from the rows, and the total is unknown.
        """
        match = _CURSOR.fullmatch(cursor) if cursor else None
        if cursor and match is None:
            raise ClientError("invalid cursor")
        first = int(match[1] or 0) if match else 0
        async with self._lists:
            is_complete = await self.is_complete()
            if (match is None or match[1]) and (first or is_complete):
                page = await self._matches(wanted, first, count)
                if page is not None:
                    return page
            page = await self._walk(wanted, (match[2] if match else "") or "", count)
            return page._replace(total=await self._total(wanted)) if is_complete else page

    async def count(self, order: Order) -> int:
        """Returns the number of torrents in the index of an order."""
        sizes = await self._shards.each(lambda shard: ("ZCARD", index_key(shard, order)))
        return sum(sizes.values())

    async def _matches(self, wanted: TorrentFilter, first: int, count: int) -> ListPage | None:
        """Those that fit, from an index; None if no index has only them, or if that has too many to sort them. A list
        that began with fewer goes on with up to twice as many: another kind of list would begin anew."""
        indexes = indexes_of(wanted)
        sizes = await asyncio.gather(*map(self._size, indexes))
        if not sizes:
            return None
        index, size = min(zip(indexes, sizes, strict=True), key=lambda pair: pair[1])
        growth = 2 if first else 1
        if wanted.name or wanted.order == "name":
            if size > growth * MAX_FEW:
                return None
            ids = [torrent_id for torrent_id, _ in await self._read(index, wanted)]
            torrents = await self._torrents.by_ids(ids)
            named = _by_name([each for each in torrents if wanted.fits(each)], wanted)
            return _page_of(named[first : first + count], first, count, len(named))
        if index.order == wanted.order and wanted.flags == 1:
            ids = await self._in_order(index, size, wanted, first, min(count, size - first))
        elif size <= growth * MAX_MATCHES:
            pairs = [(score, id) for id, score in await self._read(index, wanted) if score is not None]
            pairs.sort(reverse=wanted.descending)
            size, ids = len(pairs), [id for _, id in pairs[first : first + count]]
        else:
            return None
        # What a site changed since a job listed the torrents is left out.
        torrents = [each for each in await self._torrents.by_ids(ids) if wanted.fits(each)]
        return _page_of(torrents, first, count, size)

    async def _size(self, index: Index) -> int:
        sizes = await self._shards.each(lambda shard: ("ZCOUNT", index.key(shard), index.lowest, index.highest))
        return sum(sizes.values())

    async def _in_order(self, index: Index, size: int, wanted: TorrentFilter, first: int, count: int) -> list[str]:
        """The ids of ``count`` torrents of an index in its own order. ``size`` of them fit, at one end of it."""
        if (index.lowest == "-inf") == wanted.descending:  # those that do not fit come first
            first += await self._size(index._replace(lowest="-inf", highest="+inf")) - size
        pairs = await top_of(self._shards, index.key, count, first, ascending=not wanted.descending)
        return [id for id, _ in pairs]

    async def _read(self, index: Index, wanted: TorrentFilter) -> list[tuple[str, float | None]]:
        """The torrents of an index that fit, with their score in the order; None if it does not list them."""
        found, shards = list[tuple[str, float | None]](), list(self._shards)
        for first in range(0, 2 * MAX_MATCHES, MATCHES_A_CALL):
            parts = await self._ids(index, first, shards)
            found += await self._fitting({shard: ids for shard, ids in parts.items() if ids}, index, wanted)
            shards = [shard for shard, ids in parts.items() if len(ids) == MATCHES_A_CALL]
            if not shards:
                break
        return found

    async def _ids(self, index: Index, first: int, shards: Sequence[Shard]) -> dict[Shard, list[bytes]]:
        limits = (index.lowest, index.highest, "BYSCORE", "LIMIT", first, MATCHES_A_CALL)
        return await self._shards.each(lambda shard: ("ZRANGE", index.key(shard), *limits), shards)

    async def _fitting(
        self, ids: Mapping[Shard, list[bytes]], index: Index, wanted: TorrentFilter
    ) -> list[tuple[str, float | None]]:
        """Those of ``ids`` that fit by the other indexes."""
        checks = [(key, check) for key, check in checks_of(wanted) if key is not index.key]
        keys: list[KeyOf] = [*(key for key, _ in checks), lambda shard: index_key(shard, wanted.order)]
        replies = iter(
            await self._shards.ask(
                [(shard, ("ZMSCORE", key(shard), *some)) for shard, some in ids.items() for key in keys]
            )
        )
        found: list[tuple[str, float | None]] = []
        for some in ids.values():
            *scores, order = [_numbers(next(replies) or [None] * len(some)) for _ in keys]
            for place, torrent_id in enumerate(some):
                if all(check(column[place]) for (_, check), column in zip(checks, scores, strict=True)):
                    found.append((torrent_id.decode(), order[place]))
        return found

    async def _total(self, wanted: TorrentFilter) -> int | None:
        """The number of torrents that fit, where an index tells: with one property, in an order that lists all."""
        if wanted.flags != 1 or wanted.name or wanted.order not in WHOLE_ORDERS:
            return None
        indexes = indexes_of(wanted)
        if indexes:
            return await self._size(indexes[0])
        states: tuple[Enabled | None, ...] = (False, "pending") if wanted.enabled else (None,)
        private = True if wanted.private is False else None
        others = [indexes_of(replace(wanted, enabled=state, private=private))[0] for state in states]
        number, *sizes = await asyncio.gather(self.count(wanted.order), *map(self._size, others))
        return max(0, number - sum(sizes))

    async def _walk(self, wanted: TorrentFilter, cursor: str, count: int) -> ListPage:
        positions = cursor.split(".") if cursor else ["0"] * len(self._shards)
        if len(positions) != len(self._shards):
            raise ClientError("invalid cursor")
        walks = [
            _Walk(shard, END if position == "e" else int(position))
            for shard, position in zip(self._shards, positions, strict=True)
        ]
        left, found = TORRENTS_A_PAGE, list[InfoHash]()
        while len(found) < count:
            hungry = [walk for walk in walks if walk.is_hungry]
            if hungry and left <= 0:
                break
            if hungry:
                left -= await self._read_walks(hungry, wanted, count - len(found))
            found += _merged(walks, wanted, count - len(found))
            if not any(walk.is_hungry or walk.matches for walk in walks):
                break
        after = [walk.next_position for walk in walks]
        is_end = all(position == END for position in after)
        text = ".".join("e" if position == END else str(position) for position in after)
        return ListPage(await self._torrents.get_all(found), "" if is_end else f"w{text}")

    async def _read_walks(self, walks: "Sequence[_Walk]", wanted: TorrentFilter, count: int) -> int:
        """Reads the next matches of some shards, of each some more than its share of ``count``. Returns about how many
        torrents were looked at. A shard that is unavailable is passed over."""
        looked_at = min(TORRENTS_A_CALL, max(_MIN_LOOKED_AT, TORRENTS_A_CALL * CALLS_AT_ONCE // len(walks)))
        some = min(count, 2 * count // len(walks) + _SPARE)
        found = await self._shards.run(
            lambda shard: shard.scripts.list_torrents,
            {walk.shard: walk.arguments(wanted, looked_at, some) for walk in walks},
        )
        for walk in walks:
            walk.take(wanted, *found.get(walk.shard, (END, [])))
        return looked_at * len(walks)

    async def is_complete(self) -> bool:
        """Whether all torrents were ranked since the indexes were introduced. Before that, lists may miss some."""
        versions = await self._shards.each(lambda shard: ("HGET", shard.keys.indexed(), "torrents"))
        return all(version == INDEXES for version in versions.values())

    async def rank(
        self, torrents: int = TORRENTS_A_ROUND, *, all_of_them: bool = False, pause: Pause = asyncio.sleep
    ) -> bool:
        """Ranks the next torrents, about ``torrents`` of them; all of a shard if ``all_of_them``, or if its indexes are
        incomplete. False if a shard is out of memory: the next call goes on there."""
        has_room = True
        for shard, walk in self._rank_walks.items():
            try:
                has_room &= await walk.go_on(torrents // len(self._shards), pause, ranks_all=all_of_them)
            except StoreUnavailable as error:
                self._shards.leave_out([shard.number], error)
        return has_room

    async def _rank(self, shard: Shard, cursor: bytes) -> tuple[bytes, int]:
        after, ranked, halves = await shard.scripts.rank_torrents([cursor, RANKED_A_CALL])
        if halves:  # an announce cannot look at a half in another shard
            await self._hybrids.end_broken([InfoHash(bytes.fromhex(each.decode())) for each in halves])
        return after, int(ranked)


class _Walk:
    """A walk through the index of one shard. ``matches``: those read and not used yet, in order."""

    def __init__(self, shard: Shard, position: int) -> None:
        self.shard = shard
        self.position = position
        self.matches: deque[_Match] = deque()

    @property
    def is_hungry(self) -> bool:
        """Whether the next match is unknown."""
        return not self.matches and self.position != END

    @property
    def next_position(self) -> int:
        return self.matches[0].position - 1 if self.matches else self.position

    def arguments(self, wanted: TorrentFilter, looked_at: int, count: int) -> list[Argument]:
        """Those of list_torrents.lua."""
        order = "name" if wanted.name else wanted.order
        index = f"torrent_{VALUES[order]}" if order in VALUES else order
        switches = (wanted.enabled, wanted.private, wanted.seeded)
        flags = ("" if f is None else f if f == "pending" else int(f) for f in switches)
        return [*(index, int(wanted.is_descending), self.position, looked_at, count), *flags, fold(wanted.name)]

    def take(self, wanted: TorrentFilter, position: int, found: list[Any]) -> None:
        """``position`` and ``found``: the answer of the script."""
        by_entry = wanted.name or wanted.order == "name"
        self.position = position
        for info_hash, after, key in zip(found[::3], found[1::3], found[2::3], strict=True):
            place = (0.0, key) if by_entry else (float(key), b"")
            self.matches.append(_Match(place, InfoHash(bytes.fromhex(info_hash.decode())), after))


def _merged(walks: Sequence[_Walk], wanted: TorrentFilter, count: int) -> list[InfoHash]:
    """The next matches of all shards, in order, as far as they are known."""
    if any(walk.is_hungry for walk in walks):
        return []
    matches = [(match.key, walk) for walk in walks for match in walk.matches]
    matches.sort(key=lambda pair: pair[0], reverse=wanted.is_descending)
    found: list[InfoHash] = []
    for _, walk in matches[:count]:
        found.append(walk.matches.popleft().info_hash)
        if walk.is_hungry:
            break
    return found


def _numbers(scores: list[bytes | float | None]) -> list[float | None]:
    return [None if score is None else float(score) for score in scores]


def _page_of(torrents: list[Torrent], first: int, count: int, total: int) -> ListPage:
    return ListPage(torrents, f"f{first + count}" if first + count < total else "", total, first)


def _by_name(torrents: list[Torrent], wanted: TorrentFilter) -> list[Torrent]:
    """Sorted as the index of names is, without the torrents that have none."""
    named = [(folded.encode(), each.info_hash.hex(), each) for each in torrents if (folded := fold_name(each.name))]
    named.sort(key=lambda row: row[:2], reverse=wanted.is_descending)
    return [torrent for _, _, torrent in named]
