"""Mapping files: which tables and columns of a site's database hold which values of the store. A file is TOML;
``presets/`` has those of known programs."""

import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self, TypeGuard, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from tracker.errors import StartupError

Rows = Literal["users", "torrents", "history", "peers", "unregistered"]
Constant = bool | int | float
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


class _Part(BaseModel):
    """An alias is the name that files use."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TableMapping(_Part):
    """One table. Each mapping has the columns with our values."""

    rows: Rows
    name: str
    key: Mapping[str, str]
    replaced: Mapping[str, str | Constant] = Field({}, alias="set")
    """Columns that are replaced, by values of ours or constants."""
    added: Mapping[str, str] = Field({}, alias="add")
    """Columns to which what our value has grown is added. The site may change them itself."""
    once: Mapping[str, str | Constant] = {}
    """Columns that only new rows get, with a value of ours or a constant: a number, or a text after ``=``."""
    insert: bool = False
    """Whether missing rows are made; else the site makes them."""
    only: str = ""
    """A value of ours without which a row is left out."""
    lowered: Mapping[str, str] = Field({}, alias="least")
    """Columns that keep their value where it is less than ours."""
    unique: bool = True
    """Whether the table has a unique key on ``key``. Without one, rows are looked up before they are written."""
    optional: bool = False
    """Whether a site may do without this table."""
    balance: Mapping[str, str] = {}
    """``table``, ``key`` and ``column`` of the torrents to which is added what their users upload beyond what they
    download, by rows of history or of peers."""
    gone: Mapping[str, str | Constant] = {}
    """The constants that columns of ``replaced`` hold in rows of peers that have left."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        known, added = VALUES[self.rows], _ADDED.get(self.rows, ())
        unknown = ", ".join(sorted(self.values - set(known)))
        may_balance = self.rows in ("history", "peers") and {*self.balance} == {"table", "key", "column"}
        for is_wrong, text in (
            (
                sorted(self.key.values()) != sorted(_KEYS[self.rows]),
                f"the key has a column for each of {', '.join(_KEYS[self.rows])}",
            ),
            (unknown, f"unknown: {unknown}; known: {', '.join(known)}"),
            (len(set(self.columns)) < len(self.columns), "a column is given twice"),
            (set(self.added.values()) - set(added), f"of {self.rows} can be added: {', '.join(added) or 'nothing'}"),
            (self.lowered and not (self.insert and self.unique), "least needs insert = true, and a unique key"),
            (self.balance and not may_balance, "balance is of history or peers, and has table, key and column"),
            (
                set(self.gone) - set(self.replaced if self.rows == "peers" else ()),
                "gone is of peers, and of columns in set",
            ),
            (any(map(is_value, self.gone.values())), "gone has numbers, or texts after ="),
            (not (self.replaced or self.added or (self.insert and self.once)), "no columns"),
        ):
            if is_wrong:
                raise ValueError(f"table {self.name}: {text}")
        return self

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


class ImportMapping(_Part):
    """What ``tracker sync import`` reads from a table. ``values``: ours, each an expression of SQL."""

    kind: ImportKind
    source: str = Field(alias="from")
    """The table, or a join, after FROM."""
    key: tuple[str, ...]
    """Columns of whole numbers by which rows are read in order."""
    values: Mapping[str, str]
    where: str = ""


class SiteMapping(_Part):
    tables: tuple[TableMapping, ...] = Field(alias="table")
    imports: tuple[ImportMapping, ...] = Field((), alias="import")
    slots: Literal["refusal", "warning"] = "refusal"
    """How the site's former tracker answers downloads beyond a user's slots; ``warning``: also without peers."""

    @field_validator("imports", mode="before")
    @classmethod
    def _in_order(cls, found: dict[str, Any]) -> list[dict[str, Any]]:
        kinds = get_args(ImportKind)
        if unknown := found.keys() - set(kinds):
            raise ValueError(f"import: unknown: {', '.join(sorted(unknown))}; known: {', '.join(kinds)}")
        return [{**found[kind], "kind": kind} for kind in kinds if kind in found]

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
        return SiteMapping.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise StartupError(f"the mapping {name} is no valid TOML: {error}") from error
    except ValidationError as error:
        raise StartupError(f"the mapping {name}: {'; '.join(map(_text, error.errors()))}") from error
    except (TypeError, AttributeError) as error:
        raise StartupError(f"the mapping {name}: {error}") from error


def _text(error: ErrorDetails) -> str:
    where = "" if error["type"] == "value_error" else f"{'.'.join(map(str, error['loc']))}: "
    return where + error["msg"].removeprefix("Value error, ")
