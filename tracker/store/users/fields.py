"""The fields of a user that programs set: their names, their valid values, and how they go to the scripts."""

import re
import secrets
from collections.abc import Mapping

from tracker.errors import ClientError
from tracker.store.client.pipe import Argument
from tracker.store.schema.folding import fold_name

RIGHTS = ("enabled", "can_leech", "reason")
"""Fields of ``t:user:<passkey>``, which each announce reads."""
PROFILE = ("name",)
TOTALS = ("uploaded", "downloaded", "snatches", "announces")
FIELDS = (*RIGHTS, *PROFILE, *TOTALS)
Value = str | int
"""Text, a total, or a boolean."""
MAX_NAME, MAX_REASON = 255, 1000
MAX_TOTAL = 2**53 - 1

_PASSKEY = re.compile(r"[0-9A-Za-z_-]{16,64}", re.ASCII)
_USER_ID = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
_TOTAL = re.compile(r"[0-9]{1,16}", re.ASCII)


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
    """Returns the fields as stored; an empty name or reason means none. Raises ClientError for an unknown field or an
    invalid value. Enabling a user clears the reason, unless one is given."""
    row = {name: str(int(value)) if isinstance(value, bool) else str(value) for name, value in fields.items()}
    for name, text in row.items():
        if name in ("enabled", "can_leech"):
            if text not in ("0", "1"):
                raise ClientError("enabled and can_leech are 0 or 1")
        elif name in TOTALS:
            if not _TOTAL.fullmatch(text) or int(text) > MAX_TOTAL:
                raise ClientError(f"totals are whole numbers up to {MAX_TOTAL}")
        elif name not in FIELDS:
            raise ClientError("a user has no such field")
    if "name" in row:
        row["name"] = row["name"].strip()[:MAX_NAME]
    if row.get("enabled") == "1":
        row.setdefault("reason", "")
    if "reason" in row:
        row["reason"] = row["reason"].strip()[:MAX_REASON]
    return row


def pack_user(user_id: str, passkey: str, row: Mapping[str, str]) -> list[Argument]:
    """The arguments of one user, as user_fields.lua reads them. ``row``: as ``checked_fields`` returns it."""
    named = "name" in row
    packed: list[Argument] = [
        user_id,
        passkey,
        new_passkey(),
        int(named),
        fold_name(row["name"]) if named else "",
    ]
    for names in (RIGHTS, PROFILE, TOTALS):
        pairs = [part for name in names if name in row for part in (name, row[name])]
        packed += (len(pairs), *pairs)
    return packed
