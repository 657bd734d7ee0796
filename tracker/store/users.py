"""The users of a private tracker: passkeys, permissions and totals."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracker.errors import ClientError
from tracker.store.connection import Connection
from tracker.store.keys import Keys

_PASSKEY = re.compile(r"[0-9A-Za-z_-]{16,64}", re.ASCII)
_USER_ID = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
SETS = ("active", "complete", "incomplete", "hnr")


@dataclass(frozen=True, slots=True)
class User:
    user_id: str
    passkey: str
    enabled: bool
    can_leech: bool
    uploaded: int = 0
    downloaded: int = 0
    snatches: int = 0
    announces: int = 0


class Users:
    """Changes hold from the very next announce: the announce script itself reads the user."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys

    async def add(self, user_id: str | None = None, passkey: str | None = None, *, can_leech: bool = True) -> User:
        """A new user; without ``passkey`` one with 160 random bits is made. Raises ClientError when either is taken."""
        passkey = passkey or secrets.token_hex(20)
        if not _PASSKEY.fullmatch(passkey):
            raise ClientError("a passkey is 16 to 64 letters, digits, _ or -")
        command, keys = self._connection.command, self._keys
        user_id = user_id or await self._new_id()
        if not _USER_ID.fullmatch(user_id):
            raise ClientError("a user id is a positive number")
        if await self.passkey_of(user_id):
            raise ClientError("a user with this id exists")
        if not await command("HSETNX", keys.passkey(passkey), "user_id", user_id):
            raise ClientError("this passkey is taken")
        await command("HSET", keys.passkey(passkey), "enabled", "1", "can_leech", str(int(can_leech)))
        await command("HSET", keys.user(user_id), "passkey", passkey)
        await command("ZADD", keys.users(), user_id, passkey)
        await self._changed(user_id)
        return User(user_id, passkey, True, can_leech)

    async def _new_id(self) -> str:
        while True:
            user_id = str(await self._connection.command("INCR", self._keys.last_user_id()))
            if not await self._connection.command("ZCOUNT", self._keys.users(), user_id, user_id):
                return user_id

    async def passkey_of(self, user_id: str) -> str | None:
        found = await self._connection.command("ZRANGE", self._keys.users(), user_id, user_id, "BYSCORE")
        return found[0].decode() if found else None

    async def find(self, who: str) -> User:
        """By user id or passkey; raises ClientError when there is no such user."""
        by_id = await self.passkey_of(who) if _USER_ID.fullmatch(who) else None
        user = await self.get(by_id or who)
        if user is None:
            raise ClientError("there is no such user")
        return user

    async def get(self, passkey: str) -> User | None:
        row = await self._connection.command("HMGET", self._keys.passkey(passkey), "user_id", "enabled", "can_leech")
        if row[0] is None:
            return None
        user_id = row[0].decode()
        totals = await self._connection.command(
            "HMGET", self._keys.user(user_id), "uploaded", "downloaded", "snatches", "announces"
        )
        figures = (int(total or 0) for total in totals)
        return User(user_id, passkey, row[1] != b"0", row[2] != b"0", *figures)

    async def edit(self, passkey: str, fields: Mapping[str, bool]) -> None:
        """Sets ``enabled`` or ``can_leech`` and leaves the rest; raises ClientError for an unknown passkey."""
        if await self.get(passkey) is None:
            raise ClientError("there is no such user")
        for name, value in fields.items():
            if name not in ("enabled", "can_leech"):
                raise ClientError("a user has no such field")
            await self._connection.command("HSET", self._keys.passkey(passkey), name, str(int(value)))
        await self._changed(passkey)

    async def rotate(self, passkey: str, new: str | None = None) -> User:
        """A new passkey for a user; the old one is unknown at once."""
        user = await self.get(passkey)
        new = new or secrets.token_hex(20)
        if user is None:
            raise ClientError("there is no such user")
        if not _PASSKEY.fullmatch(new):
            raise ClientError("a passkey is 16 to 64 letters, digits, _ or -")
        command, keys = self._connection.command, self._keys
        if not await command("RENAMENX", keys.passkey(passkey), keys.passkey(new)):
            raise ClientError("this passkey is taken")
        await command("ZREM", keys.users(), passkey)
        await command("ZADD", keys.users(), user.user_id, new)
        await command("HSET", keys.user(user.user_id), "passkey", new)
        await self._changed(user.user_id)
        return await self.find(new)

    async def delete(self, passkey: str) -> None:
        """Deletes a user and every key of it; peers that are left in swarms are reaped as always."""
        user = await self.find(passkey)
        command, keys = self._connection.command, self._keys
        await command("UNLINK", keys.passkey(user.passkey))
        await command("ZREM", keys.users(), user.passkey)
        for name in SETS:
            async for torrent_id in self._members(keys.user_set(user.user_id, name)):
                await command("UNLINK", keys.user_torrent(user.user_id, torrent_id))
        await command("UNLINK", keys.user(user.user_id), *(keys.user_set(user.user_id, name) for name in SETS))
        await self._changed(user.user_id)

    async def _members(self, key: str) -> Any:
        cursor = 0
        while True:
            after, members = await self._connection.command("SSCAN", key, cursor, "COUNT", 500)
            for member in members:
                yield member.decode()
            if not (cursor := int(after)):
                return

    async def torrents(self, user_id: str, name: str) -> list[str]:
        """The torrent ids in one of the user's sets (active, complete, incomplete, hnr)."""
        return [member async for member in self._members(self._keys.user_set(user_id, name))]

    async def page(self, offset: int, count: int = 100) -> list[User]:
        """Users by id, ``count`` from ``offset`` on."""
        passkeys = await self._connection.command("ZRANGE", self._keys.users(), offset, offset + count - 1)
        found = [await self.get(passkey.decode()) for passkey in passkeys]
        return [user for user in found if user]

    async def _changed(self, what: str) -> None:
        await self._connection.command("PUBLISH", self._keys.channel("users"), what)
