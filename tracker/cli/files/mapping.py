"""Field mappings: TOML files that say which column of a site's own file holds which field, and what its values mean.

    kind = "users"

    [fields]
    user_id = "id"
    can_leech = { column = "class", values = { banned = 0 }, other = 1 }
    download_multiplier = { column = "free", percent_off = true }

Columns that no field names are ignored.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracker.cli.files.rows import COLUMNS, WHAT, Kind, text_of
from tracker.errors import ClientError
from tracker.store.schema.multipliers import multiplier_text

MAX_BYTES = 100_000
_PERCENT = re.compile(r"[0-9]{1,2}|100", re.ASCII)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the value of a field is. ``values`` translates values of the column; empty: they are taken as they are.
    ``other``: the value for those that are not in ``values``; None: such a row is refused. ``percent_off``: the column
    says how many percent do not count, and the field is a multiplier."""

    column: str
    values: Mapping[str, str]
    other: str | None
    percent_off: bool = False

    def read(self, row: Mapping[str, object], field: str) -> object:
        """Raises ClientError."""
        value = row.get(self.column)
        if self.percent_off:
            if not (_PERCENT.fullmatch(text := text_of(value))):
                raise ClientError(f"column {self.column} must be a whole percentage from 0 to 100")
            return multiplier_text((100 - int(text)) / 100)
        if not self.values:
            return self.other if value in (None, "") else value
        found = self.values.get(text_of(value), self.other)
        if found is None:
            raise ClientError(f"the mapping has no {field} for this value of column {self.column}")
        return found


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """The sources of fields of one kind of record."""

    kind: Kind
    sources: Mapping[str, Source]

    def missing(self, columns: Sequence[str]) -> str:
        """The first column that the mapping needs and a file does not have; empty if it has all."""
        needed = (source.column for source in self.sources.values())
        return next((column for column in needed if column not in columns), "")

    def apply(self, row: Mapping[str, object]) -> dict[str, object]:
        """The fields of a row. Raises ClientError."""
        return {field: source.read(row, field) for field, source in self.sources.items()}


def load_mapping(path: Path) -> FieldMapping:
    """Raises ClientError for an invalid file, and OSError."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        if len(data) > MAX_BYTES:
            raise ClientError(f"is larger than {MAX_BYTES} bytes")
        return parse_mapping(data.decode())
    except (ClientError, ValueError) as error:
        raise ClientError(f"{path}: {error}") from None


def parse_mapping(text: str) -> FieldMapping:
    """Raises ClientError, and ValueError if the text is not TOML."""
    found = tomllib.loads(text)
    if unknown := found.keys() - {"kind", "fields"}:
        raise ClientError(f"unknown key {min(unknown)}: a mapping has kind and fields")
    kind = WHAT.get(str(found.get("kind")))
    if kind is None:
        raise ClientError(f"kind must be {', '.join(WHAT)}")
    fields = found.get("fields")
    if not isinstance(fields, dict) or COLUMNS[kind][0] not in fields:
        raise ClientError(f"fields must name the column of {COLUMNS[kind][0]}")
    if unknown := fields.keys() - set(COLUMNS[kind]):
        raise ClientError(f"unknown field {min(unknown)}: a {kind} has {', '.join(COLUMNS[kind])}")
    return FieldMapping(kind, {field: _source(field, given) for field, given in fields.items()})


def _source(field: str, given: Any) -> Source:
    if isinstance(given, str):
        return Source(given, {}, None)
    if not isinstance(given, dict) or not isinstance(given.get("column"), str):
        raise ClientError(f"{field} must be the name of a column, or a table with column, values and other")
    if given.keys() == {"column", "percent_off"} and given["percent_off"] is True:
        return Source(given["column"], {}, None, percent_off=True)
    if given.keys() - {"column", "values", "other"}:
        raise ClientError(f"{field} may have column, values and other, or column and percent_off = true")
    values, other = given.get("values", {}), given.get("other")
    if not isinstance(values, dict):
        raise ClientError(f"values of {field} must be a table")
    translated = {name: text_of(value) for name, value in values.items()}
    return Source(given["column"], translated, None if other is None else text_of(other))
