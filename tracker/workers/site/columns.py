"""Columns of a site's tables: whether values of the store fit, and values in the form of a column."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from ipaddress import ip_address
from typing import Any

from sqlalchemy import Column, Table, UniqueConstraint, types
from sqlalchemy.dialects.mysql import TIMESTAMP as MYSQL_TIMESTAMP

from tracker.workers.site.mapping import SiteMapping, TableMapping, is_time

Encode = Callable[[Any], Any]
_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INTEGER": 32, "INT": 32, "BIGINT": 64}
_ADDRESSES = ("ip", "ipv4", "ipv6")
_BYTES = {"ip": 16, "ipv4": 4, "ipv6": 16, "peer_id": 20, "info_hash": 20}
_KINDS = {
    **dict.fromkeys(_BYTES, ("bytes", "text")),
    **dict.fromkeys(("active", "seeding", "complete", "connectable", "immune"), ("flag", "number")),
    "agent": ("text", "bytes"),
}
"""The kinds of columns that may hold a value. Others: times and numbers."""


def kind_of(column: Column[Any]) -> str:
    """``time``, ``flag``, ``number``, ``bytes`` or ``text``; empty: another one, which holds none of our values."""
    kinds = {
        types.Boolean: "flag",
        types.DateTime: "time",
        types.Integer: "number",
        types.Numeric: "number",
        types._Binary: "bytes",
        types.String: "text",
    }
    found = next((name for base, name in kinds.items() if isinstance(column.type, base)), "")
    return found or {"INET": "text", "BIT": "flag"}.get(column.type.__visit_name__.upper(), "")


def range_of(column: Column[Any]) -> tuple[int, int]:
    """The lowest and the highest number of a column of whole numbers."""
    bits = _BITS.get(column.type.__visit_name__.upper(), 64)
    if getattr(column.type, "unsigned", False):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def encoder(column: Column[Any], value: str, zone: tzinfo) -> Encode:
    """Gives a value of ours the form that the column has. ``zone``: of times without one. Raises ValueError for a value
    that the column cannot hold."""
    kind = kind_of(column)
    if kind == "time":
        aware, where = bool(getattr(column.type, "timezone", False)), _zone_of(column, zone)

        def moment(seconds: int | None) -> datetime | None:
            found = None if seconds is None else datetime.fromtimestamp(seconds, where)
            return found if found is None or aware else found.replace(tzinfo=None)

        return moment
    if kind == "number" and not hasattr(column.type, "scale"):
        return _number_encoder(column)
    if kind == "flag":
        return lambda flag: None if flag is None else bool(flag)
    if _says_yes(column):
        return lambda flag: "yes" if flag else "no"
    if kind == "text":
        length = getattr(column.type, "length", None)
        empty = None if column.nullable else ""
        if value in _ADDRESSES:
            return lambda packed: empty if packed is None else str(ip_address(packed))
        return lambda text: empty if text is None else (text.hex() if isinstance(text, bytes) else str(text))[:length]
    if kind == "bytes":
        return lambda raw: raw if raw is None or isinstance(raw, bytes) else str(raw).encode()
    return lambda number: number


def _zone_of(column: Column[Any], zone: tzinfo) -> tzinfo:
    """Of times in a column. ``zone``: of those without one."""
    has_zone = getattr(column.type, "timezone", False) or isinstance(column.type, MYSQL_TIMESTAMP)
    return UTC if has_zone else zone


def epoch(column: Column[Any], time: Any, zone: tzinfo) -> int:
    """A time of a column, in epoch seconds; 0 for none, and for the date of zeros that MySQL has."""
    if not isinstance(time, datetime):
        return int(time) if isinstance(time, int | Decimal) else 0
    return int((time if time.tzinfo else time.replace(tzinfo=_zone_of(column, zone))).timestamp())


def _says_yes(column: Column[Any]) -> bool:
    """Whether the column holds a flag as ``yes`` or ``no``."""
    return {"yes", "no"} <= set(getattr(column.type, "enums", ()))


def _number_encoder(column: Column[Any]) -> Encode:
    lowest, highest = range_of(column)

    def encode(number: int | None) -> int | None:
        if number is None:
            return None
        if not lowest <= number <= highest:
            raise ValueError(f"{column.name} holds at most {highest}, not {number:d}")
        return int(number)

    return encode


def problems(mapping: SiteMapping, tables: Mapping[str, Table]) -> list[str]:
    """What is wrong with the site's tables, a line each, with what to do."""
    found: list[str] = []
    for each in mapping.tables:
        if each.name not in tables:
            if not each.optional:
                found.append(f"table {each.name} is missing: name it as the site does, in the mapping file")
            continue
        found += _table_problems(each, tables[each.name])
        if tables[each.name].kwargs.get("mysql_engine", "InnoDB") != "InnoDB":
            found.append(f"table {each.name} has no transactions: ALTER TABLE {each.name} ENGINE=InnoDB")
        if (where := each.balance) and where["column"] not in getattr(tables.get(where["table"]), "c", ()):
            found.append(f"column {where['table']}.{where['column']} is missing: remove balance from the mapping")
    return found


def _table_problems(mapping: TableMapping, table: Table) -> list[str]:
    known = {column.name: column for column in table.columns}
    missing = [name for name in mapping.columns if name not in known]
    found = [f"column {mapping.name}.{name} is missing: remove it from the mapping, or add it" for name in missing]
    for name, value in mapping.pairs:
        if name in known:
            found += _column_problems(f"{mapping.name}.{name}", known[name], value)
    return found + ([] if missing else _key_problems(mapping, table))


def _column_problems(where: str, column: Column[Any], value: str) -> list[str]:
    kind = "flag" if _says_yes(column) else kind_of(column)
    wanted = _KINDS.get(value, ("time", "number") if is_time(value) else ("number",))
    if kind not in wanted:
        return [f"column {where} has the type {column.type}, and {value} needs {' or '.join(wanted)}"]
    length = getattr(column.type, "length", None)
    if kind == "bytes" and length is not None and length < _BYTES.get(value, 0):
        return [f"column {where} is too small: {value} needs {_BYTES[value]} bytes"]
    is_total = value == "left" or value.endswith("loaded")  # it counts bytes
    if kind == "number" and is_total and range_of(column)[1] < 2**53 - 1:
        return [f"column {where} is too small: {column.type} holds no totals; make it BIGINT"]
    return []


def _key_problems(mapping: TableMapping, table: Table) -> list[str]:
    """An upsert needs a unique key on exactly these columns."""
    keys = [{column.name for column in table.primary_key.columns}]
    keys += [{column.name for column in index.columns} for index in table.indexes if index.unique]
    keys += [
        {column.name for column in each.columns} for each in table.constraints if isinstance(each, UniqueConstraint)
    ]
    if set(mapping.key) in keys or not mapping.unique or (mapping.insert and not mapping.replaced):
        return []
    columns = ", ".join(mapping.key)
    return [f"table {mapping.name} has no unique key on ({columns}): add one"]
