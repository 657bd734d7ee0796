"""The change feeds of all shards as one feed.

Each stream has a place among all streams. The entry `<ms>-<n>` of the stream at place p of m has the position
`<ms>-<n * m + p>`. So positions are unique, and their order is the order of time. An entry is shown when no stream can
still get an earlier one: when the clocks of all servers are past it. So the feed stands still while a shard is away:
its last entries, which nobody may have read, are earlier than those of the others.
"""

from collections.abc import Mapping, Sequence
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
    was_trimmed,
)
from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shard, Shards

_Position = tuple[int, int]
"""Milliseconds, and the number after them."""
_Entry = tuple[_Position, Any]
"""With its fields."""
_SPARE = 8
"""Entries that a stream is asked for beyond twice its share."""
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
        """Each shard is asked for some more than its share, and again if all of these belong to the newest."""
        some = min(limit, 2 * limit // len(self._shards) + _SPARE)
        parts = await self._newest(list(self._shards), some)
        first = [position for position, _ in self._in_order(parts)][-limit:][:1]
        full = [
            shard
            for shard, rows in parts.items()
            if len(rows) == some < limit and first <= [_position(rows[-1], shard.number, len(self._shards))]
        ]
        parts |= await self._newest(full, limit)
        return _changes(self._in_order(parts)[-limit:])

    async def _newest(self, shards: Sequence[Shard], count: int) -> dict[Shard, Any]:
        return await self._shards.each(
            lambda shard: ("XREVRANGE", shard.keys.changes(), "+", "-", "COUNT", count), shards
        )

    def _in_order(self, parts: Mapping[Shard, Any]) -> list[_Entry]:
        return _merged([parts.get(shard, []) for shard in self._shards])

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
        """At most ``limit`` entries after ``start`` that no earlier one can precede any longer. Each stream is asked as
        by ``newest``."""
        some = min(limit, 2 * limit // len(streams) + _SPARE)
        after = [f"({_own(start, place, len(streams))}" for place in range(len(streams))]
        commands: list[tuple[_Stream, tuple[Any, ...]]] = []
        for stream, first in zip(streams, after, strict=True):
            # The clock is read first: what is written later is not earlier than it.
            commands.append((stream, ("TIME",)))
            commands.append((stream, ("XRANGE", stream.key, first, "+", "COUNT", some)))
        replies = await self._shards.send(commands)
        now = min(1000 * int(seconds) + int(micros) // 1000 for seconds, micros in replies[::2])
        parts = replies[1::2]
        merged = _merged(parts)
        last = merged[limit - 1][0] if len(merged) >= limit else None
        full = [
            place
            for place, rows in enumerate(parts)
            if len(rows) == some < limit and (last is None or _position(rows[-1], place, len(parts)) < last)
        ]
        more = await self._shards.send(
            [
                (streams[place], ("XRANGE", streams[place].key, after[place], "+", "COUNT", limit))
                for place in full
            ]
        )
        for place, rows in zip(full, more, strict=True):
            parts[place] = rows
        return [change for change in _changes(_merged(parts)[:limit]) if _pair(change.id)[0] < now]

    async def _oldest(self, streams: Sequence[_Stream]) -> list[_Position | None]:
        """The id of each stream's oldest entry."""
        parts = await self._shards.send(
            [(stream, ("XRANGE", stream.key, "-", "+", "COUNT", 1)) for stream in streams]
        )
        return [order_of(rows[0][0].decode()) if rows else None for rows in parts]

    async def _is_trimmed_after(self, streams: Sequence[_Stream], start: _Position) -> bool:
        """Whether a stream has deleted entries, and keeps none that is as old as ``start``. Read after the entries, so
        that one that was deleted meanwhile shows."""
        replies = await self._shards.send(
            [(stream, ("XINFO", "STREAM", stream.key)) for stream in streams], keep_errors=True
        )
        trimmed = [place for place, reply in enumerate(replies) if was_trimmed(reply)]
        if not trimmed:
            return False
        oldest = await self._oldest([streams[place] for place in trimmed])
        own = (order_of(_own(start, place, len(streams))) for place in trimmed)
        return any(first is None or first > last for first, last in zip(oldest, own, strict=True))

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
        merged = _merged(await self._shards.send(commands))
        return _changes(merged[-1:])[0].id if merged else FIRST


def _merged(parts: Sequence[Sequence[Any]]) -> list[_Entry]:
    """The entries of all streams, in order."""
    return sorted(
        ((_position(row, place, len(parts)), row[1]) for place, rows in enumerate(parts) for row in rows),
        key=lambda entry: entry[0],
    )


def _position(row: Any, place: int, streams: int) -> _Position:
    milliseconds, own = order_of(row[0].decode())
    return milliseconds, own * streams + place


def _changes(entries: Sequence[_Entry]) -> list[Change]:
    """With positions as ids."""
    return changes_of([(b"%d-%d" % position, flat) for position, flat in entries])


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
