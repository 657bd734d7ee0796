"""Users as a file or another site has them: taken over with their passkeys and totals."""

import re
import secrets
from collections.abc import Mapping

from tracker.errors import ClientError
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts

_PASSKEY = re.compile(r"[0-9A-Za-z_-]{16,64}", re.ASCII)
_USER_ID = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
_FIGURE = re.compile(r"[0-9]{1,16}", re.ASCII)
_LARGEST = 2**53 - 1
TOTALS = ("uploaded", "downloaded", "snatches", "announces")


class Accounts:
    """The users of one prefix, from outside."""

    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys

    async def bring(self, fields: Mapping[str, str], *, replace_totals: bool = False) -> bool:
        """Takes over one user (user_id, passkey, enabled, can_leech and totals); True when nobody had that id.

        What ``fields`` leaves out or leaves empty stays as it is; a new user without passkey gets a random one. A
        known user keeps the totals, which may have grown since, unless ``replace_totals``. Raises ClientError for a
        user who has another passkey or is being deleted, for a passkey that is another user's, and for values that cannot be.
        """
        checked = checked_user(fields)
        answer = await self._scripts.bring_user(
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
    """Those that are not empty, if they are a user's. Raises ClientError."""
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
        if not _FIGURE.fullmatch(text) or int(text) > _LARGEST:
            raise ClientError("totals are whole numbers up to 9007199254740991")
    return found
