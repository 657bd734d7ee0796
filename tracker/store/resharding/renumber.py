"""Gives torrents other ids, in all keys that name one, while no tracker runs.

Old and new ids overlap, so it takes two walks over all keys: the first replaces an old id by the new one plus
TEMPORARY, the second subtracts that again. A step that is done twice changes nothing more, so a walk that was
interrupted begins again. `renumber` under the main prefix holds the ids and the walk; while it exists, no tracker
starts. What a removed torrent has left under an id that another torrent gets is moved to an id above all.
"""

import hashlib
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from tracker.bittorrent import InfoHash
from tracker.errors import ClientError
from tracker.store.resharding.parts import Command, Found, Parts, check_idle
from tracker.store.schema.keys import MAX_SHARDS
from tracker.store.schema.table.places import NAMED_BY, TORRENT_ID, TORRENT_IDS_IN
from tracker.store.sharding.shards import in_parts, scan

TEMPORARY = 10**14
"""Above all ids that a site may give."""
FREELEECH = b"freeleech:"
_PEER_ID = 20
_ENTRIES = 1000
_NewId = Callable[[bytes], bytes | None]
"""The id in place of one; None: it stays."""


@dataclass(eq=False)
class Renumber:
    """Methods raise ClientError with a reason for the operator, StoreUnavailable, and redis.exceptions.RedisError."""

    _parts: Parts

    def __post_init__(self) -> None:
        self._main = self._parts.main
        self._state = self._main.keys.renumber()

    async def begin(self, wanted: Mapping[str | InfoHash, str]) -> int:
        """Checks the new ids, by old id or info hash, and notes them; returns how many there are. After an interruption
        ``wanted`` must be the same."""
        await check_idle(self._parts, "")
        digest = hashlib.sha256(repr(sorted(map(str, wanted.items()))).encode()).hexdigest()
        (begun,) = await self._send((self._main, ("HMGET", self._state, "digest", "ids")))
        if begun[0] is not None:
            if begun[0].decode() != digest:
                raise ClientError("another file was begun: run the command again with that one first")
            return zlib.decompress(begun[1]).count(b"\n")
        ids = await self._resolved(wanted)
        await self._check_free(ids)
        text = "".join(f"{old} {new}\n" for old, new in ids.items()).encode()
        rows = await self._parts.send([(part, ("GET", f"{part.keys.prefix}torrent_id")) for part in self._parts.shards])
        several = MAX_SHARDS if self._parts.others else 1
        given_out = [(int(row) + 1) * several for row in rows if row and row.isdigit()]
        last = max((*map(int, ids), *map(int, ids.values()), *given_out), default=0)
        offset = (last // MAX_SHARDS + 1) * MAX_SHARDS  # ids of removed torrents still name their shard
        if offset + last >= TEMPORARY or await self._has_large_ids():
            raise ClientError(f"torrent ids, also of removed torrents, must be below {TEMPORARY // 4}")
        fields = ("digest", digest, "ids", zlib.compress(text), "offset", offset, "walk", 1)
        await self._send((self._main, ("HSET", self._state, *fields)))
        return len(ids)

    async def _resolved(self, wanted: Mapping[str | InfoHash, str]) -> dict[str, str]:
        """By old id."""
        hashes = [each for each in wanted if isinstance(each, bytes)]
        rows = await self._parts.send(
            [(part, ("GET", part.keys.info_hash(each))) for each in hashes for part in [self._parts.shards.of(each)]]
        )
        known = dict(zip(hashes, rows, strict=True))
        ids: dict[str, str] = {}
        for each, new in wanted.items():
            if isinstance(each, bytes) and known[each] is None:
                raise ClientError(f"{each.hex()} is not registered")
            old = known[each].decode() if isinstance(each, bytes) else each
            if old in ids:
                raise ClientError(f"torrent {old} is in the file twice")
            ids[old] = new
        return {old: new for old, new in ids.items() if old != new}

    async def _check_free(self, ids: Mapping[str, str]) -> None:
        if len({*ids.values()}) < len(ids):
            raise ClientError("two torrents would get the same id")
        unknown = set(ids)
        for some in in_parts([*ids, *ids.values()], _ENTRIES):
            found = await self._parts.shards.find_torrents(some)
            unknown -= found.keys()
            if taken := (found.keys() & {*ids.values()}) - ids.keys():
                raise ClientError(
                    f"torrent {min(taken, key=int)} has an id that another one gets, and gets none itself"
                )
        if unknown:
            raise ClientError(f"there is no torrent {min(unknown, key=len)}")

    async def _has_large_ids(self) -> bool:
        async with aclosing(self._parts.pages()) as pages:
            async for page in pages:
                names = (each.name for each in page.found if each.row.pattern == TORRENT_ID)
                if any(int(name.partition(b":")[2]) >= TEMPORARY for name in names):
                    return True
        return False

    async def run(self) -> AsyncGenerator[int]:
        """Both walks, after ``begin``. Yields how many keys were read."""
        row = await self._send((self._main, ("HMGET", self._state, "ids", "offset", "walk")))
        packed, offset, walk = row[0]
        pairs = (line.split() for line in zlib.decompress(packed).splitlines())
        ids: dict[bytes, bytes] = dict(pairs)
        read = 0
        walks: tuple[_NewId, _NewId] = (_temporary(ids, int(offset)), _final)
        for number in range(int(walk), 3):
            await self._send((self._main, ("HSET", self._state, "walk", number)))
            async with aclosing(self._parts.pages()) as pages:
                async for page in pages:
                    await self._renumber(page.found, walks[number - 1])
                    read += page.keys
                    yield read
        highest = max((int(new) for new in ids.values()), default=0)
        for part in self._parts.shards:
            await part.scripts.raise_torrent_id([int(offset) + highest])
        await self._send((self._main, ("UNLINK", self._state)))

    async def _renumber(self, found: Sequence[Found], new_id: _NewId) -> None:
        renames: list[Command] = []
        for each in found:
            match TORRENT_IDS_IN.get(each.row.pattern):
                case "name":
                    renames += _rename(each, new_id)
                case "entry":
                    await self._replace_entries(each, new_id)
                case "value":
                    await self._replace_value(each, ("GET", each.key), ("SET", each.key), new_id)
                case "field":
                    await self._replace_value(each, ("HGET", each.key, "tid"), ("HSET", each.key, "tid"), new_id)
                case "token":
                    await self._replace_tokens(each, new_id)
                case "stream":
                    await self._rewrite_stream(each, new_id)
        await self._parts.store.shards.send(renames, keep_errors=True)  # one may have expired

    async def _replace_value(self, each: Found, get: tuple[Any, ...], set_: tuple[Any, ...], new_id: _NewId) -> None:
        (value,) = await self._send((each.part, get))
        if value is not None and (new := new_id(value)) is not None:
            await self._send((each.part, (*set_, new)))

    async def _replace_tokens(self, each: Found, new_id: _NewId) -> None:
        (flat,) = await self._send((each.part, ("HGETALL", each.key)))
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            if field.startswith(FREELEECH) and (new := new_id(field.removeprefix(FREELEECH))) is not None:
                await self._send(
                    (each.part, ("HSET", each.key, FREELEECH + new, value)), (each.part, ("HDEL", each.key, field))
                )

    async def _replace_entries(self, each: Found, new_id: _NewId) -> None:
        """Entries of a set are added before the old ones are removed."""
        head = {"due": _PEER_ID}.get(NAMED_BY[each.row.pattern], 0)
        if each.row.type == "LIST":
            (entries,) = await self._send((each.part, ("LRANGE", each.key, 0, -1)))
            for place, entry in enumerate(entries):
                if (new := new_id(entry[head:])) is not None:
                    await self._send((each.part, ("LSET", each.key, place, entry[:head] + new)))
            return
        add, remove, scan_command = ("ZADD", "ZREM", "ZSCAN") if each.row.type == "ZSET" else ("SADD", "SREM", "SSCAN")
        async for flat in scan(each.part.connection, (scan_command, each.key), "COUNT", _ENTRIES):
            writes: list[Command] = []
            entries = zip(flat[::2], flat[1::2], strict=True) if scan_command == "ZSCAN" else ((one,) for one in flat)
            for entry, *score in entries:
                before, colon, own = entry.rpartition(b":")
                if (new := new_id(own)) is not None:
                    writes.append((each.part, (add, each.key, *score, before + colon + new)))
                    writes.append((each.part, (remove, each.key, entry)))
            await self._send(*writes)

    async def _rewrite_stream(self, each: Found, new_id: _NewId) -> None:
        """A copy with the same ids takes the place of the feed."""
        copy = each.part.keys.renumbered_changes()
        (info, _) = await self._send((each.part, ("XINFO", "STREAM", each.key)), (each.part, ("UNLINK", copy)))
        fields = dict(zip(info[::2], info[1::2], strict=True))
        start: bytes | str = "-"
        while True:
            (rows,) = await self._send((each.part, ("XRANGE", each.key, start, "+", "COUNT", _ENTRIES)))
            if not rows:
                break
            writes: list[Command] = []
            for entry_id, flat in rows:
                at = next((i for i in range(0, len(flat), 2) if flat[i] == b"torrent_id"), None)
                if at is not None and (new := new_id(flat[at + 1])) is not None:
                    flat[at + 1] = new
                writes.append((each.part, ("XADD", copy, entry_id, *flat)))
            await self._send(*writes)
            start = b"(" + rows[-1][0]
        if start != "-":
            how = ("ENTRIESADDED", fields[b"entries-added"], "MAXDELETEDID", fields[b"max-deleted-entry-id"])
            await self._send(
                (each.part, ("XSETID", copy, fields[b"last-generated-id"], *how)),
                (each.part, ("RENAME", copy, each.key)),
            )

    async def _send(self, *commands: Command) -> list[Any]:
        return await self._parts.send(commands)


def _rename(each: Found, new_id: _NewId) -> list[Command]:
    words = each.name.split(b":")
    at = each.row.pattern.removeprefix("t:").split(":").index("<tid>")
    if (new := new_id(words[at])) is None:
        return []
    name = b":".join([*words[:at], new, *words[at + 1 :]])
    return [(each.part, ("RENAME", each.key, each._replace(name=name).key))]


def _temporary(ids: Mapping[bytes, bytes], offset: int) -> _NewId:
    """The first walk. An id that another torrent gets, and that no torrent of the file has, is one of a removed
    torrent."""
    left = {new for new in ids.values() if new not in ids}

    def new_id(old: bytes) -> bytes | None:
        if (new := ids.get(old)) is not None:
            return b"%d" % (TEMPORARY + int(new))
        return b"%d" % (TEMPORARY + offset + int(old)) if old in left else None

    return new_id


def _final(found: bytes) -> bytes | None:
    """The second walk."""
    return b"%d" % (int(found) - TEMPORARY) if found.isdigit() and int(found) >= TEMPORARY else None
