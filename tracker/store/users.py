"""The users of a private tracker: passkeys, permissions and totals."""

import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from tracker.errors import ClientError
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts

_PASSKEY = re.compile(r"[0-9A-Za-z_-]{16,64}", re.ASCII)
_USER_ID = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
_TOTALS = ("uploaded", "downloaded", "snatches", "announces")
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
        self._scripts = Scripts(connection, keys.prefix)

    async def add(
        self, user_id: str | None = None, passkey: str | None = None, *, can_leech: bool = True
    ) -> User:
        """A new user; without ``passkey`` one with 160 random bits is made. Raises ClientError when either is taken."""
        passkey = _checked(passkey)
        if user_id is not None and not _USER_ID.fullmatch(user_id):
            raise ClientError("a user id is a positive number")
        given = await self._scripts.add_user([user_id or "", passkey, int(can_leech)])
        if given is None:
            raise ClientError("this passkey is taken")
        if not given:
            raise ClientError("a user with this id exists")
        await self._changed(given.decode())
        return User(given.decode(), passkey, True, can_leech)

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
        found = await self._get_all([passkey])
        return found[0] if found else None

    async def _get_all(self, passkeys: Sequence[str]) -> list[User]:
        keys, pipeline = self._keys, self._connection.pipeline
        rows = await pipeline(
            *(("HMGET", keys.passkey(passkey), "user_id", "enabled", "can_leech") for passkey in passkeys)
        )
        users = {p: [_text(value) for value in row] for p, row in zip(passkeys, rows, strict=True) if row[0]}
        totals = await pipeline(*(("HMGET", keys.user(user[0]), *_TOTALS) for user in users.values()))
        return [
            User(
                user_id, passkey, enabled != "0", can_leech != "0", *(int(figure or 0) for figure in figures)
            )
            for (passkey, (user_id, enabled, can_leech)), figures in zip(users.items(), totals, strict=True)
        ]

    async def edit(self, passkey: str, fields: Mapping[str, bool]) -> None:
        """Sets ``enabled`` or ``can_leech`` and leaves the rest; raises ClientError for an unknown passkey."""
        if not fields.keys() <= {"enabled", "can_leech"}:
            raise ClientError("a user has no such field")
        user = await self.get(passkey)
        if user is None:
            raise ClientError("there is no such user")
        if fields:
            row = [part for name, value in fields.items() for part in (name, int(value))]
            await self._connection.command("HSET", self._keys.passkey(passkey), *row)
            await self._changed(user.user_id)

    async def rotate(self, passkey: str, new: str | None = None) -> User:
        """A new passkey for a user; the old one is unknown at once. Raises ClientError when the new one is taken."""
        new = _checked(new)
        user_id = await self._scripts.rotate_user([passkey, new])
        if user_id is None:
            raise ClientError("there is no such user")
        if not user_id:
            raise ClientError("this passkey is taken")
        await self._changed(user_id.decode())
        return await self.find(new)

    async def delete(self, who: str) -> None:
        """Deletes a user, by id or passkey, with every key; peers that are left in swarms are reaped as always.

        The passkey goes first, so that nothing is credited any more, and the list of users last: a deletion
        that was interrupted can be repeated by user id.
        """
        user_id, passkey = await self._identify(who)
        command, keys = self._connection.command, self._keys
        await command("UNLINK", keys.passkey(passkey))
        for name in SETS:
            async for page in self._pages(keys.user_set(user_id, name)):
                await command("UNLINK", *(keys.user_torrent(user_id, torrent_id) for torrent_id in page))
        await command("UNLINK", keys.user(user_id), *(keys.user_set(user_id, name) for name in SETS))
        await command("ZREM", keys.users(), passkey)
        await self._changed(user_id)

    async def _identify(self, who: str) -> tuple[str, str]:
        """(user id, passkey), also of a user who is half deleted."""
        passkey = await self.passkey_of(who) if _USER_ID.fullmatch(who) else None
        if passkey is not None:
            return who, passkey
        user = await self.find(who)
        return user.user_id, user.passkey

    async def _pages(self, key: str) -> AsyncIterator[list[str]]:
        cursor = 0
        while True:
            after, members = await self._connection.command("SSCAN", key, cursor, "COUNT", 500)
            if members:
                yield [member.decode() for member in members]
            if not (cursor := int(after)):
                return

    async def torrents(self, user_id: str, name: str) -> list[str]:
        """The torrent ids in one of the user's sets (active, complete, incomplete, hnr)."""
        pages = self._pages(self._keys.user_set(user_id, name))
        return sorted({member async for page in pages for member in page}, key=int)

    async def page(self, offset: int, count: int = 100) -> list[User]:
        """Users by id, ``count`` from ``offset`` on."""
        passkeys = await self._connection.command("ZRANGE", self._keys.users(), offset, offset + count - 1)
        return await self._get_all([passkey.decode() for passkey in passkeys])

    async def _changed(self, what: str) -> None:
        await self._connection.command("PUBLISH", self._keys.channel("users"), what)


def _text(value: bytes | None) -> str:
    return value.decode() if value else ""


def _checked(passkey: str | None) -> str:
    """The passkey asked for, or a new one."""
    passkey = passkey or secrets.token_hex(20)
    if not _PASSKEY.fullmatch(passkey):
        raise ClientError("a passkey is 16 to 64 letters, digits, _ or -")
    return passkey
