"""Lists of torrents: sorted by an index, filtered, and searched by name, over all shards.

A filter that few torrents match reads those from an index of their own, and knows their number. Any other filter walks
through the index of the order, some torrents in each script call.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from redis.exceptions import OutOfMemoryError

from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, StoreUnavailable
from tracker.store.client.pipe import Argument
from tracker.store.schema.folding import fold, fold_name
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.sharding.torrents import top_of
from tracker.store.torrents.torrents import Torrent, Torrents

Order = Literal["name", "size", "seeders", "leechers", "snatches", "score", "added", "last_activity"]
ORDERS: tuple[Order, ...] = get_args(Order)
_VALUES = {"size": "size", "added": "added", "last_activity": "active"}
"""Orders by an index of ``Keys.torrent_list``."""
TORRENTS_A_CALL, RANKED_A_CALL = 500, 200
"""Torrents that one script call looks at, and that one ranks. Takes the store two to four milliseconds. Announces wait
for that call."""
TORRENTS_A_PAGE = 7_000
"""Max torrents that are looked at for one page: takes the store about 40 ms. The next page continues from there."""
MAX_FEW = 1000
"""A list of at most this many torrents is read, filtered and sorted at once."""
LISTS_AT_ONCE = 2
"""Max concurrent lists with a filter. Announces run between the script calls of a few lists, but would wait for the
calls of many."""
TORRENTS_A_ROUND = 20_000
"""Max torrents that ``rank`` visits."""
END = -1
_KeyOf = Callable[[Shard], str]
_CURSOR = re.compile(r"f([0-9]{1,6})|w((?:e|[0-9]{1,12})(?:\.(?:e|[0-9]{1,12})){0,255})", re.ASCII)


@dataclass(frozen=True, slots=True)
class TorrentFilter:
    """Which torrents a list has, and in which order. None: both. ``name``: a part of the name; its list is ordered by
    name."""

    order: Order = "seeders"
    descending: bool = True
    enabled: bool | None = None
    private: bool | None = None
    seeded: bool | None = None
    """Whether it has seeders."""
    name: str = ""

    @property
    def is_selective(self) -> bool:
        return bool(self.name) or any(flag is not None for flag in (self.enabled, self.private, self.seeded))

    def fits(self, torrent: Torrent) -> bool:
        return (
            self.enabled in (None, torrent.enabled)
            and self.private in (None, torrent.private)
            and self.seeded in (None, torrent.seeders > 0)
            and (not self.name or fold(self.name) in fold_name(torrent.name))
        )


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
        pairs = await self._pairs(wanted, offset, min(count, total - offset), total)
        if wanted.order == "name":
            hashes = [InfoHash(bytes.fromhex(entry[-40:])) for entry, _ in pairs]
            torrents = await self._torrents.get_all(hashes)
        else:
            torrents = await self._torrents.by_ids([torrent_id for torrent_id, _ in pairs])
        return ListPage(torrents, "", total, offset)

    async def _pairs(
        self, wanted: TorrentFilter, offset: int, count: int, total: int
    ) -> list[tuple[str, float]]:
        """Read from the nearer end of the index: several shards are read from there to the page."""
        if count <= 0:
            return []
        rest, ascending = total - offset - count, not wanted.descending
        from_end = rest < offset
        pairs = await top_of(
            self._shards,
            lambda shard: _index(shard, wanted.order),
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
            few = await self._few(wanted) if match is None or match[1] else None
            if few is not None:
                first = int(match[1]) if match else 0
                after = f"f{first + count}" if first + count < len(few) else ""
                return ListPage(few[first : first + count], after, len(few), first)
            return await self._walk(wanted, match[2] if match else "", count)

    async def count(self, order: Order) -> int:
        """Returns the number of torrents in the index of an order."""
        sizes = await self._shards.each(lambda shard: ("ZCARD", _index(shard, order)))
        return sum(sizes.values())

    async def _few(self, wanted: TorrentFilter) -> list[Torrent] | None:
        """All torrents that fit, in order; None if a filter alone does not make them few."""
        for index in _lists_of(wanted):
            ids = await self._few_ids(*index)
            if ids is not None:
                torrents = [each for each in await self._torrents.by_ids(ids) if wanted.fits(each)]
                return _in_order(torrents, wanted)
        return None

    async def _few_ids(self, key_of: _KeyOf, lowest: str, highest: str) -> list[str] | None:
        sizes = await self._shards.each(lambda shard: ("ZCOUNT", key_of(shard), lowest, highest))
        if sum(sizes.values()) > MAX_FEW:
            return None
        found = await self._shards.each(lambda shard: ("ZRANGE", key_of(shard), lowest, highest, "BYSCORE"))
        return [torrent_id.decode() for part in found.values() for torrent_id in part]

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

    async def rank(self, torrents: int = TORRENTS_A_ROUND) -> None:
        """Ranks the next torrents, about ``torrents`` of them; each process keeps its own position.

        Does nothing if the store is out of memory.
        """
        for shard in self._shards:
            visited = 0
            try:
                while visited * len(self._shards) < torrents:
                    cursor = self._rank_cursors[shard]
                    after, ranked = await shard.scripts.rank_torrents([cursor, RANKED_A_CALL])
                    self._rank_cursors[shard] = after
                    visited += int(ranked)
                    if after == b"0":
                        break
            except OutOfMemoryError:
                return
            except StoreUnavailable as error:
                self._shards.leave_out([shard.number], error)


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
        index = f"torrent_{_VALUES[order]}" if order in _VALUES else order
        flags = ("" if f is None else int(f) for f in (wanted.enabled, wanted.private, wanted.seeded))
        argv: list[Argument] = [index, int(_is_descending(wanted)), self.position, TORRENTS_A_CALL, count]
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
    best_of: Callable[..., Any] = max if _is_descending(wanted) else min
    while len(found) < count and not any(walk.is_hungry for walk in walks):
        ready = [walk for walk in walks if walk.matches]
        if not ready:
            break
        found.append(best_of(ready, key=lambda walk: walk.matches[0].key).matches.pop(0).info_hash)
    return found


def _is_descending(wanted: TorrentFilter) -> bool:
    return wanted.descending and not wanted.name


def _index(shard: Shard, order: str) -> str:
    return shard.keys.torrent_list(_VALUES[order]) if order in _VALUES else shard.keys.index(order)


def _lists_of(wanted: TorrentFilter) -> list[tuple[_KeyOf, str, str]]:
    """(its key, lowest score, highest score) of each index of the torrents that one filter alone lets through."""
    found: list[tuple[_KeyOf, str, str]] = []
    if wanted.enabled is False:
        found.append((lambda shard: shard.keys.torrent_list("disabled"), "-inf", "+inf"))
    if wanted.private:
        found.append((lambda shard: shard.keys.torrent_list("private"), "-inf", "+inf"))
    if wanted.seeded is not None:
        scores = ("(0", "+inf") if wanted.seeded else ("-inf", "0")
        found.append((lambda shard: shard.keys.index("seeders"), *scores))
    return found


def _in_order(torrents: list[Torrent], wanted: TorrentFilter) -> list[Torrent]:
    """Sorted as the index of the order is, without the torrents that it does not list."""
    order: Order = "name" if wanted.name else wanted.order
    keyed = [(key, torrent) for torrent in torrents if (key := _sort_key(torrent, order)) is not None]
    keyed.sort(key=lambda pair: pair[0], reverse=_is_descending(wanted))
    return [torrent for _, torrent in keyed]


def _sort_key(torrent: Torrent, order: Order) -> tuple[Any, str] | None:
    if order == "name":
        folded = fold_name(torrent.name)
        return (folded.encode(), torrent.info_hash.hex()) if folded else None
    if order == "last_activity":
        busy = torrent.seeders + torrent.leechers > 0
        return (float("inf") if busy else torrent.empty_since or 0), torrent.torrent_id
    number = {
        "size": torrent.size,
        "seeders": torrent.seeders,
        "leechers": torrent.leechers,
        "snatches": torrent.completions,
        "score": torrent.score,
        "added": torrent.added or 0,
    }[order]
    return None if number is None else (number, torrent.torrent_id)
