"""The streams of the change feed, from one number of shards to another.

An entry's id in its new stream is its position in the old feed. So entries stay in their order, and where there is one
stream afterwards, positions stay as they are. Where there are several, a position is counted again from the id, as
changes/changes.py does.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence

from tracker.store.changes.changes import FIRST, Entry, Stream, order_of, position_of, state_of
from tracker.store.resharding.parts import Command, Parts

_PAGE = 500


async def copy_feed(source: Parts, target: Parts) -> None:
    """Copies the change feed and the edits again."""
    old, new = source.store.changes, target.store.changes
    for streams, goals in ((old.feed, new.feed), (old.edits, new.edits)):
        await target.send([(goal, ("UNLINK", goal.key)) for goal in goals])
        infos = [(stream, ("XINFO", "STREAM", stream.key)) for stream in streams]
        trimmed = [state_of(reply)[0] for reply in await source.store.shards.send(infos, keep_errors=True)]
        last: dict[Stream, str] = {}
        writes: list[Command] = []
        async for entry in _merged(source, streams):
            goal = goals[min(_shard_of(entry, target), len(goals) - 1)]
            (milliseconds, number), fields = entry
            last[goal] = f"{milliseconds}-{number}"
            writes.append((goal, ("XADD", goal.key, last[goal], *fields)))
            if len(writes) == _PAGE:
                await target.send(writes)
                writes = []
        await target.send(writes)
        for goal, id in last.items() if any(trimmed) else ():  # readers from the start learn of a gap
            (length,) = await target.send([(goal, ("XLEN", goal.key))])
            how = ("ENTRIESADDED", length + 1, "MAXDELETEDID", "0-1")
            await target.send([(goal, ("XSETID", goal.key, id, *how))])


def _shard_of(entry: Entry, parts: Parts) -> int:
    """The stream of an entry: that of its torrent; without one that of the main prefix, the last of the edits'."""
    info_hash = dict(zip(entry[1][::2], entry[1][1::2], strict=True)).get(b"info_hash")
    return int(info_hash[:2], 16) % len(parts.shards) if info_hash else len(parts.shards)


async def _merged(parts: Parts, streams: Sequence[Stream]) -> AsyncIterator[Entry]:
    """All entries in the order of their positions."""
    waiting: list[deque[Entry]] = [deque() for _ in streams]
    starts: list[str | None] = ["-"] * len(streams)
    while True:
        for place, stream in enumerate(streams):
            if not waiting[place] and (start := starts[place]) is not None:
                how = ("XRANGE", stream.key, start, "+", "COUNT", _PAGE)
                (rows,) = await parts.send([(stream, how)])
                waiting[place].extend((position_of(row, place, len(streams)), row[1]) for row in rows)
                starts[place] = f"({rows[-1][0].decode()}" if rows else None
        places = [place for place, entries in enumerate(waiting) if entries]
        if not places:
            return
        yield waiting[min(places, key=lambda place: waiting[place][0][0])].popleft()


async def position_after(position: str, source: Parts, target: Parts) -> str:
    """The position of the same change in the new feed. If the feed no longer has it: one that the same changes
    follow."""
    shards = len(target.shards)
    milliseconds, number = order_of(position)
    if position == FIRST:
        return position
    streams = source.store.changes.feed
    own, place = divmod(number, len(streams))
    id = f"{milliseconds}-{own}"
    (rows,) = await source.send([(streams[place], ("XRANGE", streams[place].key, id, id))])
    shard = _shard_of(((milliseconds, number), rows[0][1]), target) if rows else shards
    return f"{milliseconds}-{number * shards + min(shard, shards - 1)}"
