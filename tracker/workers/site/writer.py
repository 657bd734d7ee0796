"""Writes rows into a site's tables.

Replaced columns heal by themselves. What is added to a column is recorded in the same transaction, in the table
``tracker_sync``: how much of a user's totals the site has. So a row that is written twice, by a restarted or by a
second process, adds nothing the second time, and a lost one is made up for by the next.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Select, Table, bindparam, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tracker.store.sharding.shards import in_parts
from tracker.workers.site.columns import Encode, encoder, problems
from tracker.workers.site.database import SiteDatabase, SiteError
from tracker.workers.site.mapping import Constant, SiteMapping, TableMapping, is_value

Row = Mapping[str, Any]
Encoded = dict[str, Any]
"""The columns of a row, in the form that the database has."""
Key = tuple[Any, ...]
_BATCH = 500
"""Rows of one transaction, which hold locks of the site for some milliseconds."""
_MAX_VALUES = 32_767
"""Of one statement, by PostgreSQL's protocol; MySQL has 65,535."""
_MOVED = ("ip", "port", "agent", "connectable")
"""Values that only active peers have."""
_ACTIVE = ("active", "seeding")
OF_ANNOUNCES = ("agent", "client_uploaded", "client_downloaded", "immune")
"""Values of history that only announces have. Without one they stay."""
_MAX_PROBLEMS = 20


@dataclass(slots=True)
class Written:
    rows: int = 0
    problems: list[str] = field(default_factory=list)
    """Rows that could not be written, a line each; the first ones."""
    failed: int = 0
    missing: list[str] = field(default_factory=list)
    """Rows that the site does not have, and to which something is to be added; the first ones."""

    def fail(self, text: str) -> None:
        self.failed += 1
        if len(self.problems) < _MAX_PROBLEMS and text not in self.problems:
            self.problems.append(text)

    def __iadd__(self, other: "Written") -> "Written":
        self.rows += other.rows
        self.failed += other.failed
        self.missing += other.missing[: _MAX_PROBLEMS - len(self.missing)]
        self.problems += other.problems[: _MAX_PROBLEMS - len(self.problems)]
        return self


def shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(shown, value))
    return value.hex() if isinstance(value, bytes) else str(value)


def _constant(value: str | Constant) -> str | Constant:
    return value[1:] if isinstance(value, str) else value


class TableWriter:
    """One table of ``tables``, which have their columns as they are."""

    def __init__(self, database: SiteDatabase, mapping: TableMapping, tables: Mapping[str, Table]) -> None:
        self.mapping = mapping
        self._database = database
        self.table = table = tables[mapping.name]
        self._torrents = tables.get(mapping.balance.get("table", ""))
        self._encoders: dict[str, tuple[str, Encode]] = {
            column: (value, encoder(table.c[column], value, database.zone))
            for column, value in mapping.pairs
            if column not in mapping.added
        }
        self._constants = {
            name: _constant(value)
            for name, value in (*mapping.replaced.items(), *mapping.once.items())
            if not is_value(value)
        }
        changed = {**mapping.replaced, **mapping.lowered}
        self._changed = list(changed)
        self._left = [name for name, value in changed.items() if value not in _MOVED]
        self._lasting = [name for name, value in changed.items() if value not in OF_ANNOUNCES]
        self._unseeded = [name for name, value in changed.items() if value != "last_seeded"]
        encode = {name: each for name, (_, each) in self._encoders.items()}
        self._gone = {
            name: _constant(value) if isinstance(value, str) else encode.get(name, _constant)(value)
            for name, value in mapping.gone.items()
        }
        self.activity = next((name for name, value in mapping.replaced.items() if value == "active"), "")
        """The column that says whether a row is active; empty: none."""
        flags = [name for name, value in mapping.replaced.items() if value in _ACTIVE]
        self._ended = {**{name: encode[name](False) for name in flags}, **self._gone}
        self._batch = max(1, min(_BATCH, _MAX_VALUES // len(mapping.columns)))

    async def write(self, rows: Sequence[Row]) -> Written:
        """Writes the rows, in batches. A row that does not fit is left out, and named. Raises SiteError."""
        done = Written()
        encoded = self.encode_all(rows, done)
        encoded.sort(key=lambda pair: self.key_of(pair[1]))  # locks in one order
        for some in in_parts(encoded, self._batch):
            done += await self._write(some)
        return done

    def encode_all(self, rows: Iterable[Row], done: Written) -> list[tuple[Row, Encoded]]:
        """The rows that fit, with their columns."""
        found: list[tuple[Row, Encoded]] = []
        for row in rows:
            if self.mapping.only and not row.get(self.mapping.only):
                continue
            try:
                values = {name: encode(row.get(value)) for name, (value, encode) in self._encoders.items()}
            except ValueError as error:
                done.fail(f"{self.name_of(row)}: {error}")
            else:
                found.append((row, {**values, **self._constants}))
        return found

    def key_of(self, encoded: Mapping[str, Any]) -> Key:
        return tuple(encoded[name] for name in self.mapping.key)

    def name_of(self, row: Row) -> str:
        return f"{self.mapping.name} {shown(tuple(row[value] for value in self.mapping.key.values()))}"

    async def end(self, keys: Sequence[Key]) -> None:
        """These rows of the site are active no longer. Raises SiteError."""
        ended = [{**dict(zip(self.mapping.key, key, strict=True)), **self._ended} for key in sorted(keys)]
        for some in in_parts(ended, self._batch):
            await self._database.transaction(partial(self._update, rows=some, columns=list(self._ended)))

    async def _write(self, batch: Sequence[tuple[Row, Encoded]]) -> Written:
        """Rows that a database refuses are found by halves."""
        try:
            return await self._database.transaction(lambda connection: self._write_in(connection, batch))
        except SiteError as error:
            if not error.of_row:
                raise
            if len(batch) == 1:
                done = Written()
                done.fail(f"{self.name_of(batch[0][0])}: {error}")
                return done
        half = len(batch) // 2
        done = await self._write(batch[:half])
        done += await self._write(batch[half:])
        return done

    async def _write_in(self, connection: AsyncConnection, batch: Sequence[tuple[Row, Encoded]]) -> Written:
        done = Written(rows=len(batch))
        if self.mapping.added:
            await self._add(connection, batch, done)
        if self.mapping.insert:
            is_peer = self.mapping.rows == "peers"
            here = [each for each in batch if not is_peer or each[0]["active"]]
            gone = [(row, {**each, **self._gone}) for row, each in batch if is_peer and not row["active"]]
            if self.mapping.balance:
                await self._add_balance(connection, [each for _, each in batch])
            announced = [each for row, each in here if row.get("announced", True)]
            await self._upsert(connection, announced, self._changed)
            others = [each for row, each in here if not row.get("announced", True)]
            await self._upsert(connection, others, self._lasting)
            await self._upsert(connection, [each for row, each in gone if row["ip"]], self._left)
            await self._update(connection, [each for row, each in gone if not row["ip"]], self._left)
        elif self.mapping.replaced:
            await self._update(connection, [each for row, each in batch if row.get("seeders")], self._changed)
            await self._update(connection, [each for row, each in batch if not row.get("seeders")], self._unseeded)
        return done

    async def _upsert(self, connection: AsyncConnection, rows: Sequence[Encoded], changed: Sequence[str]) -> None:
        if not changed or not self.mapping.unique:  # such a table needs no unique key
            known = await self._known(connection, [self.key_of(row) for row in rows])
            await self._update(connection, [row for row in rows if self.key_of(row) in known], changed)
            rows = [row for row in rows if self.key_of(row) not in known]
            if rows:
                await connection.execute(insert(self.table), rows)
        elif rows:
            lowered = self.mapping.lowered
            statement = self._database.upsert(self.table, list(self.mapping.key), changed, lowered)
            await connection.execute(statement, rows)

    async def _add_balance(self, connection: AsyncConnection, rows: Sequence[Encoded]) -> None:
        """Adds to each torrent by how much these rows change its users' upload less their download. Of peers, what a
        new row or counters that began anew have does not count."""
        where, value_of = self.mapping.balance, {value: name for name, value in self.mapping.pairs}
        up, down, torrent = (value_of[name] for name in ("uploaded", "downloaded", "torrent_id"))
        keys = [self.key_of(row) for row in rows]
        if not keys:
            return
        query = self.select(keys, [*self.mapping.key, up, down]).with_for_update()
        found = (await connection.execute(query)).mappings()
        held = {self.key_of(row): (int(row[up]), int(row[down])) for row in found}
        grown = defaultdict[Any, int](int)
        for row in rows:
            old = held.get(self.key_of(row))
            if self.mapping.rows == "peers" and (old is None or row[up] < old[0] or row[down] < old[1]):
                continue
            grown[row[torrent]] += row[up] - row[down] - (old[0] - old[1] if old else 0)
        deltas = [{where["key"]: id, where["column"]: by} for id, by in sorted(grown.items()) if by]
        assert self._torrents is not None
        columns = [where["column"]]
        await update_rows(self._database, connection, self._torrents, [where["key"]], deltas, columns, adding=True)

    async def _known(self, connection: AsyncConnection, keys: Sequence[Key]) -> set[Key]:
        if not keys:
            return set()
        found = await connection.execute(self.select(keys, self.mapping.key))
        return {tuple(row) for row in found}

    def select(self, keys: Sequence[Key], columns: Iterable[str]) -> Select[Any]:
        """Reads columns of the rows with these keys."""
        named = [self.table.c[name] for name in self.mapping.key]
        query = select(*(self.table.c[name] for name in columns)).where(named[0].in_({key[0] for key in keys}))
        return query.where(tuple_(*named).in_(keys)) if len(named) > 1 else query

    async def _update(
        self, connection: AsyncConnection, rows: Sequence[Encoded], columns: Sequence[str], *, adding: bool = False
    ) -> None:
        keys = list(self.mapping.key)
        await update_rows(self._database, connection, self.table, keys, rows, columns, adding=adding)

    async def _add(self, connection: AsyncConnection, batch: Sequence[tuple[Row, Encoded]], done: Written) -> None:
        """Adds what our totals are beyond the recorded ones, and records ours. What the site has no row for is kept
        for later. A total of ours that is lower than the recorded one adds nothing until it has caught up: a
        store that was restored from a backup counts some bytes again."""
        existing = await self._known(connection, [self.key_of(each) for _, each in batch])
        absent = [self.name_of(row) for row, each in batch if self.key_of(each) not in existing]
        done.missing += absent[:_MAX_PROBLEMS]
        ours = {self.source_of(row): (row, each) for row, each in batch if self.key_of(each) in existing}
        recorded = await _locked_positions(connection, self._database, list(ours), len(self.mapping.added))
        grown: list[Encoded] = []
        positions: dict[str, str] = {}
        for source, (row, encoded) in ours.items():
            totals = [row[name] for name in self.mapping.added.values()]
            deltas = [max(0, new - old) for new, old in zip(totals, recorded[source], strict=True)]
            if any(deltas):
                grown.append(encoded | dict(zip(self.mapping.added, deltas, strict=True)))
                positions[source] = " ".join(map(str, map(max, totals, recorded[source])))
        await self._update(connection, grown, list(self.mapping.added), adding=True)
        await self._database.write_positions(connection, positions)

    def source_of(self, row: Row) -> str:
        """The name under which what the site has of a user's totals is recorded."""
        return ":".join((self.mapping.name, *(str(row[value]) for value in self.mapping.key.values())))

    async def recorded(self, rows: Iterable[Row]) -> dict[str, list[int]]:
        """What is recorded of these rows, by source. Raises SiteError."""
        sources = [self.source_of(row) for row in rows] if self.mapping.added else []
        if not sources:
            return {}
        found = await self._database.positions(sources)
        return {source: [int(each) for each in text.split()] for source, text in found.items()}


async def update_rows(
    database: SiteDatabase,
    connection: AsyncConnection,
    table: Table,
    keys: Sequence[str],
    rows: Sequence[Encoded],
    columns: Sequence[str],
    *,
    adding: bool,
) -> None:
    """Sets, or adds to, these columns of rows that exist, in one statement."""
    if not rows or not columns:
        return
    if database.is_postgresql:  # a statement for each row, which its driver sends together
        same_row = [table.c[name] == bindparam(f"key_{name}", type_=table.c[name].type) for name in keys]
        new = {name: bindparam(f"new_{name}", type_=table.c[name].type) for name in columns}
        changes = {name: table.c[name] + each if adding else each for name, each in new.items()}
        values_of_rows = [
            {f"key_{name}": row[name] for name in keys} | {f"new_{name}": row[name] for name in columns} for row in rows
        ]
        await connection.execute(update(table).where(*same_row).values(changes), values_of_rows)
        return
    quote, own, names = database.quote, database.quote(table.name), [*keys, *columns]
    first = "SELECT " + ", ".join(f"%s AS {quote(name)}" for name in names)
    other = "SELECT " + ", ".join(["%s"] * len(names))
    news = " UNION ALL ".join([first, *[other] * (len(rows) - 1)])
    same = " AND ".join(f"{own}.{quote(name)} = news.{quote(name)}" for name in keys)
    changed = ", ".join(
        f"{own}.{quote(name)} = " + (f"{own}.{quote(name)} + " if adding else "") + f"news.{quote(name)}"
        for name in columns
    )
    statement = f"UPDATE {own} JOIN ({news}) AS news ON {same} SET {changed}"  # noqa: S608 - names, quoted
    await connection.exec_driver_sql(statement, tuple(row[name] for row in rows for name in names))


async def _locked_positions(
    connection: AsyncConnection, database: SiteDatabase, sources: Sequence[str], length: int
) -> dict[str, list[int]]:
    """What is recorded of these, locked until the end of the transaction. New ones are recorded as zeros first, so
    that a second process waits for them too."""
    found = await database.read_positions(connection, sources, lock=True)
    if missing := [source for source in sources if source not in found]:
        zeros = " ".join(["0"] * length)
        await database.write_positions(connection, dict.fromkeys(missing, zeros), replace=False)
        found |= await database.read_positions(connection, missing, lock=True)
    return {source: [int(each) for each in text.split()] for source, text in found.items()}


async def open_writers(database: SiteDatabase, mapping: SiteMapping) -> list[TableWriter]:
    """Those of all tables of a mapping. Makes the table of positions. Raises SiteError with all that is wrong with the
    site's tables."""
    tables = await database.tables(mapping.names)
    if wrong := problems(mapping, tables):
        raise SiteError("; ".join(wrong))
    await database.make_sync_table()
    return [TableWriter(database, each, tables) for each in mapping.tables if each.name in tables]
