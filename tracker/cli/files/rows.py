"""Rows of the register, and how a field is written in a file.

A row is text by name of field. In JSON lines flags are true and false and figures are numbers; in CSV all is text. A
spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula, and what a torrent is called a
stranger chose. So in CSV such a text gets an apostrophe in front, and a text that begins with apostrophes and such a
sign one more: reading takes one away, and every text comes back as it was.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tracker.errors import ClientError

Row = dict[str, str]
Kind = Literal["torrent", "user", "denial", "client"]
KINDS: tuple[Kind, ...] = ("torrent", "user", "denial", "client")
COLUMNS: Mapping[Kind, tuple[str, ...]] = {
    "torrent": (
        "info_hash",
        "name",
        "private",
        "enabled",
        "reason",
        "upload_multiplier",
        "download_multiplier",
    ),
    "user": (
        "user_id",
        "passkey",
        "enabled",
        "can_leech",
        "uploaded",
        "downloaded",
        "snatches",
        "announces",
    ),
    "denial": ("info_hash", "reason"),
    "client": ("prefix", "name"),
}
"""The first one names the thing, and has to be there."""
TEXTS = frozenset({"name", "reason", "prefix"})
_FLAGS = frozenset({"private", "enabled", "can_leech"})
_FIGURES = frozenset({"uploaded", "downloaded", "snatches", "announces"})
_WORDS = {"true": "1", "false": "0"}
MAX_TEXT = 10_000
"""Characters of one field; the store keeps fewer."""

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_GUARDED = re.compile(r"'+[=+\-@\t\r]")


@dataclass(frozen=True, slots=True)
class Item:
    """One row, and where it stands: ``file.csv line 3``."""

    kind: Kind
    row: Row
    origin: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What could not be read."""

    origin: str
    reason: str


def guarded(name: str, value: str) -> str:
    return f"'{value}" if name in TEXTS and _FORMULA.match(value) else value


def unguarded(name: str, value: str) -> str:
    return value[1:] if name in TEXTS and _GUARDED.match(value) else value


def typed(row: Row) -> dict[str, str | int | bool]:
    """For JSON."""
    return {name: _typed(name, value) for name, value in row.items()}


def _typed(name: str, value: str) -> str | int | bool:
    if name in _FLAGS and value in ("0", "1"):
        return value == "1"
    return int(value) if name in _FIGURES and value.isdigit() and len(value) <= 16 else value


def parse_row(kind: Kind, fields: Mapping[str, object]) -> Row:
    """The row in ``fields``, empty ones left out. Raises ClientError for what no such row has."""
    row: Row = {}
    for name, value in fields.items():
        if name == "kind":
            continue
        if name not in COLUMNS[kind]:
            raise ClientError(f"a {kind} has no such field")
        text = _text(value)
        if len(text) > MAX_TEXT:
            raise ClientError("a field is too long")
        if name in _FLAGS:
            text = _WORDS.get(text.lower(), text)
        if text:
            row[name] = text
    if COLUMNS[kind][0] not in row:
        raise ClientError(f"{COLUMNS[kind][0]} is missing")
    return row


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int) and abs(value) < 2**63:
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # a lone surrogate is no text
    raise ClientError("a field is neither text, number nor flag")


def kind_of(fields: Mapping[str, object]) -> Kind:
    """By its field ``kind``, or else by what names it; denials must say so. Raises ClientError."""
    named = fields.get("kind")
    if named is not None:
        for kind in KINDS:
            if named == kind:
                return kind
        raise ClientError("kind is torrent, user, denial or client")
    for kind in KINDS:
        if COLUMNS[kind][0] in fields:
            return kind
    raise ClientError("there is none of info_hash, user_id and prefix")
