"""The shards of a store: which one has a torrent, and calls to several of them.

A shard is a key prefix with everything of its torrents and their peers. The first byte of an info hash decides.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from redis.exceptions import NoScriptError

from tracker.bittorrent import InfoHash
from tracker.errors import StoreUnavailable
from tracker.store.changes.changes import Changes
from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument
from tracker.store.client.scripts import Script, Scripts
from tracker.store.dht.torrents import DhtTorrents
from tracker.store.schema.keys import MAX_SHARDS, Keys
from tracker.store.sharding.away import note_shards_away, noting_shards_away
from tracker.store.swarms.announce_counts import AnnounceCounts
from tracker.store.swarms.reaping import Reaping
from tracker.store.swarms.swarms import Swarms
from tracker.store.torrents.scores import Scores
from tracker.store.torrents.torrents import Torrents

IDS_A_CALL, IDS_A_ROUND = 1000, 10_000
"""Max torrent ids that one command looks for in a shard, and that one round trip looks for in all shards."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Place(Protocol):
    """Where a command goes."""

    @property
    def connection(self) -> Connection: ...


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """One prefix and what works on it."""

    number: int
    connection: Connection
    scripts: Scripts
    keys: Keys
    announce_counts: AnnounceCounts
    swarms: Swarms
    reaping: Reaping
    torrents: Torrents
    scores: Scores
    dht_torrents: DhtTorrents
    changes: Changes

    @property
    def parts(self) -> tuple[Connection, Scripts, Keys]:
        """What every part of a shard works with."""
        return self.connection, self.scripts, self.keys


class Shards:
    """All shards of a store, by their numbers.

    A shard is away while its node does not answer, or does not serve its slot. What is read from all shards lacks it
    then, and ``noting_shards_away`` says so.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = tuple(shards)

    def __len__(self) -> int:
        return len(self._shards)

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards)

    def __getitem__(self, number: int) -> Shard:
        return self._shards[number]

    def of(self, info_hash: InfoHash) -> Shard:
        """The shard of a torrent."""
        return self._shards[info_hash[0] % len(self._shards)]

    @property
    def away(self) -> list[int]:
        """The numbers of the shards that are away, as far as this process knows from its calls."""
        return [shard.number for shard in self._shards if shard.connection.unavailable]

    @property
    def away_by_node(self) -> dict[str, list[int]]:
        """The same by the address of their node, which is empty without a cluster. Addresses are not public."""
        found = defaultdict[str, list[int]](list)
        for number in self.away:
            found[self._shards[number].connection.master].append(number)
        return dict(found)

    def leave_out(self, numbers: Sequence[int], error: StoreUnavailable) -> None:
        """Notes that an answer lacks these shards, which failed with ``error``. Raises it when none is left to ask."""
        if len({*numbers, *self.away}) == len(self._shards):
            raise error
        note_shards_away(numbers)

    async def gather(self, call: Callable[[Shard], Awaitable[_Result]]) -> dict[Shard, _Result]:
        """The results of one call to each shard, without those that are away. Raises StoreUnavailable when all are,
        and the first other error."""

        async def attempt(shard: Shard) -> _Result | StoreUnavailable:
            try:
                return await call(shard)
            except StoreUnavailable as error:
                return error

        return self._answered(self._shards, await asyncio.gather(*map(attempt, self._shards)))

    async def each(
        self, command: Callable[[Shard], tuple[Argument, ...]], shards: Sequence[Shard] | None = None
    ) -> dict[Shard, Any]:
        """The replies of one command to each shard, or to each of ``shards``; raises as ``gather`` does."""
        asked = self._shards if shards is None else shards
        outcomes = await self._outcomes([(shard, command(shard)) for shard in asked])
        return self._answered(asked, _without_errors(outcomes))

    async def several(
        self, commands: Callable[[Shard], Sequence[tuple[Argument, ...]]]
    ) -> dict[Shard, list[Any]]:
        """The replies of several commands to each shard, as many to each. An error is the reply of its command, but
        shards that are away are left out, as by ``gather``."""
        asked = [(shard, command) for shard in self._shards for command in commands(shard)]
        replies = await self._outcomes(asked)
        number = len(asked) // len(self._shards)
        parts = [replies[first : first + number] for first in range(0, len(asked), number)]
        away = ([reply for reply in part if isinstance(reply, StoreUnavailable)] for part in parts)
        outcomes = [errors[0] if errors else part for part, errors in zip(parts, away, strict=True)]
        return self._answered(self._shards, outcomes)

    async def run(
        self, script_of: Callable[[Shard], Script], arguments: Mapping[Shard, Sequence[Argument]]
    ) -> dict[Shard, Any]:
        """The replies of a script in some shards, each with its own arguments; raises as ``gather`` does."""
        outcomes = await self._outcomes(
            [(shard, (*script_of(shard).head, *argv)) for shard, argv in arguments.items()]
        )
        for place, (shard, argv) in enumerate(arguments.items()):
            if isinstance(outcomes[place], NoScriptError):
                try:
                    outcomes[place] = await script_of(shard).load_and_run(argv)
                except StoreUnavailable as error:
                    outcomes[place] = error
        return self._answered(list(arguments), _without_errors(outcomes))

    def _answered(
        self, shards: Sequence[Shard], outcomes: Sequence[_Result | StoreUnavailable]
    ) -> dict[Shard, _Result]:
        found: dict[Shard, _Result] = {}
        failed: dict[int, StoreUnavailable] = {}
        for shard, outcome in zip(shards, outcomes, strict=True):
            if isinstance(outcome, StoreUnavailable):
                failed[shard.number] = outcome
            else:
                found[shard] = outcome
        if failed:
            self.leave_out(list(failed), next(iter(failed.values())))
        return found

    async def send(
        self, commands: Sequence[tuple["Place", tuple[Argument, ...]]], *, keep_errors: bool = False
    ) -> list[Any]:
        """The replies of commands, in order, with one round trip for each server. Raises StoreUnavailable, and the
        first error that a command got as its reply. ``keep_errors``: such an error is the reply."""
        replies = await self._outcomes(commands)
        if not keep_errors:
            _without_errors(replies)
        for reply in replies:
            if isinstance(reply, StoreUnavailable):
                raise reply
        return replies

    async def _outcomes(self, commands: Sequence[tuple["Place", tuple[Argument, ...]]]) -> list[Any]:
        """The same, but the reply of a place that is away is a StoreUnavailable, and other errors are replies too."""
        by_server = defaultdict[object, list[int]](list)
        for index, (place, _) in enumerate(commands):
            by_server[place.connection.server].append(index)
        replies: list[Any] = [None] * len(commands)

        async def ask(indexes: Sequence[int]) -> None:
            part = [(commands[index][0].connection, commands[index][1]) for index in indexes]
            for index, reply in zip(indexes, await part[0][0].send(part), strict=True):
                replies[index] = reply

        await asyncio.gather(*map(ask, by_server.values()))
        return replies

    async def ask(
        self, commands: Sequence[tuple[Shard, tuple[Argument, ...]]], *, keep_errors: bool = False
    ) -> list[Any]:
        """The same, but the reply of a shard that is away is None."""
        replies = await self._outcomes(commands)
        if not keep_errors:
            _without_errors(replies)
        for place, (shard, _) in enumerate(commands):
            if isinstance(error := replies[place], StoreUnavailable):
                self.leave_out([shard.number], error)
                replies[place] = None
        return replies

    async def split(
        self,
        items: Sequence[_Item],
        info_hash_of: Callable[[_Item], InfoHash],
        call: Callable[[Shard, list[_Item]], Awaitable[Sequence[_Result]]],
    ) -> list[_Result]:
        """Calls each shard with its part of ``items``, and returns the results in the order of ``items``. ``call``
        returns one for each item."""
        parts = defaultdict[Shard, list[int]](list)
        for index, item in enumerate(items):
            parts[self.of(info_hash_of(item))].append(index)
        found = await asyncio.gather(
            *(call(shard, [items[index] for index in indexes]) for shard, indexes in parts.items())
        )
        results: dict[int, _Result] = {}
        for indexes, part in zip(parts.values(), found, strict=True):
            results |= zip(indexes, part, strict=True)
        return [results[index] for index in range(len(items))]

    async def find_torrents(self, torrent_ids: Sequence[str]) -> dict[str, tuple[Shard, InfoHash]]:
        """The shard and the info hash of each id that exists in a shard that is not away. An id that a shard gave out
        names the shard."""
        probable = {each: self._probable(each) for each in torrent_ids}
        found: dict[str, tuple[Shard, InfoHash]] = {}
        for some in in_parts(list(probable), IDS_A_CALL):
            by_shard = defaultdict[Shard, list[str]](list)
            for torrent_id in some:
                if (own := probable[torrent_id]) is not None:
                    by_shard[own].append(torrent_id)
            found |= await self._find(by_shard)
        missing = [each for each in probable if each not in found]
        for some in in_parts(missing, max(1, min(IDS_A_CALL, IDS_A_ROUND // len(self)))):
            others = {shard: [each for each in some if probable[each] is not shard] for shard in self}
            found |= await self._find({shard: ids for shard, ids in others.items() if ids})
        return found

    async def find_torrent(self, torrent_id: str) -> tuple[Shard, InfoHash] | None:
        """The same of one id. Raises StoreUnavailable when a shard may have it that is away."""
        with noting_shards_away() as away:
            found = (await self.find_torrents([torrent_id])).get(torrent_id)
        if found is None and away:
            raise StoreUnavailable("a shard that may have the torrent is unavailable")
        return found

    async def of_torrents(self, torrent_ids: Sequence[str]) -> list["Shard | None"]:
        """The shard of each torrent id, in order: that of the torrent, or for an unknown one the shard that gave out
        the id."""
        found = await self.find_torrents(torrent_ids)
        return [found[each][0] if each in found else self._probable(each) for each in torrent_ids]

    async def of_torrent(self, torrent_id: str) -> "Shard | None":
        """The same of one id. Raises StoreUnavailable when a shard may have it that is away."""
        found = await self.find_torrent(torrent_id)
        return found[0] if found is not None else self._probable(torrent_id)

    def _probable(self, torrent_id: str) -> "Shard | None":
        """The shard that gave out an id, if one did."""
        number = (
            int(torrent_id) % MAX_SHARDS if torrent_id.isdecimal() and torrent_id.isascii() else MAX_SHARDS
        )
        return self._shards[number] if number < len(self._shards) else None

    async def _find(self, ids: Mapping[Shard, list[str]]) -> dict[str, tuple[Shard, InfoHash]]:
        """``ids``: those that are looked for in each shard."""
        replies = await self.ask(
            [(shard, ("MGET", *map(shard.keys.torrent_id, some))) for shard, some in ids.items()]
        )
        return {
            torrent_id: (shard, InfoHash(bytes.fromhex(text.decode())))
            for (shard, some), texts in zip(ids.items(), replies, strict=True)
            for torrent_id, text in zip(some, texts or [None] * len(some), strict=True)
            if text
        }


def in_parts(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """The items in their order, at most ``size`` at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))


def _without_errors(outcomes: list[Any]) -> list[Any]:
    """Raises the first error other than StoreUnavailable."""
    for outcome in outcomes:
        if isinstance(outcome, Exception) and not isinstance(outcome, StoreUnavailable):
            raise outcome
    return outcomes


class ScanCursors:
    """Cursors of a walk through all shards, one after the other: that of a shard times their number, plus the shard's
    number. 0 begins and ends the walk, as with one shard."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def page(
        self, cursor: int, read: Callable[[Shard, int], Awaitable[tuple[int, list[_Result]]]]
    ) -> tuple[int, list[_Result]]:
        """One page of the walk, and the next cursor. ``read`` reads a page of a shard, with the shard's own cursors. A
        shard that is away, or goes away meanwhile, is passed over."""
        own, number = divmod(cursor, len(self._shards))
        try:
            own, found = await read(self._shards[number], own)
        except StoreUnavailable as error:
            self._shards.leave_out([number], error)
            own, found = 0, []
        return own * len(self._shards) + number if own else (number + 1) % len(self._shards), found
