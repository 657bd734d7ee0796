"""A site's database: connections, transactions that are retried, and the columns that its tables have."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from sqlalchemy import Column, ColumnElement, MetaData, Select, String, Table, func, inspect, select, text, tuple_
from sqlalchemy.dialects.mysql import insert as mysql_insert
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DataError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tracker.errors import StartupError
from tracker.system.logger import Logger

SYNC_TABLE = "tracker_sync"
_DRIVERS = {
    "mysql": "mysql+asyncmy",
    "mariadb": "mariadb+asyncmy",
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
}
_RETRIED = frozenset({1205, 1213, "40001", "40P01", "55P03"})
"""Lock timeouts, deadlocks and serialization failures of MySQL and of PostgreSQL."""
_DENIED = frozenset({1044, 1142, 1143, "42501"})
_READ_ONLY = frozenset({1290, 1792, 1836, "25006"})
_OF_ROW = frozenset({1265, 1364, 1366})
_TRIES, _FIRST_PAUSE_SECONDS = 5, 0.05
_CONNECT_SECONDS, _STATEMENT_SECONDS = 10, 60
_CLOCK_SECONDS = 5
_QUOTED = re.compile(r"(?<![A-Za-z]{2})'[^']*'")
"""A value in a text of the database; not from the apostrophe of a word such as "Can't" on."""
_MAX_PORT = 65_535
_Result = TypeVar("_Result")

log = Logger("tracker.site")


class SiteError(Exception):
    """The site's database cannot be used as it is. The text is one line for the operator, without secrets."""

    def __init__(self, text: str, *, of_row: bool = False) -> None:
        super().__init__(text)
        self.of_row = of_row
        """Whether other rows may still be written."""


class SiteDatabase:
    """Opened with ``async with``. ``zone``: of dates without one. Every method raises SiteError."""

    def __init__(self, url: str, zone: str = "UTC") -> None:
        self.engine = _engine(url)
        self.zone = ZoneInfo(zone)
        self.is_postgresql = self.engine.dialect.name == "postgresql"
        """Else it is MySQL or MariaDB, which differ in nothing here."""
        source = Column("source", String(64), primary_key=True)
        self.sync_table = Table(SYNC_TABLE, MetaData(), source, Column("position", String(255), nullable=False))

    async def __aenter__(self) -> "SiteDatabase":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.engine.dispose()

    def quote(self, name: str) -> str:
        """The name of a table or a column, for a statement."""
        return self.engine.dialect.identifier_preparer.quote_identifier(name)

    def upsert(self, table: Table, key: Sequence[str], changed: Sequence[str], lowered: Collection[str] = ()) -> Any:
        """A statement that inserts rows, and replaces the ``changed`` columns of those that exist. Of these the
        ``lowered`` ones keep a value that is less."""
        insert: Any = (postgresql_insert if self.is_postgresql else mysql_insert)(table)
        new = insert.excluded if self.is_postgresql else insert.inserted
        values = {name: func.least(table.c[name], new[name]) if name in lowered else new[name] for name in changed}
        if not self.is_postgresql:
            return insert.on_duplicate_key_update(values or {name: table.c[name] for name in key[:1]})
        if values:
            return insert.on_conflict_do_update(index_elements=list(key), set_=values)
        return insert.on_conflict_do_nothing(index_elements=list(key))

    async def _use_zone(self, connection: AsyncConnection, now: float, zone: tzinfo) -> None:
        if not self.is_postgresql:
            offset = datetime.fromtimestamp(now, zone).strftime("%z")
            await connection.execute(text(f"SET time_zone = '{offset[:3]}:{offset[3:]}'"))

    async def transaction(self, work: Callable[[AsyncConnection], Awaitable[_Result]]) -> _Result:
        """What ``work`` returns. It runs again after a deadlock or a lock timeout."""
        for attempt in range(1, _TRIES + 1):
            try:
                async with asyncio.timeout(_STATEMENT_SECONDS), self.engine.begin() as connection:
                    return await work(connection)
            except (SQLAlchemyError, OSError) as error:
                if attempt == _TRIES or _code(error) not in _RETRIED:
                    raise site_error(error) from error
            await asyncio.sleep(_FIRST_PAUSE_SECONDS * 2**attempt)
        raise AssertionError

    async def _execute(self, statement: str) -> Sequence[Any]:
        """The rows that a statement returns, in a transaction of its own."""

        async def execute(connection: AsyncConnection) -> Sequence[Any]:
            found = await connection.execute(text(statement))
            return found.all() if found.returns_rows else ()

        return await self.transaction(execute)

    async def read_positions(
        self, connection: AsyncConnection, sources: Iterable[str], *, lock: bool = False
    ) -> dict[str, str]:
        table = self.sync_table
        query = select(table.c.source, table.c.position).where(table.c.source.in_(sorted(sources)))
        query = query.order_by(table.c.source)
        rows = await connection.execute(query.with_for_update() if lock else query)
        return {row.source: row.position for row in rows}

    async def write_positions(
        self, connection: AsyncConnection, positions: Mapping[str, str], *, replace: bool = True
    ) -> None:
        if positions:
            rows = [{"source": source, "position": positions[source]} for source in sorted(positions)]
            await connection.execute(self.upsert(self.sync_table, ["source"], ["position"] if replace else []), rows)

    async def positions(self, sources: Iterable[str]) -> dict[str, str]:
        """Those of a transaction of its own."""
        return await self.transaction(lambda connection: self.read_positions(connection, sources))

    async def record(self, positions: Mapping[str, str]) -> None:
        """Writes positions in a transaction of its own."""
        await self.transaction(lambda connection: self.write_positions(connection, positions))

    async def tables(self, names: Sequence[str]) -> Mapping[str, Table]:
        """The tables of these names that exist, with their columns."""

        def read(connection: Any) -> Mapping[str, Table]:
            existing = set(inspect(connection).get_table_names())
            metadata = MetaData()
            metadata.reflect(connection, only=[name for name in names if name in existing], resolve_fks=False)
            return dict(metadata.tables)

        return await self.transaction(lambda connection: connection.run_sync(read))

    async def rows(self, query: Select[Any], now: float | None = None) -> Sequence[dict[str, Any]]:
        """With ``now`` (epoch s), expressions of SQL read dates without a zone as the site wrote them."""

        async def read(connection: AsyncConnection) -> Sequence[dict[str, Any]]:
            if now is not None:
                await self._use_zone(connection, now, self.zone)
            found = [dict(row) for row in (await connection.execute(query)).mappings()]
            if now is not None:
                await self._use_zone(connection, now, UTC)
            return found

        return await self.transaction(read)

    async def pages(
        self, query: Select[Any], key: Sequence[ColumnElement[Any]], after: Iterable[Any] = (), now: float | None = None
    ) -> AsyncIterator[Sequence[dict[str, Any]]]:
        """The rows of a query with a limit, in the order of its columns ``key``, as many at a time as the limit says.
        ``now`` as in rows()."""
        query, last = query.order_by(*key), tuple(after)
        # The first condition finds the place.
        while rows := await self.rows(query.where(key[0] >= last[0], tuple_(*key) > last) if last else query, now):
            last = tuple(rows[-1][each.name] for each in key)
            yield rows

    async def missing_rights(self, wanted: Mapping[str, Sequence[str]]) -> list[str]:
        """Tries each right on no row of the tables that exist."""
        found: list[str] = []
        existing = await self.tables(list(wanted))
        for name, rights in wanted.items():
            if name not in existing:
                continue
            column = self.quote(next(iter(existing[name].columns)).name)
            table = self.quote(name)
            statements = {
                "SELECT": f"SELECT {column} FROM {table} WHERE 1 = 0",  # noqa: S608 - names, quoted
                "UPDATE": f"UPDATE {table} SET {column} = {column} WHERE 1 = 0",  # noqa: S608
                "INSERT": f"INSERT INTO {table} ({column}) SELECT {column} FROM {table} WHERE 1 = 0",  # noqa: S608
            }
            for right in rights:
                try:
                    await self._execute(statements[right])
                except SiteError as error:
                    if not error.of_row:  # else it was allowed
                        found.append(f"{right} on {name}: {error}")
        return found

    async def clock_problems(self, now: float) -> list[str]:
        """The database's clock and time zone beside ours (epoch s)."""
        query = (
            "SELECT extract(epoch FROM now()), current_setting('TimeZone')"
            if self.is_postgresql
            else "SELECT UNIX_TIMESTAMP(), TIMEDIFF(NOW(), UTC_TIMESTAMP()), @@global.time_zone, @@system_time_zone"
        )
        (row,) = await self._execute(query)
        found: list[str] = []
        if abs(float(row[0]) - now) > _CLOCK_SECONDS:
            found.append(f"the clock of the database is {float(row[0]) - now:+.0f} s off: run NTP on both machines")
        if not self.is_postgresql:
            zone = str(row[3] if row[2] == "SYSTEM" else row[2])
            if zone not in ("UTC", "+00:00", "Etc/UTC", "GMT"):
                what = f"the time zone of the database is {zone}, and the tracker writes times in UTC"
                found.append(f"{what}: set default_time_zone = '+00:00'")
        return found

    async def make_sync_table(self) -> None:
        """Makes the table of positions, unless it exists."""
        if SYNC_TABLE in await self.tables([SYNC_TABLE]):
            return
        columns = "source VARCHAR(64) NOT NULL PRIMARY KEY, position VARCHAR(255) NOT NULL"
        statement = f"CREATE TABLE {SYNC_TABLE} ({columns})" + (
            "" if self.is_postgresql else " ENGINE=InnoDB CHARACTER SET ascii COLLATE ascii_bin"
        )
        try:
            await self._execute(statement)
        except SiteError as error:
            raise SiteError(f"{error}; or make the table {SYNC_TABLE} yourself: {statement}") from error


def _engine(url: str) -> AsyncEngine:
    try:
        parsed = make_url(url)
        parsed = parsed.set(drivername=_DRIVERS[parsed.drivername])
        if (parsed.port or 0) > _MAX_PORT:
            raise ArgumentError("port")
    except (ArgumentError, KeyError, ValueError) as error:  # the URL may contain a password
        raise StartupError(
            "TRACKER_SITE__DATABASE is a URL: mysql://user:password@host/database, or postgresql://…"
        ) from error
    is_postgresql = parsed.drivername.startswith("postgresql")
    arguments: dict[str, Any] = (
        {"timeout": _CONNECT_SECONDS, "server_settings": {"TimeZone": "UTC"}}
        if is_postgresql
        else {"connect_timeout": _CONNECT_SECONDS, "charset": "utf8mb4", "init_command": "SET time_zone = '+00:00'"}
    )
    return create_async_engine(
        parsed,
        connect_args=arguments,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        pool_size=1,
        max_overflow=1,
    )


def _code(error: BaseException) -> int | str | None:
    """The number of an error of MySQL, or the SQLSTATE of one of PostgreSQL."""
    original = getattr(error, "orig", None) or error
    first = original.args[0] if original.args else None
    return first if isinstance(first, int) else getattr(original, "sqlstate", None)


def site_error(error: Exception) -> SiteError:
    """The error with what to do about it. Values in the text of the database are left out."""
    code, original = _code(error), getattr(error, "orig", None) or error
    reason = _QUOTED.sub("…", str(original.args[-1] if original.args else type(original).__name__))
    reason = reason.splitlines()[0][:200] if reason else type(original).__name__
    if code in _DENIED:
        return SiteError(f"the account has too few rights: {reason}; docs/sync.md has the GRANT lines")
    if code in _READ_ONLY:
        return SiteError(f"the database is read-only ({reason}): name the primary in TRACKER_SITE__DATABASE")
    if code in _RETRIED:
        return SiteError(f"rows of the site stay locked ({reason}): look for a long transaction of the site")
    state = str(getattr(original, "sqlstate", None) or "")
    if isinstance(error, IntegrityError | DataError) or state[:2] in ("22", "23") or code in _OF_ROW:
        return SiteError(f"a row does not fit: {reason}", of_row=True)
    if isinstance(error, OperationalError | OSError):
        return SiteError(f"the site's database is unavailable ({reason})")
    return SiteError(f"the site's database refused a statement: {reason}")
