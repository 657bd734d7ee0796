"""The audit log: streams of the changes by the API, the dashboard and the command line.

A call that changes many objects has one entry with the first of them, and further entries with the others in a stream
of their own. So batches do not push the other changes out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, cast, get_args

import orjson
from redis.exceptions import RedisError

from tracker.errors import ClientError, StoreUnavailable
from tracker.store.access.tokens import ROLES, Role
from tracker.store.client.pipe import flattened
from tracker.store.schema.lenient_numbers import hash_of, text_of
from tracker.store.schema.record import Field
from tracker.store.sharding.shards import Part, Shard

Way = Literal["api", "dashboard", "cli", "site"]

KEPT_SECONDS = 366 * 86_400
MAX_OBJECTS = 10
"""Objects of the entry of a call. Further entries have the others."""
MAX_ROWS = 50
"""Objects of a further entry."""
ROWS_SHARE = 10
"""There are at most this many times fewer further entries."""
FURTHER_A_CALL = 8
"""Further entries that one call writes: about 64 KB, which take the store less than a millisecond."""
MAX_TEXT = 200
"""Characters of a value."""
MAX_SCANNED = 10_000
"""Entries that one call of ``page`` reads to find those that match."""
_MAX_FIELDS = 40
_MAX_BYTES = 8192
"""Maximum bytes of all objects of an entry. Further values are left out."""
_CHUNK = 250
_CURSOR = re.compile(r"[0-9]{1,19}-[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ChangedObject:
    """An object of an entry, with the values of the fields that changed. A field that did not exist has no value."""

    kind: str
    id: str
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change. ``id`` and ``at`` (epoch s) come from the store."""

    actor: Annotated[str, Field("Name of the token, `sign-in link`, or user of the operating system.")]
    token_id: Annotated[str, Field("Empty for a link and for the command line.")]
    role: Role
    way: Way
    address: Annotated[str, Field("Address of the client; host name for the command line; empty if unknown.")]
    operation: str
    objects: Annotated[
        tuple[ChangedObject, ...],
        Field("At most 50. A call that changes more has further entries, without counts, with the others."),
    ] = ()
    counts: Annotated[Mapping[str, int], Field("Numbers of a call that changes many objects.")] = field(
        default_factory=dict
    )
    details: Annotated[Mapping[str, str], Field("What else the call named, such as a filter.")] = field(
        default_factory=dict
    )
    id: str = ""
    at: int = 0
    further: Annotated[bool, Field("Whether it has others of the objects of a call, whose entry is newer.")] = False


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are wanted; empty: all. ``since`` and ``until`` are epoch seconds, both included."""

    actor: str = ""  # the name of an actor, or the id of a token
    operation: str = ""  # an operation, or the first part of its name: ``user`` for ``user.edit`` and the others
    object: str = ""  # the id of an object, such as an info hash or a user id
    way: str = ""
    since: int | None = None
    until: int | None = None

    def matches(self, entry: AuditEntry) -> bool:
        """Whether the entry is wanted; its time is not checked."""
        operation = self.operation
        return (
            (not self.actor or self.actor in (entry.actor, entry.token_id))
            and (not operation or entry.operation == operation or entry.operation.startswith(f"{operation}."))
            and (not self.way or entry.way == self.way)
            and (not self.object or any(each.id.lower() == self.object.lower() for each in entry.objects))
        )


class Audit(Part):
    """``max_entries``: more than that, or older than KEPT_SECONDS, the oldest entries are deleted."""

    def __init__(self, shard: Shard, max_entries: int) -> None:
        super().__init__(shard)
        self._max_entries = max_entries

    async def add(self, entry: AuditEntry) -> bool:
        """Adds one with any number of objects, then its further entries. False if the store does not take all of them.
        The change is done by then, and stays."""
        objects = _packed(entry.objects[:MAX_OBJECTS])
        further = [_packed(part) for part in _in_parts(entry.objects[MAX_OBJECTS:])]
        fields: dict[str, str | bytes] = {
            "actor": _clean(entry.actor),
            "token": entry.token_id,
            "role": entry.role,
            "way": entry.way,
            "address": _clean(entry.address),
            "operation": entry.operation,
            "details": orjson.dumps(_cut(entry.details)),
        }
        limits = (self._max_entries, max(1, self._max_entries // ROWS_SHARE), KEPT_SECONDS)
        counts = orjson.dumps(dict(entry.counts))
        with suppress(RedisError, StoreUnavailable):
            id = b""
            for first in reversed(range(0, max(1, len(further)), FURTHER_A_CALL)):  # the newest last
                some = further[first : first + FURTHER_A_CALL]
                id = await self._scripts.audit([*limits, id, objects, counts, len(some), *some, *flattened(fields)])
            return True
        return False

    async def page(self, wanted: AuditFilter, cursor: str = "", limit: int = 100) -> tuple[list[AuditEntry], str]:
        """The newest ``limit`` entries that match, older than the one with the id ``cursor`` if there is one. Also
        returns the next cursor, empty at the end. Reads at most MAX_SCANNED entries, so a page may have fewer than
        ``limit`` entries, or none, and be followed by others. Raises ClientError for a malformed cursor."""
        if cursor and not _CURSOR.fullmatch(cursor):
            raise ClientError("not a cursor of the audit log")
        end, found = f"({cursor}" if cursor else "", list[AuditEntry]()
        for _ in range(MAX_SCANNED // _CHUNK):
            rows, end = await self._newest(wanted, end)
            for id, flat in rows:
                if _may_match(wanted, flat) and wanted.matches(entry := _entry(id.decode(), flat)):
                    found.append(entry)
                    if len(found) == limit:
                        return found, entry.id
            if not end:
                return found, ""
        return found, end[1:]

    async def _newest(self, wanted: AuditFilter, end: str) -> tuple[list[Any], str]:
        """The newest entries of both streams until ``end``, newest first, and the end of the next ones; empty: none."""
        parts: list[Any] = []
        for key, older in ((self._keys.audit(), 0), (self._keys.audit_rows(), 1)):  # ms, as audit.lua gives ids
            newest = end or ("+" if wanted.until is None else 1000 * wanted.until + 999 - older)
            oldest = "-" if wanted.since is None else max(0, 1000 * wanted.since - older)
            parts.append(await self._connection.command("XREVRANGE", key, newest, oldest, "COUNT", _CHUNK))
        rows = sorted((row for part in parts for row in part), key=lambda row: _order(row[0]), reverse=True)
        unread = [part[-1][0] for part in parts if len(part) == _CHUNK]
        if not unread:
            return rows, ""
        last = max(unread, key=_order)  # entries of the other stream that are older come later
        return [row for row in rows if _order(row[0]) >= _order(last)], f"({last.decode()}"


def _order(id: bytes) -> tuple[int, int]:
    milliseconds, _, number = id.partition(b"-")
    return int(milliseconds), int(number)


def _may_match(wanted: AuditFilter, flat: Sequence[bytes]) -> bool:
    """False if a part of the stored entry, which takes much less time than to read it, shows that it is not wanted."""
    fields = hash_of(flat)
    id = orjson.dumps(wanted.object)[1:-1].lower() if wanted.object.isascii() else b""
    operation = wanted.operation.encode("utf-8", "replace")
    return id in fields.get(b"objects", b"").lower() and fields.get(b"operation", b"").startswith(operation)


def _in_parts(objects: Sequence[ChangedObject]) -> Iterator[tuple[ChangedObject, ...]]:
    """Parts for further entries: small enough that no values are left out, unless those of one object are too long."""
    part: list[ChangedObject] = []
    size = 0
    for each in objects:
        more = len(orjson.dumps(_row(each))) + 1
        if part and (len(part) == MAX_ROWS or size + more > _MAX_BYTES):
            yield tuple(part)
            part, size = [], 0
        part.append(each)
        size += more
    if part:
        yield tuple(part)


def _row(each: ChangedObject) -> dict[str, Any]:
    return {"kind": each.kind, "id": _clean(each.id), "before": _cut(each.before), "after": _cut(each.after)}


def _packed(objects: Sequence[ChangedObject]) -> bytes:
    """As JSON, with long values cut, and without the values of the last objects if it is too long."""
    kept = [_row(each) for each in objects]
    packed = orjson.dumps(kept)
    for each in reversed(kept):
        if len(packed) <= _MAX_BYTES:
            break
        each["before"], each["after"] = {}, {}
        packed = orjson.dumps(kept)
    return packed


def _cut(values: Mapping[str, str]) -> dict[str, str]:
    return {_clean(name): _clean(text) for name, text in list(values.items())[:_MAX_FIELDS]}


def _clean(text: str) -> str:
    """Cut, and without lone surrogates, which cannot be encoded."""
    text = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
    return text.encode("utf-8", "replace").decode()


def _entry(id: str, flat: Sequence[bytes]) -> AuditEntry:
    """Reads a stored entry. Invalid parts, which no tracker wrote, are empty."""
    row = text_of(hash_of(flat))
    role, way = row.get("role", ""), row.get("way", "")
    objects, counts, details = (_json(row.get(name, "")) for name in ("objects", "counts", "details"))
    return AuditEntry(
        actor=row.get("actor", ""),
        token_id=row.get("token", ""),
        role=role if role in ROLES else "read",
        way=cast(Way, way) if way in get_args(Way) else "cli",
        address=row.get("address", ""),
        operation=row.get("operation", ""),
        objects=tuple(map(_object, objects)) if isinstance(objects, list) else (),
        counts={name: number for name, number in counts.items() if isinstance(number, int)}
        if isinstance(counts, dict)
        else {},
        details=_strings(details),
        id=id,
        at=int(id.partition("-")[0]) // 1000,
        further="counts" not in row,
    )


def _json(text: str) -> Any:
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(text)
    return None


def _object(stored: Any) -> ChangedObject:
    row = stored if isinstance(stored, dict) else {}
    before, after = _strings(row.get("before")), _strings(row.get("after"))
    return ChangedObject(str(row.get("kind", "")), str(row.get("id", "")), before, after)


def _strings(stored: Any) -> dict[str, str]:
    return {name: str(value) for name, value in stored.items()} if isinstance(stored, dict) else {}


_FIRST = ("id", "at")
COLUMNS = (*_FIRST, *(each.name for each in fields(AuditEntry) if each.name not in _FIRST))
"""Of an export as CSV."""
