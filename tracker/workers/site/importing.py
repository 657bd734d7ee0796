"""Moves a site in: reads users, torrents, what users have on torrents, lists, and peers straight from its database.

Rows are read in the order of their keys. How far each kind is stands in the table of positions, so an interrupted
import goes on there if it is repeated with the same ``again``. What is recorded of a user's totals is what was read, so
the sync adds only what comes afterwards.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import tzinfo
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, Select, false, func, literal_column, select, text

from tracker.bittorrent import parse_info_hash
from tracker.errors import ClientError
from tracker.store.store import Store
from tracker.store.torrents.records import STORED_NAMES
from tracker.store.torrents.torrents import checked_torrent
from tracker.store.users.history import UNKNOWN_TORRENT, UNKNOWN_USER, PeerThere
from tracker.store.users.importing import SavedUser, checked_user
from tracker.workers.site.columns import epoch
from tracker.workers.site.database import SiteDatabase
from tracker.workers.site.mapping import ImportMapping, SiteMapping, TableMapping

_PAGE, _PEERS_PAGE = 1000, 10_000
_END = "end"
"""The position of a kind, or of the import, that is complete."""
_IMPORT = "import"
"""The source that tells which import is not complete."""


@dataclass(slots=True)
class Imported:
    kind: str
    total: int
    rows: int = 0
    problems: int = 0


@dataclass(eq=False)
class SiteImport:
    """``again``: totals of users that were imported before, and counters of peers, are replaced; else they stay."""

    store: Store
    database: SiteDatabase
    mapping: SiteMapping
    _: KW_ONLY
    again: bool
    dry_run: bool

    def __post_init__(self) -> None:
        self._now = self.store.clock()
        self.problems: list[str] = []
        """Of the last part: a line for each row that was not imported."""
        self._passkeys: dict[str, str] = {}
        """The user of each passkey of a dry run."""
        self._seen: dict[str, set[str]] = {}
        """The users and torrents of a dry run."""

    async def run(self) -> AsyncIterator[Imported]:
        """Yields after each part. Raises SiteError, StoreUnavailable and redis.exceptions.RedisError."""
        positions = {} if self.dry_run else await self._begin()
        for each in self.mapping.imports:
            position = positions.get(f"import:{each.kind}", "")
            if position == _END:
                continue
            (row,) = await self.database.rows(_query(each, [func.count().label("number")]), self._now)
            done = Imported(each.kind, int(row["number"]))
            yield done
            async for rows, after in self._pages(each, position):
                self.problems = await self._take(each, rows)
                done.rows += len(rows)
                done.problems += len(self.problems)
                if not self.dry_run:
                    await self.database.record({f"import:{each.kind}": after})
                yield done
        for table in self.mapping.of("peers"):
            if (position := positions.get(_peers_source(table), "")) != _END:
                async for done in self._peers(table, position):
                    yield done
        if not self.dry_run:
            await self.database.record({_IMPORT: _END})

    async def _begin(self) -> dict[str, str]:
        """The positions of an interrupted import; what another one has left of them is forgotten."""
        sources = [f"import:{each.kind}" for each in self.mapping.imports]
        sources += [_peers_source(each) for each in self.mapping.of("peers")]
        positions, which = await self.database.positions([_IMPORT, *sources]), "again" if self.again else "once"
        if positions.pop(_IMPORT, _END) == which:
            return positions
        await self.database.record({_IMPORT: which, **dict.fromkeys(sources, "")})
        return {}

    async def _peers(self, table: TableMapping, position: str) -> AsyncIterator[Imported]:
        """The counters of clients, from which their next announces count; none if the table has no counters. The
        position after a part is the first column of the key, so the last rows before an interruption come again; all,
        where that is no number."""
        there = (await self.database.tables([table.name]))[table.name]
        columns = {value: there.c[name] for name, value in table.pairs if value in PeerThere._fields}
        key = [there.c[name] for name in table.key]
        has_counters = {"uploaded", "downloaded"} <= columns.keys()
        (row,) = await self.database.rows(select(func.count().label("number")).select_from(there))
        done = Imported("peers", int(row["number"]) if has_counters else 0)
        yield done
        query = select(*columns.values()).limit(_PEERS_PAGE)
        query = query.where(key[0] >= int(position)) if position else query
        query = query if has_counters else query.where(false())
        async for rows in self.database.pages(query, key):
            if not self.dry_run:
                peers = [_peer(row, columns, self.database.zone) for row in rows]
                await self.store.user_history.remember_peers(peers, again=self.again)
                first = rows[-1][key[0].name]
                await self.database.record({_peers_source(table): str(first) if isinstance(first, int) else ""})
            done.rows += len(rows)
            yield done
        if not self.dry_run:
            await self.database.record({_peers_source(table): _END})
        yield done

    async def _pages(
        self, mapping: ImportMapping, position: str
    ) -> AsyncIterator[tuple[Sequence[dict[str, Any]], str]]:
        """The rows after a position, and the position after them."""
        key = [
            literal_column(self.database.quote(name), BigInteger).label(f"key{n}") for n, name in enumerate(mapping.key)
        ]
        values: list[ColumnElement[Any]] = [literal_column(sql).label(name) for name, sql in mapping.values.items()]
        query = _query(mapping, [*key, *values]).limit(_PAGE)
        async for rows in self.database.pages(query, key, map(int, position.split()), self._now):
            yield rows, " ".join(str(int(rows[-1][each.name])) for each in key)
        yield [], _END

    async def _take(self, mapping: ImportMapping, rows: Sequence[dict[str, Any]]) -> list[str]:
        """Imports rows; returns a line for each one that could not be."""
        wanted = [{name: row[name] for name in mapping.values if row[name] is not None} for row in rows]
        names = (" ".join(str(row[f"key{n}"]) for n in range(len(mapping.key))) for row in rows)
        outcomes = [self._check(mapping, row) for row in wanted]
        if not self.dry_run:
            valid = [row for row, reason in zip(wanted, outcomes, strict=True) if not reason]
            written = iter(await self._write(mapping, valid) if valid else ())
            outcomes = [reason or next(written) for reason in outcomes]
        return [f"{mapping.kind} {name}: {reason}" for name, reason in zip(names, outcomes, strict=True) if reason]

    def _check(self, mapping: ImportMapping, row: dict[str, Any]) -> str:
        """Why a row cannot be imported; of a dry run also what only the store says otherwise."""
        reason = self._check_alone(mapping, row)
        if self.dry_run and not reason:
            for kind, name, unknown in (
                ("users", "user_id", UNKNOWN_USER),
                ("torrents", "torrent_id", UNKNOWN_TORRENT),
            ):
                if mapping.kind == kind:
                    self._seen.setdefault(kind, set()).add(str(row.get(name, "")))
                elif mapping.kind in ("history", "tokens") and str(row[name]) not in self._seen.get(kind, ()):
                    return unknown
        return reason

    def _check_alone(self, mapping: ImportMapping, row: dict[str, Any]) -> str:
        """Why a row cannot be imported, as far as it says so itself."""
        try:
            if mapping.kind == "users":
                user_id, passkey, _ = checked_user(_texts(row))
                if passkey and self._passkeys.setdefault(passkey, user_id) != user_id:
                    return "this passkey belongs to another user: give one of them a new one"
            elif mapping.kind == "torrents":
                parse_info_hash(str(row.get("info_hash", "")))
                checked_torrent(_torrent_fields(row))
            elif mapping.kind == "history":
                row |= {name: int(value) for name, value in row.items()}
        except (ClientError, ValueError) as error:
            return str(error)
        return ""

    async def _write(self, mapping: ImportMapping, rows: Sequence[dict[str, Any]]) -> Sequence[str]:
        saved: Sequence[object]
        if mapping.kind == "users":
            return await self._users(rows)
        if mapping.kind == "torrents":
            pairs = [(parse_info_hash(row["info_hash"]), _torrent_fields(row)) for row in rows]
            saved = await self.store.torrents.add_many(pairs)
        elif mapping.kind == "history":
            saved = await self.store.user_history.save([_history(row) for row in rows])
        else:
            ids = {str(row["torrent_id"]) for row in rows} if mapping.kind == "tokens" else ()
            known = {each.torrent_id for each in await self.store.torrents.by_ids(list(ids))} if ids else set()
            return [await self._write_one(mapping, row, known) for row in rows]
        return [each.text if isinstance(each, ClientError) else "" for each in saved]

    async def _users(self, rows: Sequence[dict[str, Any]]) -> list[str]:
        """Those whose totals are recorded were imported before."""
        tables = [table for table in self.mapping.of("users") if table.added]
        sources = {f"{table.name}:{row['user_id']}": row for table in tables for row in rows}
        known = {} if self.again else await self.database.positions(list(sources))
        old = {str(sources[source]["user_id"]) for source in known}
        outcomes: dict[str, str] = {}
        for replaced in (True, False):
            some = [row for row in rows if (str(row["user_id"]) in old) != replaced]
            saved = await self.store.user_import.save([_texts(row) for row in some], replace_totals=replaced)
            for row, each in zip(some, saved, strict=True):
                outcomes[str(row["user_id"])] = "" if isinstance(each, SavedUser) else each.text
        await self.database.record(
            {
                f"{table.name}:{row['user_id']}": " ".join(str(int(row[name])) for name in table.added.values())
                for table in tables
                for row in rows
                if str(row["user_id"]) not in old and not outcomes[str(row["user_id"])]
            }
        )
        return [outcomes[str(row["user_id"])] for row in rows]

    async def _write_one(self, mapping: ImportMapping, row: dict[str, Any], known: Collection[str]) -> str:
        """``known``: the ids of the torrents of tokens that are registered."""
        store = self.store
        try:
            if mapping.kind == "groups":
                fields = {name: value for name, value in _texts(row).items() if name != "id"}
                await store.groups.save(int(row["id"]), fields, replace=True)
            elif mapping.kind == "tokens":
                if str(row["torrent_id"]) not in known:
                    return UNKNOWN_TORRENT
                await store.freeleech.give(str(row["user_id"]), str(row["torrent_id"]))
            elif mapping.kind == "denied_clients":
                await store.deny_list.add(str(row["prefix"]).encode(), str(row.get("reason", "")))
            else:
                await store.allow_list.add(str(row["prefix"]).encode(), str(row.get("name", "")))
        except ClientError as error:
            return error.text
        return ""


def _peer(row: Mapping[str, Any], columns: Mapping[str, Column[Any]], zone: tzinfo) -> PeerThere:
    found = {value: row[column.name] for value, column in columns.items()}
    peer_id, last = found["peer_id"], found.get("last_announce")
    return PeerThere(
        str(found["user_id"]),
        str(found["torrent_id"]),
        peer_id.hex() if isinstance(peer_id, bytes) else str(peer_id).lower(),
        int(found["uploaded"] or 0),
        int(found["downloaded"] or 0),
        int(found.get("left") or 0),
        max(1, epoch(columns["last_announce"], last, zone)) if "last_announce" in found else 1,
        int(found.get("active", 1) not in (0, "no")),
    )


def _peers_source(table: TableMapping) -> str:
    return f"import:{table.name}:peers"


_HISTORY = {
    "seed_time": "seed_seconds",
    "total_time": "total_seconds",
    "first_announce": "first_seen",
    "last_announce": "last_seen",
}
"""Fields of the store by the names that columns have."""


def _history(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {_HISTORY.get(name, name): value for name, value in row.items()}
    found.setdefault("total_seconds", found.get("seed_seconds", 0))
    return found


def _query(mapping: ImportMapping, columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
    query = select(*columns).select_from(text(mapping.source))
    return query.where(text(f"({mapping.where})")) if mapping.where else query


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    """Values as files have them. No rules: the default."""
    found = {
        name: value.decode("utf-8", "replace")
        if isinstance(value, bytes)
        else str(int(value) if isinstance(value, bool | Decimal) else value)
        for name, value in row.items()
    }
    for name in ("upload_multiplier", "download_multiplier"):
        if found.get(name) == "":
            found[name] = "1"
    return found


def _torrent_fields(row: Mapping[str, Any]) -> dict[str, str]:
    return {STORED_NAMES.get(name, name): value for name, value in _texts(row).items() if name != "info_hash"}
