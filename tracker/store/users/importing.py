"""Imports users with their passkeys and totals from a file or another site."""

import re
import secrets
from collections.abc import Mapping

from tracker.errors import ClientError
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys

_PASSKEY = re.compile(r"[0-9A-Za-z_-]{16,64}", re.ASCII)
_USER_ID = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
_TOTAL = re.compile(r"[0-9]{1,16}", re.ASCII)
_MAX_TOTAL = 2**53 - 1
TOTALS = ("uploaded", "downloaded", "snatches", "announces")


class UserImport:
    """Imports users under one key prefix."""

    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys

    async def import_user(self, fields: Mapping[str, str], *, replace_totals: bool = False) -> bool:
        """Imports one user: user_id, passkey, enabled, can_leech and TOTALS. Returns True if the id is new.

        A field that is missing or empty keeps its value. A new user without a passkey gets a random one. An existing
        user keeps their totals, which may have grown since the export, unless ``replace_totals`` is set. Raises
        ClientError if the user has another passkey or is being deleted, if the passkey belongs to another user, or
        if a value is invalid.
        """
        checked = checked_user(fields)
        answer = await self._scripts.import_user(
            [
                checked["user_id"],
                checked.get("passkey", ""),
                secrets.token_hex(20),
                *(checked.get(name, "") for name in ("enabled", "can_leech", *TOTALS)),
                int(replace_totals),
            ]
        )
        if answer == b"user":
            raise ClientError("the user with this id has another passkey")
        if answer == b"deleting":
            raise ClientError("the user with this id is being deleted: try again in a few minutes")
        if answer == b"passkey":
            raise ClientError("this passkey belongs to another user")
        await self._connection.command("PUBLISH", self._keys.channel("users"), checked["user_id"])
        return bool(answer)


def checked_user(fields: Mapping[str, str]) -> dict[str, str]:
    """Returns the fields that are not empty. Raises ClientError if a value is invalid."""
    found = {name: value for name, value in fields.items() if value}
    if not _USER_ID.fullmatch(found.get("user_id", "")):
        raise ClientError("a user id is a positive number")
    if "passkey" in found and not _PASSKEY.fullmatch(found["passkey"]):
        raise ClientError("a passkey is 16 to 64 letters, digits, _ or -")
    for name in ("enabled", "can_leech"):
        if found.get(name, "1") not in ("0", "1"):
            raise ClientError("enabled and can_leech are 0 or 1")
    for name in TOTALS:
        text = found.get(name, "0")
        if not _TOTAL.fullmatch(text) or int(text) > _MAX_TOTAL:
            raise ClientError("totals are whole numbers up to 9007199254740991")
    return found
