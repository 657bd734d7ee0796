"""The fields of a user that programs set: their names, their valid values, and how they go to the scripts."""

import re
import secrets
from collections.abc import Callable, Mapping

import orjson

from tracker.errors import ClientError
from tracker.store.schema.folding import fold_name
from tracker.store.schema.multipliers import MULTIPLIERS, checked_multipliers
from tracker.store.users.rules import LIMIT, RULE_FIELDS

RIGHTS = ("enabled", "can_leech", "reason", *RULE_FIELDS)
"""Fields of ``t:user:<passkey>``, which each announce reads."""
PROFILE = ("name",)
TOTALS = ("uploaded", "downloaded", "snatches", "announces", "credit_cut")
FIELDS = (*RIGHTS, *PROFILE, *TOTALS)
"""The API, the command line, the dashboard and files set each of them."""
_PARTS = {"rights": RIGHTS, "profile": PROFILE, "totals": TOTALS}
FLAGS = ("enabled", "can_leech", "hnr_exempt")
Value = str | int
"""Text, a number, or a boolean."""
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
    """Returns the fields as stored; an empty text means none, and so does -1 for max_downloads. Enabling a user clears
    the reason, unless one is given. Raises ClientError for an unknown field or an invalid value."""
    row: dict[str, str] = {}
    for name, value in fields.items():
        check = _CHECKS.get(name)
        if check is None:
            raise ClientError("a user has no such field")
        row[name] = check(str(int(value)) if isinstance(value, bool) else str(value))
    if row.get("enabled") == "1":
        row.setdefault("reason", "")
    return row


def _checked_flag(text: str) -> str:
    if text not in ("0", "1"):
        raise ClientError("enabled, can_leech and hnr_exempt are 0 or 1")
    return text


def _checked_total(text: str) -> str:
    if not _TOTAL.fullmatch(text) or int(text) > MAX_TOTAL:
        raise ClientError(f"totals are whole numbers up to {MAX_TOTAL}")
    return text


def _checked_limit(text: str) -> str:
    if text in ("", "-1"):
        return ""
    if not LIMIT.fullmatch(text):
        raise ClientError("max_downloads is a whole number of at most 6 digits, or -1")
    return text


_CHECKS: Mapping[str, Callable[[str], str]] = {
    **dict.fromkeys(FLAGS, _checked_flag),
    **dict.fromkeys(MULTIPLIERS, checked_multipliers),
    **dict.fromkeys(TOTALS, _checked_total),
    "hnr_exempt": lambda text: _checked_flag(text).replace("0", ""),
    "max_downloads": _checked_limit,
    "name": lambda text: text.strip()[:MAX_NAME],
    "reason": lambda text: text.strip()[:MAX_REASON],
}
"""Each returns the value as stored, empty for none, or raises ClientError."""


def pack_user(user_id: str, passkey: str, row: Mapping[str, str]) -> bytes:
    """The argument for one user, as user_fields.lua reads it. ``row``: as ``checked_fields`` returns it."""
    user: dict[str, str | dict[str, str]] = {"id": user_id, "passkey": passkey, "random": ""}
    if not passkey:
        user["random"] = new_passkey()
    if "name" in row:
        user["folded"] = fold_name(row["name"])
    for part, names in _PARTS.items():
        user[part] = {name: row[name] for name in names if name in row}
    return orjson.dumps(user)
