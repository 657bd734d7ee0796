"""The users of a private tracker: passkeys, permissions and totals."""

import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracker.errors import ClientError
from tracker.store.connection import Connection
from tracker.store.figures import ranked, whole
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts

_PASSKEY = re.compile(r"[0-9A-Za-z_-]{16,64}", re.ASCII)
_USER_ID = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
_TOTALS = ("uploaded", "downloaded", "snatches", "announces")
_PAGE = 500
_DELETED_TOGETHER = 100
"""Torrents of each of a user's sets: what announces wait for."""
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
            User(user_id, passkey, enabled != "0", can_leech != "0", *map(whole, figures))
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

        The first step takes the passkey away and the user out of the list, so that nothing is credited any more. What is
        interrupted after it goes on when it is repeated by user id, or with ``finish_deletions``.
        """
        await self._delete(*await self.identify(who))

    async def finish_deletions(self) -> int:
        """Goes on with deletions that were begun, here or elsewhere, until they are done: how many there were."""
        begun = await self._connection.command("SMEMBERS", self._keys.deleting())
        for user_id in begun:
            await self._delete(user_id.decode(), "")
        return len(begun)

    async def _delete(self, user_id: str, passkey: str) -> None:
        """Without ``passkey`` only what was begun goes on."""
        while await self._scripts.delete_user([user_id, passkey, _DELETED_TOGETHER]):
            passkey = ""
        await self._changed(user_id)

    async def identify(self, who: str) -> tuple[str, str]:
        """(user id, passkey) of a user to delete, also of one whose passkey somebody has deleted; no passkey when the deletion
        has begun. Raises ClientError when there is no such user."""
        if _USER_ID.fullmatch(who):
            passkey = await self.passkey_of(who)
            if passkey is not None:
                return who, passkey
            if await self._connection.command("SISMEMBER", self._keys.deleting(), who):
                return who, ""
        user = await self.find(who)
        return user.user_id, user.passkey

    async def _pages(self, key: str) -> AsyncIterator[list[str]]:
        cursor = 0
        while True:
            after, members = await self._connection.command("SSCAN", key, cursor, "COUNT", 500)
            if members:
                yield [member.decode("utf-8", "replace") for member in members]
            if not (cursor := int(after)):
                return

    async def torrents(self, user_id: str, name: str) -> list[str]:
        """The torrent ids in one of the user's sets (active, complete, incomplete, hnr)."""
        pages = self._pages(self._keys.user_set(user_id, name))
        # As by number, and no trouble with what is none: a site may have written it.
        return sorted({member async for page in pages for member in page}, key=lambda i: (len(i), i))

    async def torrents_page(
        self, user_id: str, set_name: str, cursor: int = 0, count: int = 100
    ) -> tuple[int, list[str]]:
        """(next cursor, about ``count`` torrent ids) of one of SETS, in no order; cursor 0 begins and ends.

        One may come twice. A set of a few hundred comes whole.
        """
        key = self._keys.user_set(user_id, _set_name(set_name))
        after, members = await self._connection.command("SSCAN", key, cursor, "COUNT", count)
        return int(after), [member.decode("utf-8", "replace") for member in members]

    async def set_sizes(self, user_id: str) -> dict[str, int]:
        """How many torrents are in each of SETS."""
        sizes = await self._connection.pipeline(
            *(("SCARD", self._keys.user_set(user_id, name)) for name in SETS)
        )
        return {name: size if isinstance(size, int) else 0 for name, size in zip(SETS, sizes, strict=True)}

    async def torrent(self, user_id: str, torrent_id: str) -> dict[str, str] | None:
        """What the user has on a torrent, added up over all of the user's peer ids: the fields of
        ``t:u:<uid>:t:<tid>``; None when the user never was there."""
        (found,) = await self.on_torrents(user_id, [torrent_id])
        return found or None

    async def on_torrents(self, user_id: str, torrent_ids: Sequence[str]) -> list[dict[str, str]]:
        """The same of several torrents, in their order; nothing where the user never was."""
        rows = await self._connection.pipeline(
            *(("HGETALL", self._keys.user_torrent(user_id, torrent_id)) for torrent_id in torrent_ids)
        )
        return [_fields(row) for row in rows]

    async def count(self) -> int:
        """How many users ``page`` has to show."""
        return int(await self._connection.command("ZCARD", self._keys.users()))

    async def page(self, offset: int, count: int = 100) -> list[User]:
        """Users by id, ``count`` from ``offset`` on."""
        passkeys = await self._connection.command("ZRANGE", self._keys.users(), offset, offset + count - 1)
        return await self._get_all([passkey.decode() for passkey in passkeys])

    # Hit and runs

    async def hit_and_runs(self, offset: int = 0, count: int = 100) -> list[tuple[str, int]]:
        """(user id, how many) of the users who have any, most first."""
        index = self._keys.hit_and_runs()
        return ranked(
            await self._connection.command("ZRANGE", index, offset, offset + count - 1, "REV", "WITHSCORES")
        )

    async def hit_and_run_count(self) -> int:
        """How many users have any."""
        return int(await self._connection.command("ZCARD", self._keys.hit_and_runs()))

    async def forgive(self, user_id: str, torrent_id: str | None = None) -> int:
        """Takes a torrent, or all, out of the user's hit and runs: how many there were.

        What the user had downloaded there until now makes none again; as much as makes one, downloaded from now on, does.
        """
        forgiven = 0
        if torrent_id is not None:
            forgiven = int(await self._scripts.forgive([user_id, torrent_id]))
        else:
            async for page in self._pages(self._keys.user_set(user_id, "hnr")):
                forgiven += int(await self._scripts.forgive([user_id, *page]))
        if forgiven:
            await self._changed(user_id)
        return forgiven

    async def reindex_hit_and_runs(self) -> int:
        """Makes the index behind ``hit_and_runs`` anew, out of the users' sets: how many users have any.

        For a store of before there was the index, or after somebody else changed the sets. Walks the key space page by
        page, and may run beside a tracker, which meanwhile keeps it as always.
        """
        async for user_ids in self._owing():
            await self._scripts.rank_debts(user_ids)
        cursor = -1
        while cursor:
            after, pairs = await self._connection.command(
                "ZSCAN", self._keys.hit_and_runs(), max(cursor, 0), "COUNT", _PAGE
            )
            cursor = int(after)
            if pairs:
                await self._scripts.rank_debts([user_id for user_id, _ in ranked(pairs)])
        return await self.hit_and_run_count()

    async def _owing(self) -> AsyncIterator[list[str]]:
        """Whoever has a set of hit and runs; a user may come twice."""
        head, tail = self._keys.user_set("*", "hnr").split("*")
        cursor = -1
        while cursor:
            after, found = await self._connection.command(
                "SCAN", max(cursor, 0), "MATCH", f"{head}*{tail}", "COUNT", _PAGE, "TYPE", "set"
            )
            cursor = int(after)
            names = (key.decode("utf-8", "replace") for key in found)
            page = [name[len(head) : -len(tail)] for name in names if name.startswith(head)]
            if page:
                yield page

    async def _changed(self, what: str) -> None:
        await self._connection.command("PUBLISH", self._keys.channel("users"), what)


def _text(value: bytes | None) -> str:
    return value.decode("utf-8", "replace") if value else ""


def _fields(row: Any) -> dict[str, str]:
    """A hash as text, however the client has it; nothing for what is no hash."""
    if isinstance(row, Exception):
        return {}
    pairs = row.items() if isinstance(row, Mapping) else zip(row[::2], row[1::2], strict=True)
    return {_text(field): _text(value) for field, value in pairs}


def _set_name(name: str) -> str:
    if name not in SETS:
        raise ClientError("a user has no such set")
    return name


def _checked(passkey: str | None) -> str:
    """The passkey asked for, or a new one."""
    passkey = passkey or secrets.token_hex(20)
    if not _PASSKEY.fullmatch(passkey):
        raise ClientError("a passkey is 16 to 64 letters, digits, _ or -")
    return passkey
