"""Copies keys into a store with another number of shards: whole, or by entries, each to the shard of its torrent.
Whatever is copied twice is the same afterwards, except that a peer may then be in a due list twice, which does no
harm."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from redis.exceptions import ResponseError

from tracker.errors import StoreUnavailable
from tracker.store.changes.changes import FIRST, Entry, Stream, order_of, position_of, state_of
from tracker.store.client.pipe import Argument, flattened
from tracker.store.resharding.parts import Command, Found, Parts
from tracker.store.schema.lenient_numbers import MAX_INTEGER
from tracker.store.schema.table.places import (
    CURSORS,
    NAMED_BY,
    PASSKEY,
    USER,
    WEBHOOK,
    Named,
    Place,
    place_of,
    torrent_in,
    torrent_of,
)
from tracker.store.sharding.shards import Shard, grouped, in_parts, named, noting_unavailable_shards, scan_together
from tracker.store.users.sums import SUMMED

_READ: dict[str, tuple[str, *tuple[Argument, ...]]] = {
    "STRING": ("GET",),
    "HASH": ("HGETALL",),
    "SET": ("SMEMBERS",),
    "LIST": ("LRANGE", 0, -1),
    "ZSET": ("ZRANGE", 0, -1, "WITHSCORES"),
    "STREAM": ("XRANGE", "-", "+"),
}
"""By type, the command that reads a whole key; the key comes after its first word."""
_MAX_WORDS = 2000
"""Words in one command, an even number."""


def write_commands(type: str, key: bytes, value: Any) -> Iterator[tuple[Argument, ...]]:
    """Write what a command of ``_READ`` has read in place of what there is."""
    if value is None:  # it has expired
        return
    yield ("UNLINK", key)
    match type:
        case "STRING":
            yield ("SET", key, value)
        case "STREAM":
            for entry_id, flat in value:
                yield ("XADD", key, entry_id, *flat)
        case "ZSET":
            swapped = list(chain.from_iterable(zip(value[1::2], value[::2], strict=True)))
            yield from (("ZADD", key, *words) for words in in_parts(swapped, _MAX_WORDS))
        case _:
            add = {"HASH": "HSET", "SET": "SADD", "LIST": "RPUSH"}[type]
            yield from ((add, key, *words) for words in in_parts(value, _MAX_WORDS))


def id_before(entry_id: bytes) -> str:
    """The last id before that of an entry of a stream."""
    milliseconds, _, number = entry_id.partition(b"-")
    if int(number):
        return f"{int(milliseconds)}-{int(number) - 1}"
    return f"{max(0, int(milliseconds) - 1)}-{MAX_INTEGER if int(milliseconds) else 0}"


ENTRIES = 1000
"""Entries of a set that one command reads."""
_PAGE = 500
"""Entries of the change feed that are read or written at a time."""
_MAX_KNOWN = 1_000_000
"""Torrents whose shards are remembered."""
_FREELEECH = b"freeleech:"
_CREDITED = (b"credited_up", b"credited_down")
_NEVER, _GONE = -1, -2
"""PEXPIRETIME of a key without an expiry, and of one that does not exist. Sets never expire."""
_ADD = {"SET": "SADD", "ZSET": "ZADD", "LIST": "RPUSH"}
_SCAN = {"SET": "SSCAN", "ZSET": "ZSCAN"}


@dataclass(eq=False)
class Copying:
    """Keys are copied by DUMP and RESTORE; by their values where the target is of another product, or older."""

    _source: Parts
    _target: Parts

    def __post_init__(self) -> None:
        self._by_value = False
        self._known: dict[tuple[Shard, bytes], Shard] = {}
        self.expiring: set[str] = set()
        """Rows of which a key had an expiry."""

    async def copy(self, found: Sequence[Found]) -> None:
        for part, some in grouped(found, lambda each: each.part).items():
            places = grouped(some, lambda each: place_of(each.row, each.name))
            whole = [*places[Place.MAIN], *places[Place.COPIED]] if part == self._source.main else []
            targets = [self._target.main] * len(whole)
            targets += await self._targets(part, [torrent_in(each.row, each.name) for each in places[Place.TORRENT]])
            whole += places[Place.TORRENT]
            await self._copy_whole(whole, targets)
            await self._split(part, places[Place.SPLIT])
            await self._copy_users(part, [each for each in places[Place.JOINED] if each.row.pattern == USER])
            await self._note_copies([each for each in whole if each.row.pattern == PASSKEY])

    # Torrents

    async def _targets(self, part: Shard, torrents: Sequence[tuple[str, bytes]]) -> list[Shard]:
        """Where the keys and entries of these torrents go. What a deleted torrent has left goes where its id is looked
        for."""
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()
        shards = self._target.shards
        if ids := list({name for kind, name in torrents if kind == "tid" and (part, name) not in self._known}):
            keys = [part.keys.prefix.encode() + b"torrent_id:" + each for each in ids]
            (hashes,) = await self._source.send([(part, ("MGET", *keys))])
            for torrent_id, info_hash in zip(ids, hashes, strict=True):
                number = _number(info_hash[:2], 16) if info_hash else _number(torrent_id, 10)
                self._known[part, torrent_id] = shards[number % len(shards)]

        def target_of(kind: str, name: bytes) -> Shard:
            if kind == "ih":
                return shards[_number(name[:2], 16) % len(shards)]
            return self._known[part, name] if kind else self._target.main

        return [target_of(kind, name) for kind, name in torrents]

    # Whole keys

    async def _copy_whole(self, found: Sequence[Found], targets: Sequence[Shard]) -> None:
        if not found:
            return
        try:
            await self._write(found, targets)
        except ResponseError as error:
            if self._by_value or "version or checksum" not in str(error):
                raise
            self._by_value = True
            await self._write(found, targets)
        for each in found:
            await self._adapt(each)

    async def _write(self, found: Sequence[Found], targets: Sequence[Shard]) -> None:
        reads: list[Command] = []
        for each in found:
            name, *how = _READ[each.row.type] if self._by_value else ("DUMP",)
            reads += ((each.part, ("PEXPIRETIME", each.key)), (each.part, (name, each.key, *how)))
        replies = await self._source.send(reads)
        writes: list[Command] = []
        for each, target, ends, value in zip(found, targets, replies[::2], replies[1::2], strict=True):
            self._note_end(each, ends)
            key = each.key_in(target)
            if self._by_value:
                writes += ((target, words) for words in write_commands(each.row.type, key, value))
                writes += [(target, ("PEXPIREAT", key, ends))] if ends > 0 else []
            elif value is not None:  # else it has expired
                writes.append((target, ("RESTORE", key, max(ends, 0), value, "REPLACE", "ABSTTL")))
        await self._target.send(writes)
        if self._by_value:
            await self._make_groups([each for each in found if each.row.type == "STREAM"])

    async def _make_groups(self, streams: Sequence[Found]) -> None:
        """Makes the consumer groups of streams of the main prefix. They get again what was read and not
        acknowledged."""
        for each in streams:
            key = each.key_in(self._target.main)
            (groups,) = await self._source.send([(each.part, ("XINFO", "GROUPS", each.key))])
            for flat in groups:
                group = dict(zip(flat[::2], flat[1::2], strict=True))
                name, last = group[b"name"], group[b"last-delivered-id"]
                (pending,) = await self._source.send([(each.part, ("XPENDING", each.key, name))])
                after = id_before(pending[1]) if pending[0] else last
                await self._target.send([(self._target.main, ("XGROUP", "CREATE", key, name, after, "MKSTREAM"))])

    def _note_end(self, each: Found, ends: Any) -> None:
        if ends > 0 or ends == _GONE:
            self.expiring.add(each.row.pattern)

    async def _adapt(self, each: Found) -> None:
        """Changes the copy where its value depends on the shards."""
        target = self._target.main
        key = each.key_in(target)
        if field := CURSORS.get(each.row.pattern):
            await self._target.send([(target, ("HDEL", key, field))])
        elif each.row.pattern == WEBHOOK:
            (position,) = await self._target.send([(target, ("HGET", key, "position"))])
            if position:
                after = await position_after(position.decode(), self._source, self._target)
                await self._target.send([(target, ("HSET", key, "position", after))])

    # Entries

    async def _split(self, part: Shard, found: Sequence[Found]) -> None:
        timed = [each for each in found if each.row.type != "SET"]
        ends = await self._source.send([(part, ("PEXPIRETIME", each.key)) for each in timed])
        end_of = dict.fromkeys(found, _NEVER) | dict(zip(timed, ends, strict=True))
        for each, end in end_of.items():
            self._note_end(each, end)
        lists = [each for each in found if each.row.type == "LIST"]
        entries = await self._source.send([(part, ("LRANGE", each.key, 0, -1)) for each in lists])
        await self._add(part, [(each, end_of[each], some) for each, some in zip(lists, entries, strict=True)])
        sets = [each for each in found if each.row.type != "LIST"]
        heads = [(part, (_SCAN[each.row.type], each.key)) for each in sets]
        async for pages in scan_together(self._source.send, heads, "COUNT", ENTRIES):
            await self._add(part, [(sets[place], end_of[sets[place]], page) for place, page in pages.items()])

    async def _add(self, part: Shard, pages: Sequence[tuple[Found, Any, Sequence[bytes]]]) -> None:
        """Adds entries to the sets and lists of the same names in their shards."""
        torrents: list[tuple[str, bytes]] = []
        for each, _, flat in pages:
            named: Named = NAMED_BY[each.row.pattern]
            torrents += [torrent_of(named, entry) for entry in _entries(each, flat)]
        targets = iter(await self._targets(part, torrents))
        writes: list[Command] = []
        for each, end, flat in pages:
            added = defaultdict[Shard, list[Argument]](list)
            scores = iter(flat[1::2])
            for entry in _entries(each, flat):
                into = added[next(targets)]
                if each.row.type == "ZSET":
                    into.append(next(scores))
                into.append(entry)
            for target, entries in added.items():
                key = each.key_in(target)
                writes.append((target, (_ADD[each.row.type], key, *entries)))
                if end > 0:
                    writes.append((target, ("PEXPIREAT", key, end)))
        await self._target.send(writes)

    # Users

    async def _copy_users(self, part: Shard, found: Sequence[Found]) -> None:
        """The totals of a user stay whole, as the part of the main prefix that is in no shard. A shard knows a user
        only after the main store does, so each user is found there."""
        rows: list[Any] = await self._source.send([(part, ("HGETALL", each.key)) for each in found])
        hashes = [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]
        main_rows: list[dict[bytes, Argument]] = [{} for _ in found]
        if part == self._source.main:
            with noting_unavailable_shards() as unavailable:
                main_rows = await asyncio.gather(*map(self._main_fields, found, hashes))
            if unavailable:  # the totals are old ones
                raise StoreUnavailable(f"{named(unavailable)} of the old store is unavailable")
        writes: list[Command] = []
        for each, fields, of_main in zip(found, hashes, main_rows, strict=True):
            of_shards = await self._shard_fields(part, fields)
            parts: list[tuple[Shard, Mapping[bytes, Argument]]] = [(self._target.main, of_main), *of_shards]
            for target, values in parts:
                if values:
                    key = each.key_in(target)
                    writes.append((target, ("HSET", key, *flattened(values))))
        await self._target.send(writes)

    async def _main_fields(self, each: Found, fields: dict[bytes, bytes]) -> dict[bytes, Argument]:
        values: dict[bytes, Argument] = {
            field: value
            for field, value in fields.items()
            if not (field.startswith((_FREELEECH, b"base_")) or field in _CREDITED)
        }
        if self._source.others:
            (totals,) = await self._source.store.user_sums.totals([each.name.partition(b":")[2].decode()])
            values |= {name.encode(): total for name, total in totals.items() if total or name.encode() in fields}
        if self._target.others:
            values |= {b"base_" + name: values[name] for name in map(str.encode, SUMMED) if name in values}
        return values

    async def _shard_fields(self, part: Shard, fields: dict[bytes, bytes]) -> list[tuple[Shard, dict[bytes, bytes]]]:
        credited = {field: fields[field] for field in _CREDITED if field in fields}
        parts = [(target, credited) for target in self._target.shards] if credited else []
        tokens = [field for field in fields if field.startswith(_FREELEECH)]
        targets = await self._targets(part, [("tid", field.removeprefix(_FREELEECH)) for field in tokens])
        return parts + [(target, {field: fields[field]}) for field, target in zip(tokens, targets, strict=True)]

    async def _note_copies(self, users: Iterable[Found]) -> None:
        """Lists passkeys under the main prefix, so that the shards get them."""
        passkeys = [each.name.partition(b":")[2] for each in users]
        if passkeys and self._target.others:
            main, keys = self._target.main, self._target.main.keys
            (last,) = await self._target.send([(main, ("INCRBY", keys.copies_version(), len(passkeys)))])
            first = int(last) - len(passkeys) + 1
            pairs = [text for number, passkey in enumerate(passkeys, first) for text in (number, passkey)]
            await self._target.send([(main, ("ZADD", keys.copies(), *pairs))])


def _number(digits: bytes, base: int) -> int:
    """0 for what another program wrote in place of an id or an info hash."""
    try:
        return int(digits, base)
    except ValueError:
        return 0


def _entries(each: Found, flat: Sequence[bytes]) -> Sequence[bytes]:
    return flat[::2] if each.row.type == "ZSET" else flat


# The change feed


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
