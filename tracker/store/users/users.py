"""The users: passkeys, permissions and totals."""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from tracker.errors import ClientError, Conflict
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.lenient_numbers import ranked
from tracker.store.schema.multipliers import RuleChange, has_changed
from tracker.store.swarms.reaping import Reaping
from tracker.store.users.fields import (
    STORED_RIGHTS,
    STORED_TOTALS,
    User,
    Value,
    checked_fields,
    checked_passkey,
    is_user_id,
    new_passkey,
    pack_user,
    user_of,
)

_READ_PER_CALL = 200
"""Users that one script call reads. Takes the store about a millisecond. Announces wait for that call."""
_PAGE = 500
_MAX_DELETED_PER_CALL = 100
"""Max torrents of each user set that one script call deletes. Announces wait for that call."""
HAS_PEERS = 2
"""The answer of delete_user.lua while peers of the user must be removed first."""
SETS = ("active", "complete", "incomplete", "hnr")


class Users:
    """The users under one key prefix. Changes apply to the next announce, as the announce script reads the user.

    ``max_changes`` returns about how many changes the feed keeps; 0: none are recorded. ``reaping`` removes the peers
    of deleted users. ``clock`` returns epoch seconds.
    """

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        max_changes: Callable[[], int],
        reaping: Reaping,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._max_changes = max_changes
        self._reaping = reaping
        self._clock = clock

    async def add(self, user_id: str | None = None, passkey: str | None = None, **fields: Value) -> User:
        """Adds a user with some of FIELDS. Without ``passkey``, generates one with 160 random bits.

        Raises ClientError if a value is invalid, Conflict if the id or the passkey is taken.
        """
        passkey = checked_passkey(passkey or new_passkey())
        if user_id is not None and not is_user_id(user_id):
            raise ClientError("a user id is a positive number")
        given = await self._scripts.add_user([pack_user(user_id or "", passkey, checked_fields(fields))])
        if given is None:
            raise Conflict("this passkey is taken")
        if not given:
            raise Conflict("a user with this id exists")
        await self._changed(given.decode())
        return await self.find(passkey)

    async def passkey_of(self, user_id: str) -> str | None:
        found = await self._connection.command("ZRANGE", self._keys.users(), user_id, user_id, "BYSCORE")
        return found[0].decode() if found else None

    async def find(self, who: str) -> User:
        """Finds a user by id or passkey. Raises ClientError if there is none."""
        by_id = await self.passkey_of(who) if is_user_id(who) else None
        user = await self.get(by_id or who)
        if user is None:
            raise ClientError("there is no such user")
        return user

    async def get(self, passkey: str) -> User | None:
        found = await self.get_all([passkey])
        return found[0] if found else None

    async def by_ids(self, user_ids: Sequence[str]) -> list[User]:
        """The users with these ids, in order. Others are left out."""
        return await self._read([user_id for user_id in user_ids if is_user_id(user_id)], by_id=True)

    async def get_all(self, passkeys: Sequence[str]) -> list[User]:
        """Returns the users with these passkeys, in order. Unknown passkeys, and users with a key of a wrong type, are
        left out."""
        return await self._read(passkeys, by_id=False)

    async def _read(self, names: Sequence[str], *, by_id: bool) -> list[User]:
        rows: list[list[bytes | None] | None] = []
        for first in range(0, len(names), _READ_PER_CALL):
            some = names[first : first + _READ_PER_CALL]
            rows += await self._scripts.read_users(
                [int(by_id), " ".join(STORED_RIGHTS), " ".join(STORED_TOTALS), *some]
            )
        return [user_of(row) for row in rows if row is not None]

    async def edit(self, passkey: str, fields: Mapping[str, Value]) -> None:
        """Sets some of FIELDS, as ``checked_fields`` reads them. Enabling a user clears the reason.

        Raises ClientError for another field, an invalid value or an unknown passkey.
        """
        row = checked_fields(fields)
        user_id = await self._scripts.edit_user([pack_user("", passkey, row)])
        if user_id is None:
            raise ClientError("there is no such user")
        if not user_id:
            raise ClientError("this user has an invalid id, or the id of another user")
        if row:
            await self._changed(user_id.decode("utf-8", "replace"))

    async def change_rule(self, passkey: str, change: RuleChange) -> bool:
        """Sets or removes one rule of a multiplier. False if there is none to remove.

        Raises ClientError for too many rules and for an unknown passkey.
        """
        answer = await self._scripts.set_rule(change.arguments(passkey=passkey))
        if answer is None:
            raise ClientError("there is no such user")
        if changed := has_changed(answer):
            await self._changed(answer[1].decode("utf-8", "replace"))
        return changed

    async def rotate(self, passkey: str, new: str | None = None) -> User:
        """Replaces a user's passkey. The old one is invalid at once, except for `stopped` of the peers that used it.

        Without ``new``, generates one. Raises ClientError if the old passkey is unknown, Conflict if the new one is
        taken.
        """
        new = checked_passkey(new or new_passkey())
        user_id = await self._scripts.rotate_user([passkey, new, int(self._clock())])
        if user_id is None:
            raise ClientError("there is no such user")
        if not user_id:
            raise Conflict("this passkey is taken")
        await self._changed(user_id.decode())
        return await self.find(new)

    async def delete(self, who: str) -> None:
        """Deletes a user, by id or passkey, with all their keys and peers.

        The first step deletes the passkey and the list entry, so no more traffic is credited. After an interruption,
        repeat the call with the user id, or call ``finish_deletions``. Raises ClientError if there is no such user.
        """
        await self._delete(*await self.identify(who))

    async def finish_deletions(self) -> int:
        """Completes interrupted deletions, also those of other processes. Returns how many there were."""
        unfinished = await self._connection.command("SMEMBERS", self._keys.deleting())
        for user_id in unfinished:
            await self._delete(user_id.decode(), "")
        return len(unfinished)

    async def _delete(self, user_id: str, passkey: str) -> None:
        """Deletes a user. An empty ``passkey`` continues a deletion that has begun."""
        while left := await self._scripts.delete_user([user_id, passkey, _MAX_DELETED_PER_CALL]):
            passkey = ""
            if left == HAS_PEERS:
                await self._reaping.remove([f"user:{user_id}"])
        await self._changed(user_id)

    async def identify(self, who: str) -> tuple[str, str]:
        """Returns (user id, passkey) of a user to delete, by id or passkey.

        Also finds a user by id if a site deleted the passkey's key. The passkey is empty if the deletion has begun.
        Raises ClientError if there is no such user.
        """
        if is_user_id(who):
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
        """Returns the sorted torrent ids in one of the user's SETS."""
        pages = self._pages(self._keys.user_set(user_id, name))
        # Sorts by number without int(): a site may have written an id that is not a number.
        return sorted({member async for page in pages for member in page}, key=lambda i: (len(i), i))

    async def torrents_page(
        self, user_id: str, set_name: str, cursor: int = 0, count: int = 100
    ) -> tuple[int, list[str]]:
        """Returns (next cursor, about ``count`` torrent ids) of one of SETS, unordered.

        Cursor 0 begins and ends the walk. An id may appear twice. A set of a few hundred ids is one page.
        Raises ClientError for another set.
        """
        key = self._keys.user_set(user_id, checked_set(set_name))
        after, members = await self._connection.command("SSCAN", key, cursor, "COUNT", count)
        return int(after), [member.decode("utf-8", "replace") for member in members]

    async def first_torrents(self, user_id: str, set_name: str, count: int) -> tuple[list[str], bool]:
        """Returns (at most ``count`` torrent ids of one of SETS, unordered, whether these are all)."""
        cursor, found = 0, dict[str, None]()
        while True:
            cursor, some = await self.torrents_page(user_id, set_name, cursor, count)
            found |= dict.fromkeys(some)
            if not cursor or len(found) >= count:
                return list(found)[:count], not cursor and len(found) <= count

    async def set_sizes(self, user_id: str) -> dict[str, int]:
        """Returns the number of torrents in each of SETS. A key of the wrong type counts as 0."""
        return sum_sizes([await self._connection.pipeline(*size_commands(self._keys, user_id))])

    async def torrent(self, user_id: str, torrent_id: str) -> dict[str, str] | None:
        """Returns the user's fields on a torrent (``t:u:<uid>:t:<tid>``), summed over all of the user's peer ids.

        None if the user has never been on the torrent.
        """
        (found,) = await self.on_torrents(user_id, [torrent_id])
        return found or None

    async def on_torrents(self, user_id: str, torrent_ids: Sequence[str]) -> list[dict[str, str]]:
        """Returns the fields of ``torrent`` for several torrents, in order. Empty where the user has never been."""
        return await self.accounts([(user_id, torrent_id) for torrent_id in torrent_ids])

    async def accounts(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
        """Returns the same for several users: (user id, torrent id)."""
        rows = await self._connection.pipeline(
            *(("HGETALL", self._keys.user_torrent(*pair)) for pair in pairs)
        )
        return [fields_of(row) for row in rows]

    async def count(self) -> int:
        """Returns the number of users."""
        return int(await self._connection.command("ZCARD", self._keys.users()))

    async def page(self, offset: int, count: int = 100) -> list[User]:
        """Returns ``count`` users from ``offset`` on, ordered by id."""
        passkeys = await self._connection.command("ZRANGE", self._keys.users(), offset, offset + count - 1)
        return await self.get_all([passkey.decode() for passkey in passkeys])

    async def hit_and_runs(self, offset: int = 0, count: int = 100) -> list[tuple[str, int]]:
        """Returns (user id, number of hit-and-runs) of the users who have any, highest number first."""
        index = self._keys.hit_and_runs()
        return ranked(
            await self._connection.command("ZRANGE", index, offset, offset + count - 1, "REV", "WITHSCORES")
        )

    async def hit_and_run_count(self) -> int:
        """Returns the number of users who have hit-and-runs."""
        return int(await self._connection.command("ZCARD", self._keys.hit_and_runs()))

    async def forgive(self, user_id: str, torrent_id: str | None = None) -> int:
        """Clears the user's hit-and-run on one torrent, or on all of them, also pending ones. Returns how many it
        cleared.

        Past downloads will not count again. New downloads of the required amount make a new hit-and-run.
        """
        forgiven, head = 0, (user_id, self._max_changes())
        if torrent_id is not None:
            forgiven = int(await self._scripts.forgive([*head, torrent_id]))
        else:
            for name in ("hnr", "incomplete", "complete"):  # a pending one is in one of the last two
                async for page in self._pages(self._keys.user_set(user_id, name)):
                    forgiven += int(await self._scripts.forgive([*head, *page]))
        if forgiven:
            await self._changed(user_id)
        return forgiven

    async def reindex_hit_and_runs(self) -> int:
        """Rebuilds the index of ``hit_and_runs`` from the users' sets. Returns how many users have hit-and-runs.

        Needed after a site changed the sets. It walks the key space, and may run while trackers update the index.
        """
        async for user_ids in self._with_hit_and_runs():
            await self._scripts.rank_hit_and_runs(user_ids)
        cursor = -1
        while cursor:
            after, pairs = await self._connection.command(
                "ZSCAN", self._keys.hit_and_runs(), max(cursor, 0), "COUNT", _PAGE
            )
            cursor = int(after)
            if pairs:
                await self._scripts.rank_hit_and_runs([user_id for user_id, _ in ranked(pairs)])
        return await self.hit_and_run_count()

    async def _with_hit_and_runs(self) -> AsyncIterator[list[str]]:
        """Yields pages of ids of users with a set of hit-and-runs. An id may appear twice."""
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

    async def _changed(self, user_id: str) -> None:
        await self._connection.command("PUBLISH", self._keys.channel("users"), user_id)


def _text(value: bytes | None) -> str:
    return value.decode("utf-8", "replace") if value else ""


def size_commands(keys: Keys, user_id: str) -> list[tuple[str, str]]:
    """The commands that read the size of each of SETS."""
    return [("SCARD", keys.user_set(user_id, name)) for name in SETS]


def sum_sizes(parts: Iterable[list[Any]]) -> dict[str, int]:
    """The sums of the replies to ``size_commands``, by set. A key of the wrong type counts as 0."""
    columns = zip(*parts, strict=True)
    return {
        name: sum(size for size in sizes if isinstance(size, int))
        for name, sizes in zip(SETS, columns, strict=True)
    }


def fields_of(reply: list[bytes] | Exception) -> dict[str, str]:
    """Returns the fields of a pipelined HGETALL reply as text. Empty for a key of the wrong type."""
    if isinstance(reply, Exception):
        return {}
    return {_text(field): _text(value) for field, value in zip(reply[::2], reply[1::2], strict=True)}


def checked_set(name: str) -> str:
    if name not in SETS:
        raise ClientError("a user has no such set")
    return name
