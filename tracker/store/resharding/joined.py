"""What each prefix has a part of, or a value of its own: computed from all prefixes, after the other keys."""

import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from tracker.store.changes.changes import FIRST, Entry, Stream, order_of, position_of, state_of
from tracker.store.client.pipe import Argument, flattened
from tracker.store.resharding.parts import Command, Parts
from tracker.store.schema.keys import MAX_SHARDS
from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Shard, in_parts
from tracker.store.stats.counters import FIGURES

_PAGE = 500
"""Entries of the change feed that are read or written at a time."""
_ENTRY_BYTES = {4: 22, 8: 30}
"""Bytes of an endpoint in `addresses:<ih>`, by those of its network."""


async def write_joined(source: Parts, target: Parts) -> None:
    """Writes them all; what a call before has written is replaced."""
    await _write_numbers(source, target)
    await _write_totals(source, target)
    forgotten = Counter[bytes]()
    for row in await _read(source, "unique:forgotten", "HGETALL"):
        forgotten.update(dict(zip(row[::2], map(whole, row[1::2]), strict=True)))
    if forgotten:
        await target.send([(target.main, ("HSET", target.main.keys.unique_forgotten(), *flattened(forgotten)))])
    await _join_outbox(source, target)
    # A deletion that was interrupted goes on in all shards.
    if users := {user for row in await _read(source, "deleting", "SMEMBERS") for user in row}:
        await target.send([(part, ("SADD", part.keys.deleting(), *users)) for part in target.all])
    await _rank_hit_and_runs(source, target)
    await copy_feed(source, target)
    for shard in target.store.shards:
        await target.store.reapings[shard].check_totals()
    for part in target.shards:
        await _count_addresses(target, part)
    for name in ("secret", "upload_multiplier", "download_multiplier", "groups"):
        (value,) = await target.send([(target.main, ("GET", f"{target.main.keys.prefix}{name}"))])
        if value is not None:
            await target.send([(part, ("SET", f"{part.keys.prefix}{name}", value)) for part in target.others])
    for shard in target.others:
        await target.store.user_copies.copy_to(shard)


async def _read(parts: Parts, name: str, command: str = "GET", *how: Argument) -> list[Any]:
    """The replies of each prefix."""
    return await parts.send([(part, (command, f"{part.keys.prefix}{name}", *how)) for part in parts.all])


async def _write_numbers(source: Parts, target: Parts) -> None:
    """Torrent ids and tokens go on above all that were given out. The outage that the trackers find when they start is
    the longest that a shard had."""
    numbers = [whole(each) for each in await _read(source, "torrent_id")]
    given_out = [MAX_SHARDS * number + shard for shard, number in enumerate(numbers[1:]) if number]
    highest = max(given_out, default=0) if source.others else numbers[0]
    if highest:
        last = -(-highest // MAX_SHARDS) if target.others else highest
        await target.send([(part, ("SET", f"{part.keys.prefix}torrent_id", last)) for part in target.shards])
    choices: tuple[tuple[str, Callable[[Iterable[bytes]], bytes]], ...] = (
        ("lease", lambda values: max(values, key=whole)),
        ("heartbeat", lambda values: min(values, key=whole)),
        ("due", lambda values: min(values, key=whole)),
        ("gap", _join_gaps),
    )
    for name, choose in choices:
        if values := [value for value in await _read(source, name) if value is not None]:
            chosen = choose(values)
            await target.send([(part, ("SET", f"{part.keys.prefix}{name}", chosen)) for part in target.all])


def _join_gaps(gaps: Iterable[bytes]) -> bytes:
    """The latest interruption, and the largest sums: they make leases and grace periods longer, never shorter."""
    rows = [list(map(int, gap.split())) for gap in gaps if re.fullmatch(rb"\d+ \d+ -?\d+ \d+", gap)]
    if not rows:
        return b"0 0 0 0"
    latest = max(rows, key=lambda row: row[1])
    return b"%d %d %d %d" % (*latest[:2], max(row[2] for row in rows), max(row[3] for row in rows))


async def _write_totals(source: Parts, target: Parts) -> None:
    """Global counters of all time are sums, whole under the main prefix. Those of peers follow from the rankings."""
    names = [f"stats:{figure}" for figure in FIGURES]
    rows = await source.send(
        [(part, ("MGET", *(f"{part.keys.prefix}{name}" for name in names))) for part in source.all]
    )
    for figure, name, values in zip(FIGURES, names, zip(*rows, strict=True), strict=True):
        if any(value is not None for value in values) and figure not in ("seeders", "leechers"):
            total = sum(map(whole, values))
            await target.send([(target.main, ("SET", f"{target.main.keys.prefix}{name}", total))])


async def _join_outbox(source: Parts, target: Parts) -> None:
    """Values of torrents that wait for StatHat are in shards; under the main prefix they are sent as well."""
    main, waiting = target.main, 0
    minutes = {minute for row in await _read(source, "outbox", "ZRANGE", 0, -1) for minute in row}
    for minute in sorted(minutes):
        name, counts = f"outbox:{minute.decode()}", Counter[bytes]()
        for row in await _read(source, name, "HGETALL"):
            counts.update(dict(zip(row[::2], map(whole, row[1::2]), strict=True)))
        if counts:
            key, waiting = f"{main.keys.prefix}{name}", waiting + len(counts)
            await target.send(
                [
                    (main, ("UNLINK", key)),
                    (main, ("HSET", key, *flattened(counts))),
                    (main, ("ZADD", f"{main.keys.prefix}outbox", minute, minute)),
                    (main, ("SET", main.keys.outbox_waiting(), waiting)),
                ]
            )


async def _rank_hit_and_runs(source: Parts, target: Parts) -> None:
    """Lists users by the sizes of their sets: under the main prefix all together, and in each shard."""
    for part in source.shards:
        async for users in source.ranked(part, part.keys.hit_and_runs()):
            sizes = await target.send(
                [(each, ("SCARD", each.keys.user_set(user, "hnr"))) for user in users for each in target.shards]
            )
            commands: list[Command] = []
            for user, own in zip(users, in_parts(sizes, len(target.shards)), strict=True):
                ranked = dict(zip(target.shards, own, strict=True)) | {target.main: sum(own)}
                commands += [(part, ("ZADD", part.keys.hit_and_runs(), n, user)) for part, n in ranked.items() if n]
            await target.send(commands)


async def _count_addresses(target: Parts, part: Shard) -> None:
    """Counts the endpoints of all swarms of a shard by network, as lib/addresses.lua does."""
    prefix = part.keys.prefix
    await target.send([(part, ("UNLINK", part.keys.addresses()))])
    async for ids in target.ranked(part, part.keys.index("seeders")):
        hashes = await target.send([(part, ("GET", part.keys.torrent_id(each))) for each in ids])
        rows = await target.send([(part, ("HGETALL", f"{prefix}addresses:{each.decode()}")) for each in hashes if each])
        counts = Counter[bytes]()
        for row in rows:
            for network, entries in zip(row[::2], row[1::2], strict=True):
                number = len(entries) // _ENTRY_BYTES.get(len(network), len(entries) + 1)
                counts[network] += number
                counts[network[: 3 if len(network) == 4 else 6]] += number
        await target.send(
            [(part, ("HINCRBY", part.keys.addresses(), network, by)) for network, by in counts.items() if by]
        )


async def copy_feed(source: Parts, target: Parts) -> None:
    """Copies the change feed and the edits again. An entry's id in its new stream is its position in the old feed. So
    entries stay in their order, and where there is one stream afterwards, positions stay as they are. Where there are
    several, a position is counted again from the id, as changes/changes.py does."""
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
