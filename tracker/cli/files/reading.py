"""Reads records from folders of .torrent files, CSV and JSON lines, one line or .torrent file in memory at a time.

The functions block, so call them in a thread. A record that cannot be read is yielded as a Problem; reading continues.

A field mapping is a TOML file that says which column of a site's own file holds which field, and what its values mean:

    kind = "users"

    [fields]
    user_id = "id"
    can_leech = { column = "class", values = { banned = 0 }, other = 1 }
    download_multiplier = { column = "free", percent_off = true }

Columns that no field names are ignored.
"""

import csv
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from tracker.bittorrent import InfoHash
from tracker.cli.files.rows import COLUMNS, WHAT, Item, Kind, Problem, kind_of, parse_row, text_of, unguarded
from tracker.errors import ClientError
from tracker.operations.torrents import kept_fields
from tracker.store.schema.multipliers import join_ends, multiplier_text
from tracker.wire.torrent_file import MAX_BYTES, parse_torrent_file

MAX_MAPPING_BYTES = 100_000
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

    def apply(self, row: Mapping[str, object]) -> dict[str, object]:
        """The fields of a row. Raises ClientError."""
        return {field: source.read(row, field) for field, source in self.sources.items()}


def load_mapping(path: Path) -> FieldMapping:
    """Raises ClientError for an invalid file, and OSError."""
    with path.open("rb") as file:
        data = file.read(MAX_MAPPING_BYTES + 1)
    try:
        if len(data) > MAX_MAPPING_BYTES:
            raise ClientError(f"is larger than {MAX_MAPPING_BYTES} bytes")
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


MAX_LINE = 100_000
"""Maximum characters of one line."""
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "0": "\0"}

Items = Iterator[Item | Problem]
Rows = Iterator[tuple[int, list[str] | str]]
"""Number of the line, and its cells or why there are none."""
Fields = Iterator[tuple[int, Mapping[str, object] | str]]
"""Number of the line, and its fields or why there are none."""
Keep = Callable[[InfoHash, bytes], None]
"""Keeps the bare .torrent file of an info hash. Raises ClientError."""


def count_torrents(paths: Sequence[Path]) -> int | None:
    """Number of .torrent files; None if there are other files too."""
    if not all(path.is_dir() or _is_torrent(path.name) for path in paths):
        return None
    return sum(1 for path in paths for _ in (_torrents_under(path) if path.is_dir() else (path,)))


def read(
    paths: Sequence[Path], kind: Kind | None, keep: Keep | None, mapping: FieldMapping | None, *, tsv: bool
) -> Items:
    """All records in ``paths``. Rows without a field ``kind`` are of ``kind``, else of the kind that their fields
    suggest. ``keep`` receives each .torrent file. ``mapping`` says what the columns of files of another program are.
    ``tsv``: the files are output of ``mysql --batch``, whatever their names are."""
    for path in paths:
        try:
            if path.is_dir():
                yield from (item for each in _torrents_under(path) for item in _read_torrent(each, keep))
            elif _is_torrent(path.name):
                yield from _read_torrent(path, keep)
            else:
                # Bytes that are not UTF-8 become lone surrogates, which no field may have.
                file, newline = os.fdopen(_open_file(path), "rb"), "\n" if tsv else ""
                with TextIOWrapper(file, "utf-8", "surrogateescape", newline=newline) as raw:
                    yield from _read_rows(raw, path, kind, mapping, tsv=tsv)
        except OSError as error:
            yield Problem(str(path), error.strerror or str(error))


def _is_torrent(name: str) -> bool:
    return name.lower().endswith(".torrent")


def _torrents_under(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(place, name) for name in sorted(names) if _is_torrent(name))


def _open_file(path: Path) -> int:
    """Descriptor of a regular file. A pipe without a writer would block for ever."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "not a regular file")
    return file


def _read_torrent(path: Path, keep: Keep | None) -> Items:
    """One row per info hash; a hybrid torrent has two."""
    try:
        with os.fdopen(_open_file(path), "rb") as file:
            found = parse_torrent_file(file.read(MAX_BYTES + 1))
        if keep is not None:
            for info_hash in found.announce_hashes:
                keep(info_hash, found.bare)
    except ClientError as error:
        yield Problem(str(path), error.text)
        return
    except OSError as error:
        yield Problem(str(path), error.strerror or str(error))
        return
    for info_hash in found.announce_hashes:
        row = {"info_hash": info_hash.hex(), "name": found.name, "private": str(int(found.private))}
        row |= {"size": str(found.size_bytes), "kept": kept_fields(found.private)}
        if info_hash != found.announce_hashes[0]:
            row["hybrid_of"] = found.announce_hashes[0].hex()
        yield Item("torrent", {name: value for name, value in row.items() if value}, str(path))


def _read_rows(file: TextIOWrapper, path: Path, kind: Kind | None, mapping: FieldMapping | None, *, tsv: bool) -> Items:
    name = path.name.lower()
    if tsv:
        found = _table(_tsv_rows(file), kind, mapping, guarded=False)
    elif name.endswith(JSON_ENDINGS):
        found = _json_objects(file)
    elif name.endswith(".csv"):
        found = _table(_csv_rows(file), kind, mapping, guarded=mapping is None)
    else:
        yield Problem(str(path), "is not a folder, .torrent, .csv or .jsonl file")
        return
    for number, fields in found:
        origin = f"{path} line {number}"
        try:
            yield Problem(origin, fields) if isinstance(fields, str) else _item(fields, kind, mapping, origin)
        except ClientError as error:
            yield Problem(origin, error.text)


def _lines(file: TextIOWrapper) -> Iterator[str]:
    """Lines; a line that is too long is cut to MAX_LINE + 1 characters."""
    while line := file.readline(MAX_LINE + 1):
        rest = line
        while len(rest) > MAX_LINE and not rest.endswith("\n"):
            rest = file.readline(MAX_LINE + 1)
        yield line


def _json_objects(file: TextIOWrapper) -> Fields:
    for number, line in enumerate(_lines(file), 1):
        if not line.strip():
            continue
        if len(line) > MAX_LINE:
            yield number, "the line is too long"
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            yield number, "not JSON"
        else:
            yield number, fields if isinstance(fields, dict) else "not a JSON object"


def _table(rows: Rows, kind: Kind | None, mapping: FieldMapping | None, *, guarded: bool) -> Fields:
    """The first row names the columns; without them there are no others. ``guarded``: as ``rows.guarded`` does."""
    number, header = next(rows, (0, []))
    if not header:
        return
    names = [header] if isinstance(header, str) else [name.strip().lstrip("\ufeff") for name in header]
    if problem := header if isinstance(header, str) else _header_problem(names, kind, mapping):
        yield number, problem
        return
    for number, found in rows:
        if isinstance(found, str):
            yield number, found
        elif found and len(found) != len(names):
            yield number, f"has {len(found)} columns instead of {len(names)}"
        elif found:
            cells = zip(names, found, strict=True)
            yield number, {name: unguarded(name, cell) if guarded else cell for name, cell in cells}


def _csv_rows(file: TextIOWrapper) -> Rows:
    rows = csv.reader(_lines(file), strict=True)
    while True:
        try:
            found: list[str] | str = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            found = str(error)
        yield rows.line_num, found


def _tsv_rows(file: TextIOWrapper) -> Rows:
    """As ``mysql --batch`` writes them: backslash, tab, line end and NUL are escaped. ``NULL`` is no value."""
    for number, line in enumerate(_lines(file), 1):
        cells = line.removesuffix("\n").removesuffix("\r").split("\t")
        if len(line) > MAX_LINE:
            yield number, "the line is too long"
        else:
            yield (number, [] if cells == [""] else ["" if each == "NULL" else _unescaped(each) for each in cells])


def _unescaped(cell: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), cell)


def _header_problem(names: list[str], kind: Kind | None, mapping: FieldMapping | None) -> str:
    if len(set(names)) < len(names):
        return "a column appears twice"
    if mapping is not None:
        missing = [source.column for source in mapping.sources.values() if source.column not in names]
        return f"the first line must name the columns: {missing[0]} is missing" if missing else ""
    try:
        fields: dict[str, object] = dict.fromkeys(names, "x")
        if "kind" not in fields:
            parse_row(kind or kind_of(fields), fields)
    except ClientError as error:
        return f"the first line must name the columns: {error.text}"
    return ""


def _item(fields: Mapping[str, object], kind: Kind | None, mapping: FieldMapping | None, origin: str) -> Item:
    """Raises ClientError."""
    if mapping is not None:
        return Item(mapping.kind, join_ends(parse_row(mapping.kind, mapping.apply(fields))), origin)
    its = kind_of(fields) if kind is None or "kind" in fields else kind
    return Item(its, join_ends(parse_row(its, fields)), origin)
