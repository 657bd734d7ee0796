"""Mapping files: which tables and columns of a site's database hold which values of the store.

A file is TOML; ``presets/`` has those of known programs.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

from tracker.errors import StartupError

Rows = Literal["users", "torrents", "history", "peers", "unregistered"]
Constant = int | bool
PRESETS = Path(__file__).parent / "presets"
_TIMES = frozenset({"now", "last_seeded", "completed_at", "first_announce", "last_announce"})
_ON_TORRENT = (
    *("user_id", "torrent_id", "uploaded", "downloaded", "left", "active", "seeding", "agent", "total_time"),
    *("first_announce", "last_announce"),
)
VALUES: Mapping[str, tuple[str, ...]] = {
    "users": ("user_id", "uploaded", "downloaded", "snatches"),
    "torrents": ("torrent_id", "info_hash", "seeders", "leechers", "snatches", "now", "last_seeded"),
    "history": (
        *_ON_TORRENT,
        *("credited_uploaded", "credited_downloaded", "uncredited_downloaded", "client_uploaded", "client_downloaded"),
        *("seed_time", "leech_time", "completed_at", "complete", "peers", "immune"),
    ),
    "peers": (*_ON_TORRENT, "peer_id", "ip", "ipv4", "ipv6", "port", "connectable", "speed_up", "speed_dn"),
    "unregistered": ("user_id", "info_hash", "first_announce"),
}
"""What a column may hold, by the kind of rows."""
_KEYS: Mapping[str, tuple[str, ...]] = {
    "users": ("user_id",),
    "torrents": ("torrent_id",),
    "history": ("user_id", "torrent_id"),
    "peers": ("user_id", "torrent_id", "peer_id"),
    "unregistered": ("user_id", "info_hash"),
}
_ADDED = {"users": ("uploaded", "downloaded", "snatches"), "history": ("uncredited_downloaded",)}
"""Values that may be added: they only grow."""


@dataclass(frozen=True, slots=True)
class TableMapping:
    """One table. Each mapping has the columns with our values; ``metadata`` has the name that files use."""

    rows: Rows
    name: str
    key: Mapping[str, str]
    replaced: Mapping[str, str | Constant] = field(default_factory=dict, metadata={"name": "set"})
    """Columns that are replaced, by values of ours or constants."""
    added: Mapping[str, str] = field(default_factory=dict, metadata={"name": "add"})
    """Columns to which what our value has grown is added. The site may change them itself."""
    once: Mapping[str, str | Constant] = field(default_factory=dict)
    """Columns that only new rows get, with a value of ours or a constant: a number, or a text after ``=``."""
    insert: bool = False
    """Whether missing rows are made; else the site makes them."""
    only: str = ""
    """A value of ours without which a row is left out."""
    lowered: Mapping[str, str] = field(default_factory=dict, metadata={"name": "least"})
    """Columns that keep their value where it is less than ours."""
    unique: bool = True
    """Whether the table has a unique key on ``key``. Without one, rows are looked up before they are written."""
    optional: bool = False
    """Whether a site may do without this table."""
    balance: Mapping[str, str] = field(default_factory=dict)
    """``table``, ``key`` and ``column`` of the torrents to which is added what their users upload beyond what they
    download, by rows of history or of peers."""
    gone: Mapping[str, str | Constant] = field(default_factory=dict)
    """The constants that columns of ``replaced`` hold in rows of peers that have left."""

    @property
    def columns(self) -> list[str]:
        return [*self.key, *self.replaced, *self.lowered, *self.added, *self.once]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Columns with a value of ours."""
        parts = (self.key, self.replaced, self.lowered, self.added, self.once)
        return [(name, value) for part in parts for name, value in part.items() if is_value(value)]

    @property
    def values(self) -> set[str]:
        return {value for _, value in self.pairs} | ({self.only} if self.only else set())


ImportKind = Literal["groups", "users", "torrents", "history", "tokens", "denied_clients", "allowed_clients"]
"""In the order of the import."""


@dataclass(frozen=True, slots=True)
class ImportMapping:
    """What ``tracker sync import`` reads from a table. ``values``: ours, each an expression of SQL."""

    kind: ImportKind
    source: str
    """The table, or a join, after FROM."""
    key: tuple[str, ...]
    """Columns of whole numbers by which rows are read in order."""
    values: Mapping[str, str]
    where: str


@dataclass(frozen=True, slots=True)
class SiteMapping:
    name: str
    tables: tuple[TableMapping, ...]
    imports: tuple[ImportMapping, ...]
    slots: Literal["refusal", "warning"] = "refusal"
    """How the site's former tracker answers downloads beyond a user's slots; ``warning``: also without peers."""

    @property
    def rights(self) -> dict[str, tuple[str, ...]]:
        """What the account must be allowed to do with each table."""
        found: dict[str, tuple[str, ...]] = {table.name: ("SELECT", "UPDATE") for table in self.tables}
        found |= {table.name: ("SELECT", "INSERT", "UPDATE") for table in self.tables if table.insert}
        return found

    @property
    def names(self) -> list[str]:
        """Of all tables that are written."""
        return list(dict.fromkeys(each.name for each in self.tables))

    def of(self, rows: Rows) -> list[TableMapping]:
        return [table for table in self.tables if table.rows == rows]


def check_libraries() -> None:
    """Raises StartupError without the libraries of the extra ``site``, which modules of this folder import."""
    if not all(map(find_spec, ("sqlalchemy", "asyncmy", "asyncpg"))):
        raise StartupError("site sync needs further libraries: pip install 'swarmkeeper[site]'")


def is_value(value: str | Constant) -> TypeGuard[str]:
    """Whether it is the name of a value of ours, and not a constant."""
    return isinstance(value, str) and not value.startswith("=")


def is_time(value: str) -> bool:
    """Whether a value of ours is a time (epoch s)."""
    return value in _TIMES


def load_mapping(name: str) -> SiteMapping:
    """A preset by its name, or a file by its path. Raises StartupError with what is wrong."""
    preset = PRESETS / f"{name}.toml"
    path = preset if "/" not in name and preset.exists() else Path(name)
    try:
        return read_mapping(name, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(each.stem for each in PRESETS.glob("*.toml")))
        raise StartupError(f"the mapping {name} cannot be read ({error}); presets: {known}") from error


def read_mapping(name: str, text: str) -> SiteMapping:
    """Raises StartupError."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StartupError(f"the mapping {name} is no valid TOML: {error}") from error
    try:
        tables = found.pop("table")
        imports, slots = found.pop("import", {}), found.pop("slots", "refusal")
        if found or slots not in ("refusal", "warning"):
            raise _Wrong(f"unknown: {', '.join(found) or slots}")
        return SiteMapping(name, tuple(map(_table, tables)), _imports(imports), slots)
    except (_Wrong, KeyError, TypeError, AttributeError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise StartupError(f"the mapping {name}: {reason}") from error


class _Wrong(Exception):
    pass


def _table(found: dict[str, Any]) -> TableMapping:
    rows, name, key = found["rows"], found["name"], found["key"]
    names = {each.metadata.get("name", each.name): each.name for each in fields(TableMapping)}
    if unknown := found.keys() - names:
        raise _Wrong(f"table {name}: unknown: {', '.join(sorted(unknown))}")
    if rows not in get_args(Rows):
        raise _Wrong(f"table {name}: rows is one of {', '.join(get_args(Rows))}")
    if sorted(key.values()) != sorted(_KEYS[rows]):
        raise _Wrong(f"table {name}: the key has a column for each of {', '.join(_KEYS[rows])}")
    table = TableMapping(**{names[each]: value for each, value in found.items()})
    _check_values(table)
    return table


def _imports(found: dict[str, dict[str, Any]]) -> tuple[ImportMapping, ...]:
    kinds = get_args(ImportKind)
    if unknown := found.keys() - set(kinds):
        raise _Wrong(f"import: unknown: {', '.join(sorted(unknown))}; known: {', '.join(kinds)}")
    imports: list[ImportMapping] = []
    for kind in kinds:
        if kind in found:
            row = dict(found[kind])
            source, key, values = row.pop("from"), tuple(row.pop("key")), row.pop("values")
            imports.append(ImportMapping(kind, source, key, values, row.pop("where", "")))
            if row:
                raise _Wrong(f"import of {kind}: unknown: {', '.join(row)}")
    return tuple(imports)


def _check_values(table: TableMapping) -> None:
    if unknown := table.values - set(VALUES[table.rows]):
        known = ", ".join(VALUES[table.rows])
        raise _Wrong(f"table {table.name}: unknown: {', '.join(sorted(unknown))}; known: {known}")
    if len(set(table.columns)) < len(table.columns):
        raise _Wrong(f"table {table.name}: a column is given twice")
    if set(table.added.values()) - set(added := _ADDED.get(table.rows, ())):
        raise _Wrong(f"table {table.name}: of {table.rows} can be added: {', '.join(added) or 'nothing'}")
    if table.lowered and not (table.insert and table.unique):
        raise _Wrong(f"table {table.name}: least needs insert = true, and a unique key")
    if table.balance and (table.rows not in ("history", "peers") or {*table.balance} != {"table", "key", "column"}):
        raise _Wrong(f"table {table.name}: balance is of history or peers, and has table, key and column")
    if set(table.gone) - set(table.replaced if table.rows == "peers" else ()):
        raise _Wrong(f"table {table.name}: gone is of peers, and of columns in set")
    if any(map(is_value, table.gone.values())):
        raise _Wrong(f"table {table.name}: gone has numbers, or texts after =")
    if not (table.replaced or table.added or (table.insert and table.once)):
        raise _Wrong(f"table {table.name}: no columns")
