"""Records of export and import files, and how their fields are written.

A row maps field names to text. In JSON lines, flags are true and false, and totals, sizes, multipliers and times are
numbers; in CSV everything is text. Spreadsheets run a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula,
and strangers choose the names of torrents. So CSV puts an apostrophe before such a text, and before one that begins
with apostrophes and such a character. Reading removes one apostrophe, which restores the text.
"""

import csv
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Literal, get_args

from tracker.errors import ClientError
from tracker.store.schema.multipliers import MULTIPLIERS, multiplier_text, with_end_names
from tracker.store.schema.record import settable
from tracker.store.torrents.records import TORRENT_FIELDS, Torrent
from tracker.store.users.fields import FIELDS, User
from tracker.store.users.history import History

Row = dict[str, str]
Kind = Literal["torrent", "user", "denial", "client", "denied_client", "freeleech_token", "user_torrent"]
KINDS: tuple[Kind, ...] = get_args(Kind)
WHAT: dict[str, Kind] = {
    "torrents": "torrent",
    "users": "user",
    "denied": "denial",
    "clients": "client",
    "denied-clients": "denied_client",
    "freeleech-tokens": "freeleech_token",
    "user-torrents": "user_torrent",
}
"""Kinds by the names that the command line uses."""
COLUMNS: Mapping[Kind, tuple[str, ...]] = {
    "torrent": ("info_hash", *with_end_names(TORRENT_FIELDS), "snatches", "torrent_id"),
    "user": ("user_id", "passkey", *with_end_names(FIELDS)),
    "denial": ("info_hash", "reason"),
    "client": ("prefix", "name"),
    "denied_client": ("prefix", "reason"),
    "freeleech_token": ("user_id", "info_hash", "until"),
    "user_torrent": ("user_id", "torrent_id", *settable(History)),
}
"""The first field identifies the record and is required."""
_FIELDS = [field for record in (User, Torrent, History) for field in settable(record).values()]
TEXTS = frozenset({"prefix", *(each.name for each in _FIELDS if each.kind in ("text", "names"))}) - {"hybrid_of"}
_FLAGS = frozenset(each.name for each in _FIELDS if each.kind == "flag")
_NO_NUMBERS = TEXTS | _FLAGS | {"info_hash", "user_id", "passkey", "hybrid_of", "torrent_id"}
MAX_TEXT = 10_000
"""Maximum characters of one field; the store's limits are lower."""

_NUMBER = re.compile(r"[0-9]{1,16}|[0-9]{1,4}\.[0-9]{1,6}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_GUARDED = re.compile(r"'+[=+\-@\t\r]")


@dataclass(frozen=True, slots=True)
class Item:
    """One row and its origin, such as ``file.csv line 3``."""

    kind: Kind
    row: Row
    origin: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A record that cannot be read."""

    origin: str
    reason: str


def guarded(name: str, value: str) -> str:
    return f"'{value}" if name in TEXTS and _FORMULA.match(value) else value


def unguarded(name: str, value: str) -> str:
    return value[1:] if name in TEXTS and _GUARDED.match(value) else value


def _typed(name: str, value: str) -> str | float | bool:
    """The value in its type of JSON."""
    if name in _FLAGS and value in ("0", "1"):
        return value == "1"
    if name in _NO_NUMBERS or not _NUMBER.fullmatch(value):
        return value
    return float(value) if "." in value else int(value)


def parse_row(kind: Kind, fields: Mapping[str, object]) -> Row:
    """The row in ``fields`` without empty fields. Raises ClientError for unknown or invalid fields."""
    row: Row = {}
    for name, value in fields.items():
        if name == "kind":
            continue
        if name not in COLUMNS[kind]:
            raise ClientError(f"unknown field of a {kind}")
        if text := _checked(name, value):
            row[name] = text
    if COLUMNS[kind][0] not in row:
        raise ClientError(f"{COLUMNS[kind][0]} is missing")
    if kind == "user_torrent" and "torrent_id" not in row:
        raise ClientError("torrent_id is missing")
    return row


def _checked(name: str, value: object) -> str:
    """The value as text. Raises ClientError for what the API refuses, too."""
    if isinstance(value, bool) and name not in _FLAGS:
        raise ClientError(f"{name} is neither true nor false")
    if isinstance(value, float) and name not in MULTIPLIERS:
        raise ClientError(f"{name} is no number with a fraction or an exponent")
    if isinstance(value, int) and name in TEXTS:
        raise ClientError(f"{name} is a text, not a number")
    text = text_of(value)
    if len(text) > MAX_TEXT:
        raise ClientError(f"{name} is too long")
    if _CONTROL.search(text):
        raise ClientError(f"{name} has control characters")
    return {"true": "1", "false": "0"}.get(text.lower(), text) if name in _FLAGS else text


def text_of(value: object) -> str:
    """A value of a record as text; empty for None. Raises ClientError for a list or an object, and for bytes that are
    not UTF-8, which are read as lone surrogates."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int) and abs(value) < 2**63:
        return str(value)
    if isinstance(value, float):
        return multiplier_text(value)
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise ClientError("a field is not UTF-8 text")
        return value
    raise ClientError("a field is not text, a number or a boolean")


def kind_of(fields: Mapping[str, object]) -> Kind:
    """By the field ``kind``, else by the identifying field. Denials of torrents and clients, freeleech tokens, and
    users on torrents need ``kind``. Raises ClientError."""
    named = fields.get("kind")
    for kind in KINDS:
        if named == kind or (named is None and COLUMNS[kind][0] in fields):
            return kind
    if named is None:
        raise ClientError("needs info_hash, user_id or prefix")
    raise ClientError(f"kind must be {', '.join(KINDS[:-1])} or {KINDS[-1]}")


def csv_writer(file: IO[str], kind: Kind) -> Callable[[Kind, Row], object]:
    """Writes rows of one kind; the first line names the columns."""
    # With CR and LF in the line terminator, the writer quotes fields that contain either.
    lines = csv.writer(file, lineterminator="\r\n")
    lines.writerow(("kind", *COLUMNS[kind]))
    return lambda kind, row: lines.writerow((kind, *(guarded(name, row.get(name, "")) for name in COLUMNS[kind])))


def json_writer(file: IO[str]) -> Callable[[Kind, Row], object]:
    """Writes rows of any kind, one object per line."""

    def write(kind: Kind, row: Row) -> None:
        file.write(json.dumps({"kind": kind} | {name: _typed(name, text) for name, text in row.items()}) + "\n")

    return write
