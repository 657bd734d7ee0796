"""Compares a site's tables with the store, row by row, and repairs them."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Integer, cast, select

from tracker.store.sharding.shards import in_parts
from tracker.workers.site.database import SiteDatabase
from tracker.workers.site.mapping import is_value
from tracker.workers.site.rows import Named, RowReader
from tracker.workers.site.writer import OF_ANNOUNCES, Encoded, Key, Row, TableWriter, Written

_NAMED = 20
"""Differing rows of a table that are named."""
_PAGE = 1000
_UNCOMPARED = frozenset({"now", "last_seeded", "last_announce", "connectable", *OF_ANNOUNCES})
"""Values that change without a change in the feed, or that the site may have from another tracker."""


@dataclass(slots=True)
class Compared:
    """One table, as far as it was compared."""

    table: str
    rows: int = 0
    missing: int = 0
    """Rows that the site does not have."""
    differing: int = 0
    stale: int = 0
    """Rows that are active at the site and not in the store."""
    named: list[str] = field(default_factory=list)
    """The first differing rows: ours, and the site's."""
    sums: dict[str, list[int]] = field(default_factory=dict)
    """Of each column of numbers, over the rows that both have: ours, and the site's."""

    @property
    def differences(self) -> int:
        return self.missing + self.differing + self.stale

    def name(self, text: str) -> None:
        if len(self.named) < _NAMED:
            self.named.append(text)

    def add(self, column: str, ours: object, sites: object) -> None:
        both = self.sums.setdefault(column, [0, 0])
        for place, value in enumerate((ours, sites)):
            if isinstance(value, int):
                both[place] += value


class Comparison:
    """Of all tables. With ``repair``, what differs is written."""

    def __init__(
        self, database: SiteDatabase, reader: RowReader, writers: Sequence[TableWriter], *, repair: bool
    ) -> None:
        self.tables = {writer: Compared(writer.mapping.name) for writer in writers}
        self.written = Written()
        self._database = database
        self._reader = reader
        self._repair = repair
        self._active: dict[TableWriter, set[Key]] = {writer: set() for writer in writers}

    @property
    def differences(self) -> int:
        return sum(each.differences for each in self.tables.values())

    async def run(self) -> AsyncGenerator[int, None]:
        """Yields the number of compared rows after each part. Raises SiteError, StoreUnavailable and RedisError."""
        async for named in self._reader.all():
            yield await self._compare(named)
        for writer in self.tables:
            if writer.activity:
                async for keys in self._active_at_site(writer):
                    yield await self._end(writer, keys)

    async def _compare(self, named: Named) -> int:
        found, count = await self._reader.read(named, whole=True), 0
        for writer, compared in self.tables.items():
            for some in in_parts(found[writer.mapping.rows], _PAGE):
                wrong = await self._differing(writer, compared, some)
                if self._repair and wrong:
                    self.written += await writer.write(wrong)
                count += len(some)
        return count

    async def _differing(self, writer: TableWriter, compared: Compared, rows: Sequence[Row]) -> list[Row]:
        pairs = writer.encode_all(rows, self.written)
        keys = [writer.key_of(encoded) for _, encoded in pairs]
        found = await self._database.rows(writer.select(keys, writer.mapping.columns)) if keys else ()
        theirs = {writer.key_of(row): row for row in found}
        recorded = await writer.recorded(row for row, _ in pairs)
        wrong: list[Row] = []
        for row, encoded in pairs:
            key = writer.key_of(encoded)
            compared.rows += 1
            if row.get("active"):
                self._active[writer].add(key)
            if key in theirs:
                texts = list(_differences(writer, compared, encoded, theirs[key]))
                texts += _unadded(writer, compared, row, theirs[key], recorded.get(writer.source_of(row)))
                compared.differing += bool(texts)
            else:
                expected = row.get("active", True) or (writer.mapping.rows == "history" and writer.mapping.insert)
                texts = ["missing at the site"] if expected else []
                compared.missing += bool(texts)
            if texts:
                compared.name(f"{writer.name_of(row)}: {'; '.join(texts)}")
                wrong.append(row)
        return wrong

    async def _active_at_site(self, writer: TableWriter) -> AsyncIterator[list[Key]]:
        """The keys of all active rows of the site that the store does not have as such, in parts."""
        columns = writer.table.c
        named = [columns[name] for name in writer.mapping.key]
        is_active = (
            cast(columns[writer.activity], Integer) != 0
            if self._database.is_postgresql
            else columns[writer.activity] != 0
        )
        async for rows in self._database.pages(select(*named).where(is_active).limit(_PAGE), named):
            yield [key for row in rows if (key := writer.key_of(row)) not in self._active[writer]]

    async def _end(self, writer: TableWriter, keys: Sequence[Key]) -> int:
        """Some may have become active since the store was read: what it has of them now is written."""
        still = await self._reader.still_active(writer, keys)
        compared, ended = self.tables[writer], [key for key in keys if key not in still]
        compared.stale += len(ended)
        for key in ended:
            compared.name(f"{writer.mapping.name} {_shown(key)}: active at the site only")
        if self._repair and ended:
            await writer.end(ended)
            self.written.rows += len(ended)
        return len(keys)


def _differences(writer: TableWriter, compared: Compared, encoded: Encoded, theirs: Mapping[str, Any]) -> Iterator[str]:
    for name, value in writer.mapping.replaced.items():
        if value in _UNCOMPARED or not is_value(value):
            continue
        ours, sites = encoded[name], theirs[name]
        if isinstance(ours, int | str) and sites is not None:
            sites = type(ours)(sites)
        compared.add(name, ours, sites)
        if ours != sites:
            yield f"{name} {_shown(ours)}, at the site {_shown(sites)}"


def _unadded(
    writer: TableWriter, compared: Compared, row: Row, theirs: Mapping[str, Any], recorded: list[int] | None
) -> Iterator[str]:
    """Of columns that the site changes too, what the tracker has not added yet counts."""
    for place, (name, value) in enumerate(writer.mapping.added.items()):
        compared.add(name, row[value], int(theirs[name] or 0))
        missing = row[value] - (recorded[place] if recorded else 0)
        if missing > 0:
            yield f"{name}: {missing} not added yet"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_shown, value))
    return value.hex() if isinstance(value, bytes) else str(value)
