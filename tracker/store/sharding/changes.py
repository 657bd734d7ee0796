"""The change feeds of all shards as one feed.

Each stream has a place among all streams. The entry `<ms>-<n>` of the stream at place p of m has the position
`<ms>-<n * m + p>`. So positions are unique, and their order is the order of time. An entry is shown when no stream can
still get an earlier one: when the clocks of all servers are past it. So the feed stands still while a shard is away:
its last entries, which nobody may have read, are earlier than those of the others.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from tracker.errors import Conflict, StoreUnavailable
from tracker.store.changes.changes import (
    FIRST,
    Change,
    ChangePage,
    Changes,
    changes_of,
    check_position,
    order_of,
)
from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shards

_Position = tuple[int, int]
"""Milliseconds, and the number after them."""
_LAST = 2**63 - 1
"""No stream has so many entries of one millisecond."""


class _Stream(NamedTuple):
    connection: Connection
    key: str
    changes: Changes


class ShardedChanges(Changes):
    """``connection`` and ``keys`` are those of home, which has edits of users."""

    def __init__(self, shards: Shards, connection: Connection, keys: Keys) -> None:
        super().__init__(connection, keys)
        self._shards = shards
        self._feed = [_Stream(shard.connection, shard.keys.changes(), shard.changes) for shard in shards]
        edits = [_Stream(shard.connection, shard.keys.edits(), shard.changes) for shard in shards]
        self._all = [*self._feed, *edits, _Stream(connection, keys.edits(), self)]

    async def after(self, position: str, limit: int) -> ChangePage:
        """As with one shard. There is also a gap if a shard has deleted changes, and keeps none as old as
        ``position``. While a shard is away, there are no changes."""
        position = check_position(position)
        try:
            return await self._after(position, limit)
        except StoreUnavailable as error:
            if not (away := self._shards.away):
                raise
            self._shards.leave_out(away, error)
            return ChangePage([], position, False)

    async def _after(self, position: str, limit: int) -> ChangePage:
        start = _pair(position)
        found = await self._read(self._feed, start, limit)
        gap = await self._is_trimmed_after(self._feed, start) or (
            position != FIRST and not await self._exists(start)
        )
        if found:
            return ChangePage(found, found[-1].id, gap)
        return ChangePage(found, await self._newest_at(start) if gap else position, gap)

    async def newest(self, limit: int) -> list[Change]:
        found = await self._shards.gather(lambda shard: shard.changes.newest(limit))
        return _merged([found.get(shard, []) for shard in self._shards])[-limit:]

    async def updated(
        self, named: Literal["info_hash", "user_id"], since: int, cursor: str, limit: int
    ) -> tuple[list[str], str]:
        start = check_position(cursor or str(1000 * since))
        # Without a cursor, the change at the very start belongs to the list.
        first = _pair(start) if cursor else (1000 * since - 1, _LAST)
        found = await self._read(self._all, first, limit)
        # Read last, so that an entry deleted meanwhile shows. The feed was on since the oldest change of any shard.
        oldest = [each for each in await self._oldest(self._feed) if each]
        if not oldest or min(oldest) > _pair(start) or await self._is_trimmed_after(self._all, first):
            raise Conflict("the change feed does not reach back so far: read the whole list")
        names = list(dict.fromkeys(name for change in found if (name := getattr(change, named))))
        return names, found[-1].id if len(found) == limit else ""

    async def size(self) -> int:
        return sum((await self._shards.each(lambda shard: ("XLEN", shard.keys.changes()))).values())

    async def delete(self) -> None:
        """Shards that are away keep theirs."""
        await self._shards.gather(lambda shard: shard.changes.delete())
        await self._connection.command("UNLINK", self._edits)

    async def _read(self, streams: Sequence[_Stream], start: _Position, limit: int) -> list[Change]:
        """At most ``limit`` entries after ``start`` that no earlier one can precede any longer."""
        commands: list[tuple[_Stream, tuple[Any, ...]]] = []
        for place, stream in enumerate(streams):
            # The clock is read first: what is written later is not earlier than it.
            own = _own(start, place, len(streams))
            commands.append((stream, ("TIME",)))
            commands.append((stream, ("XRANGE", stream.key, f"({own}", "+", "COUNT", limit)))
        replies = await self._shards.send(commands)
        now = min(1000 * int(seconds) + int(micros) // 1000 for seconds, micros in replies[::2])
        merged = _merged([changes_of(rows) for rows in replies[1::2]])[:limit]
        return [change for change in merged if _pair(change.id)[0] < now]

    async def _oldest(self, streams: Sequence[_Stream]) -> list[_Position | None]:
        """The id of each stream's oldest entry."""
        parts = await self._shards.send(
            [(stream, ("XRANGE", stream.key, "-", "+", "COUNT", 1)) for stream in streams]
        )
        return [order_of(rows[0][0].decode()) if rows else None for rows in parts]

    async def _is_trimmed_after(self, streams: Sequence[_Stream], start: _Position) -> bool:
        """Whether a stream has deleted entries, and keeps none that is as old as ``start``. Read after the entries, so
        that one that was deleted meanwhile shows."""
        trimmed = await asyncio.gather(*(stream.changes.was_trimmed(stream.key) for stream in streams))
        for place, oldest in enumerate(await self._oldest(streams)):
            own = order_of(_own(start, place, len(streams)))
            if trimmed[place] and (oldest is None or oldest > own):
                return True
        return False

    async def _exists(self, start: _Position) -> bool:
        """Whether the change at a position is there: a store that lost its latest changes does not have it."""
        own, place = divmod(start[1], len(self._feed))
        stream, id = self._feed[place], f"{start[0]}-{own}"
        (rows,) = await self._shards.send([(stream, ("XRANGE", stream.key, id, id))])
        return bool(rows)

    async def _newest_at(self, start: _Position) -> str:
        commands: list[tuple[_Stream, tuple[Any, ...]]] = []
        for place, stream in enumerate(self._feed):
            own = _own(start, place, len(self._feed))
            commands.append((stream, ("XREVRANGE", stream.key, own, "-", "COUNT", 1)))
        merged = _merged([changes_of(rows) for rows in await self._shards.send(commands)])
        return merged[-1].id if merged else FIRST


def _merged(parts: list[list[Change]]) -> list[Change]:
    """The entries of all streams, with their positions as ids."""
    merged = []
    for place, part in enumerate(parts):
        for change in part:
            milliseconds, own = order_of(change.id)
            merged.append(replace(change, id=f"{milliseconds}-{own * len(parts) + place}"))
    return sorted(merged, key=lambda change: order_of(change.id))


def _own(start: _Position, place: int, streams: int) -> str:
    """The last possible id in the stream at ``place`` up to a position."""
    milliseconds, number = start
    own = (number - place) // streams
    if own >= 0:
        return f"{milliseconds}-{min(own, _LAST)}"
    return f"{milliseconds - 1}-{_LAST}" if milliseconds else FIRST


def _pair(position: str) -> _Position:
    milliseconds, _, number = position.partition("-")
    return int(milliseconds), int(number or 0)
