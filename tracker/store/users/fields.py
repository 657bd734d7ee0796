"""A user: the record, the values of its fields that are valid, and how they go to the scripts."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import orjson

from tracker.errors import ClientError
from tracker.names import fold_name
from tracker.store.schema.multipliers import NO_MULTIPLIER, Rules
from tracker.store.schema.record import MAX_EXACT, Field, fields_of, settable, shown

SETS = ("active", "complete", "incomplete", "hnr")
"""Sets of a user's torrents."""
MAX_GROUP_ID = 999_999_999
Value = str | int
"""Text, a number, or a boolean."""


@dataclass(frozen=True, slots=True)
class User:
    """Parts: ``rights`` are fields of ``t:user:<passkey>``, which each announce reads; ``profile`` and ``totals`` are
    fields of ``t:u:<uid>``."""

    user_id: str
    passkey: str
    enabled: Annotated[
        bool, Field("Accept announces, or refuse them immediately.", "rights", off="disabled", column=8)
    ] = True
    can_leech: Annotated[bool, Field("Allow or block downloading.", "rights", off="no-leech", column=10)] = True
    uploaded: Annotated[int, Field("Credited upload in bytes, times the multipliers.", "totals", column=16)] = 0
    downloaded: Annotated[int, Field("Credited download in bytes, times the multipliers.", "totals", column=16)] = 0
    snatches: Annotated[int, Field("Completed downloads.", "totals", column=11)] = 0
    announces: Annotated[int, Field("Announces so far.", "totals", column=11)] = 0
    credit_cut: Annotated[
        int, Field("Bytes that were not credited because of the maximum rate of credit.", "totals", column=16)
    ] = 0
    unreported: int = field(default=0, compare=False)
    """Bytes by which ``left`` fell on all torrents, but that the user's clients did not report as downloaded. They
    are not counted as downloaded."""
    name: Annotated[str, Field("Display name; empty: none.", "profile")] = ""
    reason: Annotated[
        str,
        Field(
            "Shown to the user's clients while disabled; empty: a default text. Enabling a user clears it.",
            "rights",
            max_length=1000,
        ),
    ] = ""
    upload_multiplier: Annotated[
        Rules, Field("Factor for the user's upload, 0 to 1000; 1: none. Text has several rules.", "rights")
    ] = NO_MULTIPLIER
    download_multiplier: Annotated[
        Rules, Field("Factor for the user's download; 0: freeleech, 1: none. Text has several rules.", "rights")
    ] = NO_MULTIPLIER
    max_downloads: Annotated[
        int | None,
        Field(
            "Torrents downloaded at once; 0: any number, -1: as many as the setting allows (null in replies).",
            "rights",
            highest=999_999,
        ),
    ] = None
    hnr_exempt: Annotated[bool, Field("The user gets no hit-and-runs.", "rights")] = False
    visible: Annotated[bool, Field("Return the user's peers to others, or hide them.", "rights", off="hidden")] = True
    group: Annotated[
        int | None,
        Field("ID of the user's group; -1: none (null in replies).", "rights", lowest=1, highest=MAX_GROUP_ID),
    ] = None

    def settable(self) -> dict[str, Any]:
        """FIELDS with their values, and the ends of the multipliers as fields of their own."""
        return shown(self, FIELDS)


@dataclass(frozen=True, slots=True)
class Additions:
    """What a change adds to totals, in the step that reads them: nothing that announces credit meanwhile is lost."""

    add_uploaded: Annotated[
        int, Field("Bytes to add to `uploaded`; negative: to subtract. Never below 0.", "adds", lowest=-MAX_EXACT)
    ] = 0
    add_downloaded: Annotated[int, Field("The same for `downloaded`.", "adds", lowest=-MAX_EXACT)] = 0


FIELDS = tuple(settable(User))
"""The API, the command line, the dashboard and files set each of them."""
_SETTABLE = {**settable(User), **settable(Additions)}
ADDITIONS = tuple(settable(Additions))
_PARTS = {
    part: tuple(name for name, each in settable(User).items() if each.part == part)
    for part in ("rights", "profile", "totals")
}
TOTALS = _PARTS["totals"]
MAX_NAME = fields_of(User)["name"].max_length
STORED_RIGHTS = ("user_id", *_PARTS["rights"])
STORED_TOTALS = (*_PARTS["profile"], *TOTALS, "unreported")
"""What is read of a user, from the row of the passkey and from that of the id."""


def user_of(row: Sequence[bytes | None]) -> User:
    """``row``: the passkey, STORED_RIGHTS and STORED_TOTALS."""
    known, names = fields_of(User, plain=True), ("passkey", *STORED_RIGHTS, *STORED_TOTALS)
    return User(**{name: known[name].read(value) for name, value in zip(names, row, strict=True)})


_PASSKEY = re.compile(r"[0-9A-Za-z_-]{16,64}", re.ASCII)
GROUP_ID = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_USER_ID = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)


def is_user_id(text: str) -> bool:
    return _USER_ID.fullmatch(text) is not None


def checked_passkey(passkey: str) -> str:
    """Returns ``passkey``. Raises ClientError if it is invalid."""
    if not _PASSKEY.fullmatch(passkey):
        raise ClientError("a passkey is 16 to 64 letters, digits, _ or -")
    return passkey


def new_passkey() -> str:
    """A passkey of 160 random bits."""
    return secrets.token_hex(20)


def checked_fields(fields: Mapping[str, Value]) -> dict[str, str]:
    """Returns the fields as stored; an empty text means none, and so does -1 for max_downloads. Enabling a user clears
    the reason, unless one is given. Raises ClientError for an unknown field or an invalid value."""
    row: dict[str, str] = {}
    for name, value in fields.items():
        if name not in _SETTABLE:
            raise ClientError("a user has no such field")
        if name.removeprefix("add_") in fields and name in ADDITIONS:
            raise ClientError(f"give {name.removeprefix('add_')} or {name}, not both")
        row[name] = _SETTABLE[name].stored(value)
    if row.get("enabled") == "1":
        row.setdefault("reason", "")
    return row


def pack_user(user_id: str, passkey: str, row: Mapping[str, str]) -> bytes:
    """The argument for one user, as user_fields.lua reads it. ``row``: as ``checked_fields`` returns it."""
    user: dict[str, str | dict[str, str]] = {"id": user_id, "passkey": passkey, "random": ""}
    if not passkey:
        user["random"] = new_passkey()
    if "name" in row:
        user["folded"] = fold_name(row["name"])
    for part, names in _PARTS.items():
        user[part] = {name: row[name] for name in names if name in row}
    user["adds"] = {name.removeprefix("add_"): row[name] for name in ADDITIONS if name in row}
    return orjson.dumps(user)
