"""Rows as CSV and as JSON lines."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def csv_lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, header: bool = True) -> str:
    """What is not text is JSON; None is empty. A text that a spreadsheet would run as a formula begins with an
    apostrophe."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\r\n")
    if header:
        lines.writerow(columns)
    for row in rows:
        lines.writerow([_cell(row[name]) for name in columns])
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return orjson.dumps(value).decode()
    return f"'{value}" if value.startswith(_FORMULA) else value
