"""Changes by the API, the dashboard and the command line, as entries of the audit log.

The entry is written after the change, by a command of its own. So a change that fails has no entry, and a crash between
the two loses at most the entry of that change. If the store does not take an entry, the change stays, and the log says
so. The values before and after are read around the change. Other changes of the same moment show as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.operations.snapshots import Kind, RowKind, Rows, read_rows, snapshot, values_of
from tracker.store.access.audit import MAX_OBJECTS, AuditEntry, ChangedObject, Way
from tracker.store.access.tokens import Role
from tracker.store.store import Store
from tracker.store.users.fields import TOTALS
from tracker.system.logger import Logger
from tracker.system.masking import MASK

MAX_NAMED = 1000
"""Objects of one call. A call that changes more names the first ones."""
_HIDDEN = frozenset({"passkey"})

log = Logger("tracker.audit")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a change. ``token_id`` is empty without a token, ``address`` if it is unknown."""

    actor: str
    role: Role
    way: Way
    token_id: str = ""
    address: str = ""


class Change:
    """Collects what one call changes. ``touch`` each object before it is changed, then ``record`` once at the end. The
    rows of a batch are read together: ``read_rows`` before and ``note_rows`` after some of them are changed."""

    def __init__(self, store: Store, caller: Caller, operation: str) -> None:
        self._store = store
        self._caller = caller
        self.operation = operation
        self._before: dict[tuple[Kind, str], Mapping[str, str]] = {}
        self._halves: set[str] = set()
        """The other halves of hybrid torrents among them, which the change may leave as they are."""
        self._given: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}
        self._details: dict[str, str] = {}
        self._rows: list[ChangedObject] = []

    async def touch(self, kind: Kind, object_id: str) -> None:
        """Notes an object and its values. Beyond MAX_NAMED, and without an object of this id, it does nothing. Where a
        part of the store is unavailable, the change may be possible all the same. Its entry then has no object, because
        ``object_id`` may be a passkey."""
        if len(self._before) < MAX_NAMED:
            try:
                found_id, values = await snapshot(self._store, kind, object_id)
            except (RedisError, StoreUnavailable):
                self.note(not_read=kind)
                return
            if found_id:
                self._before.setdefault((kind, found_id), values)
            half = values.get("hybrid_of") or values.get("hybrid") if kind == "torrent" else None
            if half and (kind, half) not in self._before:
                self._halves.add(half)
                await self.touch(kind, half)

    async def touch_all(self, kind: Kind, object_ids: Sequence[str]) -> None:
        for object_id in object_ids:
            await self.touch(kind, object_id)

    async def read_rows(self, kind: RowKind, object_ids: Sequence[str]) -> Rows | None:
        """Rows before they are changed, for ``note_rows``; None if they cannot be read. A user's id may be a passkey.
        The caller bounds their number."""
        try:
            return await read_rows(self._store, kind, object_ids)
        except (RedisError, StoreUnavailable):
            self.note(not_read=kind)
            return None

    async def note_rows(self, kind: RowKind, before: Rows | None, object_ids: Sequence[str]) -> None:
        """Notes those of these rows that have changed since ``before``."""
        after = None if before is None else await self.read_rows(kind, object_ids)
        if before is None or after is None:
            return
        changed = ((id, before.get(id), row) for id, row in after.items() if before.get(id) != row)
        rows = (self._compared(kind, id, values_of(first), values_of(last)) for id, first, last in changed)
        self._rows += (row for row in rows if row.before or row.after)

    def created(self, kind: Kind, object_id: str) -> None:
        if len(self._before) < MAX_NAMED:
            self._before.setdefault((kind, object_id), {})

    def given(self, fields: Mapping[str, object]) -> None:
        """Notes the fields that were sent. Users' totals, which announces change too, are shown only if sent, or added
        to."""
        self._given |= frozenset(name.removeprefix("add_") for name in fields)

    def count(self, **numbers: int) -> None:
        for name, number in numbers.items():
            self._counts[name] = self._counts.get(name, 0) + number

    def note(self, **details: object) -> None:
        """Notes what else the call names, such as a filter; without what is None or empty."""
        given = {name: value for name, value in details.items() if value is not None and value is not False}
        self._details |= {name: str(value) for name, value in given.items() if value != ""}

    async def record(self, *, failed: bool = False) -> None:
        """Writes the entry. If the call ``failed``, only where something changed all the same."""
        try:
            objects = [await self._changed(kind, id, before) for (kind, id), before in self._before.items()]
            objects = [each for each in objects if each.before or each.after or each.id not in self._halves]
            objects += self._rows
            if failed and not (self._counts or any(each.before or each.after for each in objects)):
                return
            entry = AuditEntry(
                **asdict(self._caller),
                operation=self.operation,
                objects=tuple(objects),
                counts=self._counts,
                details=self._details,
            )
            written = await self._store.audit.add(entry)
        except (RedisError, StoreUnavailable):
            written = failed
        if not written:
            log.error("audit entry lost", by=self._caller.actor, what=self.operation, objects=self.named)

    @property
    def named(self) -> list[str]:
        """Kinds and ids of the first objects."""
        found = [f"{kind} {object_id}" for kind, object_id in self._before]
        found += (f"{row.kind} {row.id}" for row in self._rows)
        return found[:MAX_OBJECTS]

    async def _changed(self, kind: Kind, object_id: str, before: Mapping[str, str]) -> ChangedObject:
        """Compares the object with its values before. Where it cannot be read, the entry has only its id."""
        try:
            _, after = await snapshot(self._store, kind, object_id)
        except (RedisError, StoreUnavailable):
            self.note(not_read=kind)
            return ChangedObject(kind, object_id)
        return self._compared(kind, object_id, before, after)

    def _compared(
        self, kind: Kind, object_id: str, before: Mapping[str, str], after: Mapping[str, str]
    ) -> ChangedObject:
        names = [
            name
            for name in {**before, **after}
            if before.get(name) != after.get(name) and (name not in TOTALS or name in self._given)
        ]
        return ChangedObject(kind, object_id, _shown(before, names), _shown(after, names))


def _shown(values: Mapping[str, str], names: list[str]) -> dict[str, str]:
    return {name: MASK if name in _HIDDEN else values[name] for name in names if name in values}
