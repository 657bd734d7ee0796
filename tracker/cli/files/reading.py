"""Reads the register out of files: folders of .torrent files, CSV, JSON lines. Nothing is held beyond one line or file.

All of it blocks, so it belongs in a thread. What cannot be read is a Problem among the items, and the rest goes on.
"""

import csv
import json
import os
import stat
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path

from tracker.errors import ClientError
from tracker.register.rows import Item, Kind, Problem, kind_of, parse_row, unguarded
from tracker.torrent_file import MAX_BYTES, parse_torrent_file

MAX_LINE = 100_000
"""Characters of one line of a file."""
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")

Items = Iterator[Item | Problem]


def count_torrents(paths: Sequence[Path]) -> int | None:
    """How many .torrent files there are; None when there is anything else, too."""
    if not all(path.is_dir() or _is_torrent(path.name) for path in paths):
        return None
    return sum(1 for path in paths for _ in (_torrents_under(path) if path.is_dir() else (path,)))


def read(paths: Sequence[Path], kind: Kind | None = None) -> Items:
    """Everything in ``paths``; rows without a ``kind`` of their own are of ``kind``, or what their fields say."""
    for path in paths:
        try:
            if path.is_dir():
                yield from (item for file in _torrents_under(path) for item in _read_torrent(file))
            elif _is_torrent(path.name):
                yield from _read_torrent(path)
            else:
                with _open(path) as raw:
                    yield from _read_rows(raw, path, kind)
        except OSError as error:
            yield Problem(str(path), error.strerror or str(error))


def _is_torrent(name: str) -> bool:
    return name.lower().endswith(".torrent")


def _torrents_under(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(place, name) for name in sorted(names) if _is_torrent(name))


def _open(path: Path) -> TextIOWrapper:
    return TextIOWrapper(os.fdopen(_open_file(path), "rb"), "utf-8", "replace", newline="")


def _open_file(path: Path) -> int:
    """A descriptor of a plain file: a pipe that nobody writes to would hold us for ever."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "not a file")
    return file


def _read_torrent(path: Path) -> Items:
    """A row for each info hash: a hybrid torrent has two."""
    try:
        with os.fdopen(_open_file(path), "rb") as file:
            found = parse_torrent_file(file.read(MAX_BYTES + 1))
    except ClientError as error:
        yield Problem(str(path), error.text)
        return
    except OSError as error:
        yield Problem(str(path), error.strerror or str(error))
        return
    for info_hash in found.announce_hashes:
        row = {"info_hash": info_hash.hex(), "name": found.name, "private": str(int(found.private))}
        yield Item("torrent", {name: value for name, value in row.items() if value}, str(path))


def _read_rows(file: TextIOWrapper, path: Path, kind: Kind | None) -> Items:
    if path.name.lower().endswith(JSON_ENDINGS):
        yield from _read_json(file, path, kind)
    elif path.name.lower().endswith(".csv"):
        yield from _read_csv(file, path, kind)
    else:
        yield Problem(str(path), "is neither a folder nor a .torrent, .csv or .jsonl file")


def _lines(file: TextIOWrapper) -> Iterator[str]:
    """Lines, an overlong one cut to just over MAX_LINE."""
    while line := file.readline(MAX_LINE + 1):
        rest = line
        while len(rest) > MAX_LINE and not rest.endswith("\n"):
            rest = file.readline(MAX_LINE + 1)
        yield line


def _read_json(file: TextIOWrapper, path: Path, kind: Kind | None) -> Items:
    for number, line in enumerate(_lines(file), 1):
        if not line.strip():
            continue
        origin = f"{path} line {number}"
        try:
            fields = _json_object(line)
            yield _item(fields, kind, origin)
        except ClientError as error:
            yield Problem(origin, error.text)


def _json_object(line: str) -> dict[str, object]:
    if len(line) > MAX_LINE:
        raise ClientError("the line is too long")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise ClientError("this is not JSON") from None
    if not isinstance(fields, dict):
        raise ClientError("this is not a JSON object")
    return fields


def _read_csv(file: TextIOWrapper, path: Path, kind: Kind | None) -> Items:
    """The first row names the columns. A row that breaks the rules of CSV is a problem of its own."""
    rows = csv.reader(_lines(file), strict=True)
    head = _csv_row(rows)
    if head is None:
        return
    if isinstance(head, str):
        yield Problem(f"{path} line 1", head)
        return
    names = [name.strip().lstrip("\ufeff") for name in head]
    if problem := _bad_head(names, kind):
        yield Problem(f"{path} line 1", problem)
        return
    while (found := _csv_row(rows)) is not None:
        origin = f"{path} line {rows.line_num}"
        if isinstance(found, str):
            yield Problem(origin, found)
        elif found and len(found) != len(names):
            yield Problem(origin, f"has {len(found)} columns, not {len(names)}")
        elif found:
            fields: dict[str, object] = {
                name: unguarded(name, value) for name, value in zip(names, found, strict=True)
            }
            try:
                yield _item(fields, kind, origin)
            except ClientError as error:
                yield Problem(origin, error.text)


def _csv_row(rows: Iterator[list[str]]) -> list[str] | str | None:
    """The next row, or what is wrong with it; None at the end."""
    try:
        return next(rows, None)
    except csv.Error as error:
        return str(error)


def _bad_head(names: list[str], kind: Kind | None) -> str:
    if len(set(names)) < len(names):
        return "a column is there twice"
    try:
        fields: dict[str, object] = dict.fromkeys(names, "x")
        if "kind" not in fields:
            parse_row(kind or kind_of(fields), fields)
    except ClientError as error:
        return f"the first line has to name the columns: {error.text}"
    return ""


def _item(fields: dict[str, object], kind: Kind | None, origin: str) -> Item:
    """Raises ClientError."""
    its = kind_of(fields) if kind is None or "kind" in fields else kind
    return Item(its, parse_row(its, fields), origin)
