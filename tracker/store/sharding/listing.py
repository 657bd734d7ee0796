"""Lists of users and of torrents: sorted by an index, filtered, and searched by name, over all shards.

A filter whose rows have an index of their own reads them from there, and knows their number. Any other filter, and one
with very many rows in another order, walks through the index of the order, some rows in each script call. So do all
until the indexes are complete.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from redis.exceptions import OutOfMemoryError

from tracker.errors import ClientError, StoreUnavailable
from tracker.names import fold
from tracker.store.client.pipe import Argument
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import Shard, Shards

MAX_MATCHES, MATCHES_A_CALL = 20_000, 1000
"""A filter by an index of at most this many rows sorts them for each page; MATCHES_A_CALL are read in one command.
Takes the store about 20 ms."""
MAX_FEW = 1000
"""At most this many rows are read to sort them by name, or to search their names."""
LISTS_AT_ONCE = 2
"""Max concurrent lists with a filter. Announces run between the script calls of a few lists, but would wait for the
calls of many."""
RANKED_A_ROUND = 20_000
"""Max rows that ``rank`` visits, unless their indexes are incomplete."""
END = -1
"""The position of a walk at its end."""
CURSOR = re.compile(r"f([0-9]{1,16})|w((?:e|[0-9]{1,12})(?:\.(?:e|[0-9]{1,12})){0,255})", re.ASCII)
"""f: a place among those that fit; w: the position of a walk in the index of each shard, e at its end."""
PAUSES = 4.0
"""A walk pauses so many times as long as each of its calls took. So it uses at most a fifth of the store's time."""
INDEXES = b"1"
"""The version of the indexes that walks write for what does not change. A new one has all ranked."""
Pause = Callable[[float], Awaitable[object]]
"""Waits some seconds."""
_Row = TypeVar("_Row")


class Condition(NamedTuple):
    """One property of rows: they are in an index, or they are not (``listed``). ``order``: the sort order that the
    scores of the index stand for. ``positive``: of all rows, those whose score is above 0, or the others."""

    name: str
    order: str
    listed: bool = True
    positive: bool | None = None

    @property
    def range(self) -> tuple[str, str]:
        """The scores of the rows in the index."""
        return ("-inf" if not self.positive else "(0", "0" if self.positive is False else "+inf")

    def holds(self, score: float | None) -> bool:
        """Whether a row has the property; ``score``: in the index, None if it is not there."""
        if self.positive is None:
            return (score is not None) == self.listed
        return ((score or 0) > 0) == self.positive


class Filter(Generic[_Row]):
    """Which rows a list has, and in which order. ``name``: a part of the name; its list is ordered by name."""

    order: str
    descending: bool
    name: str

    @property
    def switches(self) -> tuple[bool | str | None, ...]:
        """What it selects by; None: both."""
        raise NotImplementedError

    @property
    def conditions(self) -> list[Condition]:
        """All of them hold for a row that fits, but for its name."""
        raise NotImplementedError

    def fits(self, row: _Row) -> bool:
        """Whether a row fits by what it has itself."""
        raise NotImplementedError

    @property
    def flags(self) -> int:
        """How many properties it selects by."""
        return sum(switch is not None for switch in self.switches)

    @property
    def is_selective(self) -> bool:
        """Whether the list leaves rows of its index out."""
        return bool(self.name) or self.flags > 0

    def arguments(self) -> list[Argument]:
        """The switches and the name, as list_users.lua and list_torrents.lua read them."""
        switches = ("" if s is None else s if isinstance(s, str) else int(s) for s in self.switches)
        return [*switches, fold(self.name)]


_Filter = TypeVar("_Filter", bound=Filter[Any])


class ListPage(NamedTuple, Generic[_Row]):
    """Rows of a list. ``cursor``: that of the next page, '' at the end. ``total`` and ``first``, the place of the first
    one from 0 on, are None if they are unknown."""

    cursor: str
    rows: list[_Row]
    total: int | None = None
    first: int | None = None


def page_of(rows: list[_Row], first: int, count: int, total: int) -> ListPage[_Row]:
    return ListPage(f"f{first + count}" if first + count < total else "", rows, total, first)


class Listing(ABC, Generic[_Filter, _Row]):
    """``kind``: the field of `indexed` that says whether all rows have been ranked. ``whole``: the orders that list all
    rows. ``rows`` reads those with these ids."""

    kind: str
    whole: tuple[str, ...]

    def __init__(self, shards: Shards, rows: Callable[[Sequence[str]], Awaitable[list[_Row]]]) -> None:
        self._shards, self._rows = shards, rows
        self._lists = asyncio.Semaphore(LISTS_AT_ONCE)
        self._cursors = dict.fromkeys(shards, b"0")
        """Where ``rank`` goes on in each shard. Each process keeps its own."""
        self._ranks_all = dict.fromkeys(shards, False)
        """Whether a walk from there on ranks all of a shard."""

    async def filtered(self, wanted: _Filter, cursor: str = "", count: int = 100) -> ListPage[_Row]:
        """Returns at most ``count`` rows that fit. Raises ClientError for an invalid cursor. A page may be short before
        the end. Rows that change between pages may be missing or repeated. While the indexes are incomplete, properties
        are read from the rows, and the total is unknown."""
        first, positions = self._place(cursor)
        async with self._lists:
            is_complete = not wanted.flags or await self.is_complete()
            if positions is None and (first or is_complete):
                page = await self._matches(wanted, first, count)
                if page is not None:
                    return page
            page = await self._walk(wanted, positions, first, count)
            return page._replace(total=await self._total(wanted)) if is_complete else page

    def _place(self, cursor: str) -> tuple[int, list[int] | None]:
        """The place, and the positions of a walk. Raises ClientError."""
        match = CURSOR.fullmatch(cursor or "f0")
        if match is None:
            raise ClientError("invalid cursor")
        if match[1]:
            return int(match[1]), None
        positions = [END if text == "e" else int(text) for text in match[2].split(".")]
        if len(positions) != len(self._shards):
            raise ClientError("invalid cursor")
        return 0, positions

    async def count(self, order: str) -> int:
        return sum((await self._shards.each(lambda shard: ("ZCARD", self._key(shard, order)))).values())

    async def _matches(self, wanted: _Filter, first: int, count: int) -> ListPage[_Row] | None:
        """Those that fit, from an index; None if no index has only them, or if that has too many to sort them. A list
        that began with fewer goes on with up to twice as many: another kind of list would begin anew."""
        indexes = [each for each in wanted.conditions if each.listed]
        sizes = await asyncio.gather(*map(self._size, indexes))
        if not sizes:
            return None
        index, size = min(zip(indexes, sizes, strict=True), key=lambda pair: pair[1])
        growth = 2 if first else 1
        if wanted.name or wanted.order == "name":
            if size > growth * MAX_FEW:
                return None
            return await self._by_name([id for id, _ in await self._read(index, wanted)], wanted, first, count)
        if index.order == wanted.order and wanted.flags == 1:
            start = first
            if index.positive is not None and index.positive != wanted.descending:  # those that do not fit come first
                start += await self.count(index.order) - size
            ids = [id for id, _ in await self._top(index.name, wanted, start, min(count, size - first))]
        elif size <= growth * MAX_MATCHES:
            pairs = [(score, id) for id, score in await self._read(index, wanted) if score is not None]
            pairs.sort(reverse=wanted.descending)
            size, ids = len(pairs), [id for _, id in pairs[first : first + count]]
        else:
            return None
        return page_of(await self._fitting_rows(ids, wanted), first, count, size)

    async def _fitting_rows(self, ids: Sequence[str], wanted: _Filter) -> list[_Row]:
        """What a site changed since a job listed the rows is left out."""
        return [each for each in await self._rows(ids) if wanted.fits(each)]

    async def _size(self, index: Condition) -> int:
        sizes = await self._shards.each(lambda shard: ("ZCOUNT", self._key(shard, index.name), *index.range))
        return sum(sizes.values())

    async def _top(self, index: str, wanted: _Filter, first: int, count: int) -> list[tuple[str, float]]:
        """Members of an index, from a place on, with their scores."""
        return await top_of(
            self._shards, lambda shard: self._key(shard, index), count, first, ascending=not wanted.descending
        )

    async def _read(self, index: Condition, wanted: _Filter) -> list[tuple[str, float | None]]:
        """The rows of an index that fit, with their score in the order; None if it does not list them."""
        found, shards = list[tuple[str, float | None]](), list(self._shards)
        for first in range(0, 2 * MAX_MATCHES, MATCHES_A_CALL):
            parts = await self._ids(index, first, shards)
            found += await self._fitting({shard: ids for shard, ids in parts.items() if ids}, index, wanted)
            shards = [shard for shard, ids in parts.items() if len(ids) == MATCHES_A_CALL]
            if not shards:
                break
        return found

    async def _ids(self, index: Condition, first: int, shards: Sequence[Shard]) -> dict[Shard, list[bytes]]:
        how = (*index.range, "BYSCORE", "LIMIT", first, MATCHES_A_CALL)
        return await self._shards.each(lambda shard: ("ZRANGE", self._key(shard, index.name), *how), shards)

    async def _fitting(
        self, ids: Mapping[Shard, list[bytes]], index: Condition, wanted: _Filter
    ) -> list[tuple[str, float | None]]:
        """Those of ``ids`` that fit by the other indexes."""
        others = [each for each in wanted.conditions if each != index]
        names = [*(each.name for each in others), index.name if index.order == wanted.order else wanted.order]
        replies = iter(
            await self._shards.ask(
                [(shard, ("ZMSCORE", self._key(shard, name), *some)) for shard, some in ids.items() for name in names]
            )
        )
        found: list[tuple[str, float | None]] = []
        for some in ids.values():
            columns = [next(replies) or [None] * len(some) for _ in names]
            *scores, order = [[None if score is None else float(score) for score in column] for column in columns]
            for place, id in enumerate(some):
                if all(each.holds(column[place]) for each, column in zip(others, scores, strict=True)):
                    found.append((id.decode(), order[place]))
        return found

    async def _total(self, wanted: _Filter) -> int | None:
        """The number of rows that fit, where an index tells: with one property, in an order that lists all."""
        if wanted.flags != 1 or wanted.name or wanted.order not in self.whole:
            return None
        conditions = wanted.conditions
        if conditions[0].listed:
            return await self._size(conditions[0])
        number, *sizes = await asyncio.gather(self.count(wanted.order), *map(self._size, conditions))
        return max(0, number - sum(sizes))

    async def is_complete(self) -> bool:
        """Whether all rows were ranked since the indexes were introduced. Before that, lists may miss some."""
        versions = await self._shards.each(lambda shard: ("HGET", shard.keys.indexed(), self.kind))
        return all(version == INDEXES for version in versions.values())

    async def rank(
        self, number: int = RANKED_A_ROUND, *, all_of_them: bool = False, pause: Pause = asyncio.sleep
    ) -> bool:
        """Ranks the next rows, about ``number`` of them; all of a shard if ``all_of_them``, or if its indexes are
        incomplete. False if a shard is out of memory: the next call goes on there."""
        has_room = True
        for shard in self._shards:
            try:
                await self._rank_some(shard, number // len(self._shards), pause, ranks_all=all_of_them)
                self._ranks_all[shard] = False
            except OutOfMemoryError:
                has_room = False
            except StoreUnavailable as error:
                self._ranks_all[shard] = False  # another server may take over, which reads a cursor differently
                self._shards.leave_out([shard.number], error)
        return has_room

    async def _rank_some(self, shard: Shard, most: int, pause: Pause, *, ranks_all: bool) -> None:
        indexed, visited, timer = shard.keys.indexed(), 0, asyncio.get_running_loop().time
        known = await shard.connection.command("HGET", indexed, self.kind)
        ranks_all = ranks_all or known != INDEXES
        if ranks_all and not self._ranks_all[shard]:
            self._cursors[shard] = b"0"
        self._ranks_all[shard] = ranks_all
        while ranks_all or visited < most:
            began = timer()
            self._cursors[shard], ranked = await self._rank(shard, self._cursors[shard])
            visited += ranked
            if self._cursors[shard] == b"0":
                break
            await pause(PAUSES * (timer() - began))
        if ranks_all:
            await shard.connection.command("HSET", indexed, self.kind, INDEXES)

    # What differs between users and torrents

    @abstractmethod
    def _key(self, shard: Shard, index: str) -> str:
        """The index of an order or of a property."""

    @abstractmethod
    async def _by_name(self, ids: list[str], wanted: _Filter, first: int, count: int) -> ListPage[_Row]:
        """A page of the rows in ``ids`` whose name matches, ordered by name."""

    @abstractmethod
    async def _walk(self, wanted: _Filter, positions: list[int] | None, first: int, count: int) -> ListPage[_Row]:
        """A page of a walk through the index of the order, from ``positions`` on."""

    @abstractmethod
    async def _rank(self, shard: Shard, cursor: bytes) -> tuple[bytes, int]:
        """Ranks some rows. Returns the next cursor and how many there were."""
