"""The streams of the change feed, from one number of shards to another.

An entry's id in its new stream is its position in the old feed. So entries stay in their order, and where there is one
stream afterwards, positions stay as they are. Where there are several, a position is counted again from the id, as
changes/changes.py does.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from tracker.store.changes.changes import FIRST, order_of, state_of
from tracker.store.resharding.parts import Command, Parts
from tracker.store.sharding.shards import Shard

_PAGE = 500
_Order = tuple[int, int]
"""Milliseconds, and the number after them."""


class _Stream(NamedTuple):
    part: Shard
    key: str


class _Entry(NamedTuple):
    order: _Order
    flat: list[bytes]


def _feed(parts: Parts) -> list[_Stream]:
    return [_Stream(part, part.keys.changes()) for part in parts.shards]


def _edits(parts: Parts) -> list[_Stream]:
    """Those of torrents, then those of users."""
    return [_Stream(part, part.keys.edits()) for part in dict.fromkeys((*parts.shards, *parts.all))]


async def copy_feed(source: Parts, target: Parts) -> None:
    """Copies the change feed and the edits again."""
    for streams, goals in ((_feed(source), _feed(target)), (_edits(source), _edits(target))):
        await target.send([(goal.part, ("UNLINK", goal.key)) for goal in goals])
        infos = [(stream.part, ("XINFO", "STREAM", stream.key)) for stream in streams]
        trimmed = [state_of(reply)[0] for reply in await source.store.shards.send(infos, keep_errors=True)]
        last: dict[_Stream, str] = {}
        writes: list[Command] = []
        async for entry in _merged(source, streams):
            goal = goals[min(_shard_of(entry, target), len(goals) - 1)]
            last[goal] = f"{entry.order[0]}-{entry.order[1]}"
            writes.append((goal.part, ("XADD", goal.key, last[goal], *entry.flat)))
            if len(writes) == _PAGE:
                await target.send(writes)
                writes = []
        await target.send(writes)
        if any(trimmed):
            await _mark_trimmed(target, last)


async def _mark_trimmed(target: Parts, last: dict[_Stream, str]) -> None:
    """Makes each stream one that has deleted entries, so that readers from the start learn of a gap."""
    for goal, id in last.items():
        (length,) = await target.send([(goal.part, ("XLEN", goal.key))])
        how = ("ENTRIESADDED", length + 1, "MAXDELETEDID", "0-1")
        await target.send([(goal.part, ("XSETID", goal.key, id, *how))])


def _shard_of(entry: _Entry, parts: Parts) -> int:
    """The stream of an entry: that of its torrent; without one that of the main prefix, the last of the edits'."""
    info_hash = dict(zip(entry.flat[::2], entry.flat[1::2], strict=True)).get(b"info_hash")
    return int(info_hash[:2], 16) % len(parts.shards) if info_hash else len(parts.shards)


async def _merged(parts: Parts, streams: Sequence[_Stream]) -> AsyncIterator[_Entry]:
    """All entries in the order of their positions, which are their orders."""
    waiting: list[deque[_Entry]] = [deque() for _ in streams]
    starts: list[str | None] = ["-"] * len(streams)
    while True:
        for place, stream in enumerate(streams):
            if not waiting[place] and (start := starts[place]) is not None:
                how = ("XRANGE", stream.key, start, "+", "COUNT", _PAGE)
                (rows,) = await parts.send([(stream.part, how)])
                waiting[place].extend(_entry(row, place, len(streams)) for row in rows)
                starts[place] = f"({rows[-1][0].decode()}" if rows else None
        places = [place for place, entries in enumerate(waiting) if entries]
        if not places:
            return
        yield waiting[min(places, key=lambda place: waiting[place][0].order)].popleft()


def _entry(row: Any, place: int, streams: int) -> _Entry:
    milliseconds, own = order_of(row[0].decode())
    return _Entry((milliseconds, own * streams + place), row[1])


class PositionMap:
    """What positions in the feed become."""

    def __init__(self, source: Parts, target: Parts) -> None:
        self._source = source
        self._target = target

    async def after(self, position: str) -> str:
        """The position of the same change in the new feed. If the feed no longer has it: one that the same changes
        follow."""
        shards = len(self._target.shards)
        milliseconds, number = order_of(position)
        if position == FIRST:
            return position
        streams = _feed(self._source)
        own, place = divmod(number, len(streams))
        id = f"{milliseconds}-{own}"
        (rows,) = await self._source.send([(streams[place].part, ("XRANGE", streams[place].key, id, id))])
        shard = _shard_of(_entry(rows[0], place, len(streams)), self._target) if rows else shards
        return f"{milliseconds}-{number * shards + min(shard, shards - 1)}"
