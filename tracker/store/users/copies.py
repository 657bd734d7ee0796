"""Copies of users' rows in the shards, where announces read them. A single shard has the rows themselves.

The main prefix lists each changed passkey under a number that grows (lua/lib/user_copies.lua), and each shard records
up to which number it has them. So a shard that was unavailable gets what it misses, as it is under the main prefix by
then.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.swarms.reaping import Reaping
from tracker.store.users.fields import is_user_id

USERS_A_CALL = 100
_MAX_DELETED_PER_CALL = 100
"""Max torrents of each user set that one script call deletes. Announces wait for that call."""
_HAS_PEERS = 2
"""The answer of delete_user.lua while peers of the user must be removed first."""
MIN_COMPARED, PAGES = 50, 1000
"""A comparison of all users takes about PAGES pages, of at least MIN_COMPARED users."""


class UserCopies:
    """Raises StoreUnavailable and redis.exceptions.RedisError where not stated otherwise."""

    def __init__(self, shards: Shards, reapings: Mapping[Shard, Reaping]) -> None:
        main = shards.main
        self._connection, self._scripts, self._keys = main.connection, main.scripts, main.keys
        self._shards = shards
        self._reapings = reapings

    async def missing(self, shards: Sequence[Shard]) -> list[Shard]:
        """The shards that miss something. One round trip for each node."""
        version = whole(await self._connection.command("GET", self._keys.copies_version()))
        copied = await self._shards.send([(shard, ("MGET", shard.keys.copied())) for shard in shards])
        return [shard for shard, (text,) in zip(shards, copied, strict=True) if whole(text) != version]

    async def copy_to_all(self) -> None:
        """Gives all shards what they miss. One that does not answer gets it later."""
        await asyncio.gather(*map(self.copy_if_possible, self._shards.others))

    async def copy_if_possible(self, shard: Shard) -> None:
        """The same for one shard; raises nothing."""
        with suppress(StoreUnavailable, RedisError):
            await self.copy_to(shard)

    async def copy_before_serving(self, shard: Shard) -> None:
        """The same for a shard that was unavailable, before its first announce. Raises StoreUnavailable while the main
        prefix is unavailable too, unless it has been so for longer: then nothing was changed there since."""
        if not self._connection.was_lost_before(shard.connection):
            await self.copy_to(shard)

    async def copy_to(self, shard: Shard) -> None:
        """Gives a shard what it misses."""
        while await self._copy_some(shard):
            pass

    async def _copy_some(self, shard: Shard) -> bool:
        """False when the shard misses nothing."""
        copied = whole(await shard.connection.command("GET", shard.keys.copied()))
        version = whole(await self._connection.command("GET", self._keys.copies_version()))
        # A number above that of the main prefix: the main store has lost its latest changes, so all rows are copied
        # again.
        after = copied if copied <= version else 0
        if copied == version:
            return False
        flat = await self._connection.command(
            "ZRANGE", self._keys.copies(), f"({after}", "+inf", "BYSCORE", "LIMIT", 0, USERS_A_CALL, "WITHSCORES"
        )
        members = [member.decode() for member in flat[::2]]
        reached = int(float(flat[-1])) if len(members) == USERS_A_CALL else version
        argv: list[Argument] = [copied, reached]
        for member, row in zip(members, await self._rows(members), strict=True):
            argv += (member, len(row), *row)
        if await shard.scripts.copy_users(argv):
            await self._delete([member for member in members if member.startswith("deleted:")], shard)
        return True

    async def compare_one(self, named: bytes, shard: Shard) -> None:
        """Copies a user, by passkey or id, whose row under the main prefix is not that of ``shard``."""
        name, found = named.decode("ascii", "replace"), []
        if is_user_id(name):
            found = await self._connection.command("ZRANGE", self._keys.users(), name, name, "BYSCORE")
        await self._compare([passkey.decode() for passkey in found] or [name], shard)

    async def compare_page(self, cursor: bytes, shard: Shard) -> bytes:
        """The same for some of the listed users. Returns the next cursor, b"0" at the end."""
        total = int(await self._connection.command("ZCARD", self._keys.users()))
        after, flat = await self._connection.command(
            "ZSCAN", self._keys.users(), cursor, "COUNT", max(MIN_COMPARED, total // PAGES)
        )
        await self._compare([passkey.decode("utf-8", "replace") for passkey in flat[::2]], shard)
        return bytes(after)

    async def _compare(self, passkeys: list[str], shard: Shard) -> None:
        differing: list[str] = []
        for first in range(0, len(passkeys), USERS_A_CALL):
            some = passkeys[first : first + USERS_A_CALL]
            copies = await shard.connection.pipeline(*(("HGETALL", shard.keys.passkey(each)) for each in some))
            rows = await self._rows(some)
            differing += [each for each, row, copy in zip(some, rows, copies, strict=True) if _differs(row, copy)]
        if differing:
            await self._scripts.note_users(differing)
            await self.copy_to_all()

    async def _rows(self, members: list[str]) -> list[list[bytes]]:
        """The fields and values of each passkey; empty for one that does not exist. Limits of a user over all torrents
        are divided, as those in the rules are."""
        rows = await self._connection.pipeline(*(("HGETALL", self._keys.passkey(member)) for member in members))
        return [self._divided(row) if isinstance(row, list) else [] for row in rows]

    def _divided(self, row: list[bytes]) -> list[bytes]:
        fields = dict(zip(row[::2], row[1::2], strict=True))
        limit = fields.get(b"max_downloads", b"")
        if limit.isdigit():
            fields[b"max_downloads"] = b"%d" % math.ceil(int(limit) / len(self._shards))
        return [part for pair in fields.items() for part in pair]

    async def _delete(self, members: list[str], shard: Shard) -> None:
        for member in members:
            await delete_in(shard, self._reapings[shard], member.partition(":")[2])


async def delete_in(shard: Shard, reaping: Reaping, user_id: str, passkey: str = "") -> None:
    """Deletes what a prefix has of a user. An empty ``passkey`` continues a deletion that has begun."""
    while left := await shard.scripts.delete_user([user_id, passkey, _MAX_DELETED_PER_CALL]):
        passkey = ""
        if left == _HAS_PEERS:
            await reaping.remove([f"user:{user_id}"])


def _differs(row: list[bytes], copy: Any) -> bool:
    if isinstance(copy, Exception):  # of a wrong type: copying replaces it
        return True
    return dict(zip(row[::2], row[1::2], strict=True)) != dict(zip(copy[::2], copy[1::2], strict=True))
