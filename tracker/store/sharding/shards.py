"""The shards of a store: which one has a torrent, and calls to several of them. A shard is a key prefix with everything
of its torrents and their peers. The first byte of an info hash decides."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

from redis.exceptions import NoScriptError

from tracker.bittorrent import InfoHash, info_hash_of
from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument
from tracker.store.client.scripts import Script, Scripts
from tracker.store.schema.keys import MAX_SHARDS, Keys, main_prefix_of, shard_prefixes

ROWS_A_TURN = 10
"""Rows that are read in one turn of the event loop, which takes a fifth of a millisecond."""
IDS_A_CALL, IDS_A_ROUND = 1000, 10_000
"""Max torrent ids that one command looks for in a shard, and that one round trip looks for in all shards."""
COPIES = 5
"""How many shards are asked for their copies at a time."""
MAIN = -1
"""The number of the main prefix of several shards."""
_left_out: ContextVar[set[int] | None] = ContextVar("left_out", default=None)
"""The numbers of the shards that are unavailable, and that an answer leaves out."""
_Item = TypeVar("_Item")
_Key = TypeVar("_Key")
_Result = TypeVar("_Result")


class Place(Protocol):
    """Where a command goes."""

    @property
    def connection(self) -> Connection: ...


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """One key prefix, and what sends commands to its server."""

    number: int
    """MAIN for the main prefix of several shards."""
    connection: Connection
    scripts: Scripts
    keys: Keys


class Part:
    """A part of the store under one prefix. ``clock`` returns epoch seconds."""

    def __init__(self, shard: Shard, clock: Callable[[], float] = time.time) -> None:
        self._connection = shard.connection
        self._scripts = shard.scripts
        self._keys = shard.keys
        self._clock = clock

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


class Shards:
    """All shards of a store, by their numbers. ``main`` has what belongs to no torrent; a single shard has that too. A
    shard is unavailable while its node does not answer, or does not serve its slot. What is read from all shards leaves
    it out then, and ``noting_unavailable_shards`` says so."""

    def __init__(self, shards: Sequence[Shard], main: Shard) -> None:
        self._shards = tuple(shards)
        self.main = main
        self.all = tuple(dict.fromkeys((self.main, *self._shards)))
        """Every prefix, the main one first."""
        self.others = self.all[1:]
        """Every prefix but the main one."""

    @classmethod
    def under(cls, connection: Connection, prefix: str, number: int) -> Self:
        """So many shards of the store under a prefix. ``connection`` is that of the main prefix."""

        def shard(number: int, own: str) -> Shard:
            there = connection.topology.of(own)
            return Shard(number, there, Scripts(there, own), Keys(own))

        shards = {own: shard(each, own) for each, own in enumerate(shard_prefixes(prefix, number))}
        main = main_prefix_of(prefix, number)
        return cls([*shards.values()], shards.get(main) or shard(MAIN, main))

    @classmethod
    def only(cls, shard: Shard) -> Self:
        """One prefix, as if it were all of a store."""
        alone = replace(shard, number=0)
        return cls([alone], alone)

    def __len__(self) -> int:
        return len(self._shards)

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards)

    def __getitem__(self, number: int) -> Shard:
        return self._shards[number]

    def of(self, info_hash: InfoHash) -> Shard:
        return self._shards[info_hash[0] % len(self._shards)]

    @property
    def unavailable(self) -> list[int]:
        """The numbers of the shards that are unavailable, as far as this process knows from its calls."""
        return [shard.number for shard in self._shards if shard.connection.unavailable]

    @property
    def unavailable_at_nodes(self) -> str:
        """The same as in ``shards 1, 3 (10.0.0.2:6379)``: by the addresses of their nodes, which are not public."""
        found = grouped(self.unavailable, lambda number: self._shards[number].connection.master)
        return "; ".join(f"{named(found[node])} ({node})" if node else named(found[node]) for node in found)

    @property
    def main_is_unavailable(self) -> bool:
        """Shards may be served without the main prefix."""
        return self.main not in self._shards and self.main.connection.unavailable

    @property
    def refusal(self) -> str:
        """Why every shard refuses writes, or the main prefix of several does; empty if they do not."""
        refusals = [shard.connection.refusal for shard in self._shards]
        return self.main.connection.refusal or (refusals[0] if all(refusals) else "")

    @property
    def cause(self) -> str:
        """Why all shards are unavailable, as a public text; empty if one is available."""
        causes = [shard.connection.cause for shard in self._shards]
        return "; ".join(dict.fromkeys(causes)) if all(causes) else ""

    def notices(self) -> list[str]:
        """What is unavailable while at least one shard is served, and why, as public texts."""
        by_cause = grouped(range(len(self)), lambda number: self._shards[number].connection.cause)
        if not by_cause.pop("", []):
            return []
        found = [f"unavailable: {named(by_cause[cause])} ({cause})" for cause in by_cause]
        if not self.refusal:
            refusing = ((shard.number, shard.connection.refusal) for shard in self._shards)
            found += [f"{named([number])} refuses writes: {reason}" for number, reason in refusing if reason]
        if self.main_is_unavailable:
            found.append(f"unavailable: main store ({self.main.connection.cause})")
        return found

    @property
    def servers(self) -> list[Connection]:
        """A connection to each server, that of the main prefix first."""
        found: dict[object, Connection] = {}
        for shard in self.all:
            found.setdefault(shard.connection.server, shard.connection)
        return list(found.values())

    def leave_out(self, numbers: Sequence[int], error: StoreUnavailable) -> None:
        """Notes that an answer leaves out these shards, which failed with ``error``. Raises it when none is left to
        ask. The main prefix beside several shards is not one of them, but is noted."""
        if len({*numbers, *self.unavailable} - {MAIN}) == len(self._shards):
            raise error
        note_unavailable_shards(numbers)

    async def main_or(self, call: Awaitable[_Result], otherwise: _Result) -> _Result:
        """The result of ``call``, which needs the main prefix. While only that is unavailable, ``otherwise``, and notes
        that an answer leaves it out."""
        try:
            return await call
        except StoreUnavailable:
            if not self.main_is_unavailable:
                raise
            note_unavailable_shards([MAIN])
            return otherwise

    async def main_or_copy(self, call: Callable[[Shard], Awaitable[_Result]]) -> _Result:
        """The same of what has copies in the shards, which a shard may have lost: the result that most of some shards
        give."""
        found = await self.main_or_copies(call, COPIES)
        return max(found, key=found.count)

    async def main_or_copies(
        self, call: Callable[[Shard], Awaitable[_Result]], most: int = MAX_SHARDS
    ) -> list[_Result]:
        """The same of what has copies in some shards: the results for those that are available, at ``most`` so many."""
        try:
            return [await call(self.main)]
        except StoreUnavailable:
            if not self.main_is_unavailable:
                raise
            note_unavailable_shards([MAIN])
            for some in in_parts([shard for shard in self._shards if not shard.connection.unavailable], most):
                with noting_unavailable_shards():
                    if found := list((await self.gather(call, some)).values()):
                        return found
            raise

    async def gather(
        self, call: Callable[[Shard], Awaitable[_Result]], shards: Sequence[Shard] | None = None
    ) -> dict[Shard, _Result]:
        """The results of one call to each shard, or to each of ``shards``, without those that are unavailable. Raises
        StoreUnavailable when all are, and the first other error."""

        async def attempt(shard: Shard) -> _Result | StoreUnavailable:
            try:
                return await call(shard)
            except StoreUnavailable as error:
                return error

        asked = self._shards if shards is None else shards
        return self._answered(asked, await asyncio.gather(*map(attempt, asked)))

    async def each(
        self, command: Callable[[Shard], tuple[Argument, ...]], shards: Sequence[Shard] | None = None
    ) -> dict[Shard, Any]:
        """The replies of one command to each shard, or to each of ``shards``; raises as ``gather`` does."""
        asked = self._shards if shards is None else shards
        return self._answered(asked, await self._outcomes([(shard, command(shard)) for shard in asked]))

    async def several(self, commands: Callable[[Shard], Sequence[tuple[Argument, ...]]]) -> dict[Shard, list[Any]]:
        """The replies of several commands to each shard, as many to each. An error is the reply of its command, but
        shards that are unavailable are left out, as by ``gather``."""
        asked = [(shard, command) for shard in self._shards for command in commands(shard)]
        replies = await self._outcomes(asked)
        parts = in_parts(replies, len(asked) // len(self._shards))
        outcomes: list[Any] = [
            next((reply for reply in part if isinstance(reply, StoreUnavailable)), part) for part in parts
        ]
        return self._answered(self._shards, outcomes)

    async def run(
        self, script_of: Callable[[Shard], Script], arguments: Mapping[Shard, Sequence[Argument]]
    ) -> dict[Shard, Any]:
        """The replies of a script in some shards, each with its own arguments; raises as ``gather`` does."""
        outcomes = await self._outcomes([(shard, (*script_of(shard).head, *argv)) for shard, argv in arguments.items()])
        for place, (shard, argv) in enumerate(arguments.items()):
            if isinstance(outcomes[place], NoScriptError):
                try:
                    outcomes[place] = await script_of(shard).load_and_run(argv)
                except StoreUnavailable as error:
                    outcomes[place] = error
        return self._answered(list(arguments), outcomes)

    def _answered(
        self, shards: Sequence[Shard], outcomes: Sequence[_Result | StoreUnavailable]
    ) -> dict[Shard, _Result]:
        found: dict[Shard, _Result] = {}
        failed: dict[int, StoreUnavailable] = {}
        for shard, outcome in zip(shards, outcomes, strict=True):
            if isinstance(outcome, StoreUnavailable):
                failed[shard.number] = outcome
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                found[shard] = outcome
        if failed:
            self.leave_out(list(failed), next(iter(failed.values())))
        return found

    async def send(
        self, commands: Sequence[tuple[Place, tuple[Argument, ...]]], *, keep_errors: bool = False
    ) -> list[Any]:
        """The replies of commands, in order, with one round trip for each server. Raises StoreUnavailable, and the
        first error that a command got as its reply. ``keep_errors``: such an error is the reply."""
        replies = await self._outcomes(commands)
        for reply in replies:
            if isinstance(reply, StoreUnavailable) or (isinstance(reply, Exception) and not keep_errors):
                raise reply
        return replies

    async def _outcomes(self, commands: Sequence[tuple[Place, tuple[Argument, ...]]]) -> list[Any]:
        """The same, but the reply of a place that is unavailable is a StoreUnavailable, and other errors are replies
        too."""
        by_server = grouped(range(len(commands)), lambda index: commands[index][0].connection.server)
        replies: list[Any] = [None] * len(commands)

        async def ask(indexes: Sequence[int]) -> None:
            part = [(commands[index][0].connection, commands[index][1]) for index in indexes]
            for index, reply in zip(indexes, await part[0][0].send(part), strict=True):
                replies[index] = reply

        await together([ask(indexes) for indexes in by_server.values()])
        return replies

    async def ask(
        self, commands: Sequence[tuple[Shard, tuple[Argument, ...]]], *, keep_errors: bool = False
    ) -> list[Any]:
        """The same, but the reply of a shard that is unavailable is None."""
        replies = await self._outcomes(commands)
        for place, (shard, _) in enumerate(commands):
            if isinstance(error := replies[place], StoreUnavailable):
                self.leave_out([shard.number], error)
                replies[place] = None
            elif isinstance(error, Exception) and not keep_errors:
                raise error
        return replies

    def by_shard(self, items: Sequence[_Item], info_hash_of: Callable[[_Item], InfoHash]) -> dict[Shard, list[_Item]]:
        """The items of each shard that has some."""
        return grouped(items, lambda item: self.of(info_hash_of(item)))

    async def split(
        self,
        items: Sequence[_Item],
        info_hash_of: Callable[[_Item], InfoHash],
        call: Callable[[Shard, list[_Item]], Awaitable[Sequence[_Result]]],
    ) -> list[_Result]:
        """Calls each shard with its part of ``items``, and returns the results in the order of ``items``. ``call``
        returns one for each item."""
        parts = self.by_shard(range(len(items)), lambda index: info_hash_of(items[index]))
        found = await together([call(shard, [items[index] for index in indexes]) for shard, indexes in parts.items()])
        results: dict[int, _Result] = {}
        for indexes, part in zip(parts.values(), found, strict=True):
            results |= zip(indexes, part, strict=True)
        return [results[index] for index in range(len(items))]

    async def page(
        self, cursor: int, read: Callable[[Shard, int], Awaitable[tuple[int, list[_Result]]]]
    ) -> tuple[int, list[_Result]]:
        """One page of a walk through all shards, one after the other, and the next cursor. 0 begins and ends the walk.
        ``read`` reads a page of a shard, with the shard's own cursors. A shard that is unavailable, or becomes
        unavailable meanwhile, is passed over."""
        own, number = divmod(cursor, len(self._shards))
        try:
            own, found = await read(self._shards[number], own)
        except StoreUnavailable as error:
            self.leave_out([number], error)
            own, found = 0, []
        return next_cursor(own, number, len(self._shards)), found

    async def find_torrents(self, torrent_ids: Sequence[str]) -> dict[str, tuple[Shard, InfoHash]]:
        """The shard and the info hash of each id that exists in an available shard. An id that a shard gave out
        names the shard."""
        probable = {each: self._probable(each) for each in torrent_ids}
        found: dict[str, tuple[Shard, InfoHash]] = {}
        for some in in_parts(list(probable), IDS_A_CALL):
            found |= await self._find(grouped(some, probable.get))
        missing = [each for each in probable if each not in found]
        for some in in_parts(missing, max(1, min(IDS_A_CALL, IDS_A_ROUND // len(self)))):
            others = {shard: [each for each in some if probable[each] is not shard] for shard in self}
            found |= await self._find({shard: ids for shard, ids in others.items() if ids})
        return found

    async def find_torrent(self, torrent_id: str) -> tuple[Shard, InfoHash] | None:
        """The same of one id. Raises StoreUnavailable when a shard may have it that is unavailable."""
        with noting_unavailable_shards() as unavailable:
            found = (await self.find_torrents([torrent_id])).get(torrent_id)
        if found is None and unavailable:
            raise StoreUnavailable("a shard that may have the torrent is unavailable")
        return found

    async def of_torrents(self, torrent_ids: Sequence[str]) -> list[Shard | None]:
        """The shard of each torrent id, in order: that of the torrent, or for an unknown one the shard that gave out
        the id."""
        if only := self._only:
            return [only] * len(torrent_ids)
        found = await self.find_torrents(torrent_ids)
        return [found[each][0] if each in found else self._probable(each) for each in torrent_ids]

    async def parts_of_torrents(
        self, items: Sequence[_Item], id_of: Callable[[_Item], str] = str
    ) -> dict[Shard, list[_Item]]:
        """The items by the shards that ``of_torrents`` finds for the ids of their torrents."""
        torrent_ids = [id_of(item) for item in items]
        shards = dict(zip(torrent_ids, await self.of_torrents(torrent_ids), strict=True))
        return grouped(items, lambda item: shards[id_of(item)])

    async def of_torrent(self, torrent_id: str) -> Shard | None:
        """The same of one id. Raises StoreUnavailable when a shard may have it that is unavailable."""
        if only := self._only:
            return only
        found = await self.find_torrent(torrent_id)
        return found[0] if found is not None else self._probable(torrent_id)

    @property
    def _only(self) -> Shard | None:
        """The shard that has all torrents, if there is no other."""
        return None if self.others else self.main

    def _probable(self, torrent_id: str) -> Shard | None:
        """The shard that gave out an id, if one did."""
        if only := self._only:
            return only
        number = int(torrent_id) % MAX_SHARDS if torrent_id.isdecimal() and torrent_id.isascii() else MAX_SHARDS
        return self._shards[number] if number < len(self._shards) else None

    async def _find(self, ids: Mapping[Shard, Sequence[str]]) -> dict[str, tuple[Shard, InfoHash]]:
        """``ids``: those that are looked for in each shard."""
        replies = await self.ask([(shard, ("MGET", *map(shard.keys.torrent_id, some))) for shard, some in ids.items()])
        return {
            torrent_id: (shard, info_hash)
            for (shard, some), texts in zip(ids.items(), replies, strict=True)
            for torrent_id, text in zip(some, texts or [None] * len(some), strict=True)
            if (info_hash := info_hash_of(text)) is not None
        }


@contextmanager
def noting_unavailable_shards() -> Iterator[set[int]]:
    """The numbers of the shards that calls in this block, also in its tasks, have left out."""
    numbers = set[int]()
    token = _left_out.set(numbers)
    try:
        yield numbers
    finally:
        _left_out.reset(token)


def note_unavailable_shards(numbers: Iterable[int]) -> None:
    missing = _left_out.get()
    if missing is not None:
        missing.update(numbers)


def named(numbers: Iterable[int]) -> str:
    """As in ``shard 3`` or ``shards 1, 3 and main store``."""
    known = set(numbers)
    texts = [str(number) for number in sorted(known - {MAIN})]
    shards = [f"shard{'s' * (len(texts) > 1)} {', '.join(texts)}"] if texts else []
    return " and ".join([*shards, *(["main store"] * (MAIN in known))])


class StorePart(Part):
    """A part of the store under its main prefix and in all shards."""

    def __init__(self, shards: Shards, clock: Callable[[], float] = time.time) -> None:
        super().__init__(shards.main, clock)
        self._shards = shards


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key | None]) -> defaultdict[_Key, list[_Item]]:
    """The items by their keys, without those whose key is None."""
    found = defaultdict[_Key, list[_Item]](list)
    for item in items:
        if (own := key(item)) is not None:
            found[own].append(item)
    return found


async def together(calls: Sequence[Awaitable[_Result]]) -> list[_Result]:
    """``asyncio.gather``, but a single call needs no task, so that its command goes out with those of the same turn."""
    return [await calls[0]] if len(calls) == 1 else list(await asyncio.gather(*calls))


async def read_in_turns(rows: Iterable[_Item], read: Callable[[_Item], _Result]) -> list[_Result]:
    """``read`` of each row, some in a turn of the event loop: announces are answered in between."""
    found: list[_Result] = []
    for number, row in enumerate(rows):
        if number and number % ROWS_A_TURN == 0:
            await asyncio.sleep(0)
        found.append(read(row))
    return found


async def scan(connection: Connection, head: tuple[Argument, ...], *options: Argument) -> AsyncIterator[list[bytes]]:
    """The pages of a scan, some of which may be empty. ``head``: SCAN, or HSCAN, SSCAN or ZSCAN with a key."""
    cursor = None
    while cursor != b"0":
        cursor, page = await connection.command(*head, cursor or 0, *options)
        yield page


async def scan_together(
    send: Callable[[list[tuple[Place, tuple[Argument, ...]]]], Awaitable[list[Any]]],
    heads: Sequence[tuple[Place, tuple[Argument, ...]]],
    *options: Argument,
) -> AsyncIterator[dict[int, list[bytes]]]:
    """The pages of several scans, a page of each in one call of ``send``, by their places in ``heads``. A scan whose
    reply is an error has no pages."""
    cursors: dict[int, Argument] = dict.fromkeys(range(len(heads)), 0)
    while cursors:
        commands = [(heads[n][0], (*heads[n][1], cursor, *options)) for n, cursor in cursors.items()]
        replies = zip(cursors, await send(commands), strict=True)
        pages = {number: reply for number, reply in replies if isinstance(reply, list)}
        yield {number: page for number, (_, page) in pages.items()}
        cursors = {number: after for number, (after, _) in pages.items() if after != b"0"}


def in_parts(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """The items in their order, at most ``size`` at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))


def next_cursor(own: int, number: int, shards: int) -> int:
    """Where a walk goes on after a page of a shard, whose own next cursor is ``own``: at that times the number of
    shards, plus the shard's number."""
    return own * shards + number if own else (number + 1) % shards
