"""Copies of users' rows in the shards, where announces read them. A single shard has the rows themselves.

A shard gets the copy of a user with the first announce or scrape there (``bring``). The main prefix lists each changed
passkey under a number that grows (lua/lib/user_ids.lua), and each shard records up to which number it has the
changes of users who have been there. So a shard that was unavailable gets what it misses, as it is under the main
prefix by then.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument, flattened
from tracker.store.schema.lenient_numbers import hash_of, whole
from tracker.store.sharding.shards import Shard, Shards, StorePart, in_parts
from tracker.store.swarms.reaping import Reaping
from tracker.store.users.fields import SETS, is_user_id
from tracker.token_bucket import TokenBucket

USERS_A_CALL = 100
_MAX_DELETED_PER_CALL = 100
"""Max torrents of each user set that one script call deletes. Announces wait for that call."""
_HAS_PEERS = 2
"""The answer of delete_user.lua while peers of the user must be removed first."""
MIN_COMPARED, PAGES = 50, 1000
"""A comparison of all users takes about PAGES pages, of at least MIN_COMPARED users."""
UNKNOWN_PER_SECOND, UNKNOWN_AT_ONCE = 100, 1000
"""Passkeys that the main prefix does not know, for which one process asks it."""
_TRIES = 5
_NOT_THERE = -1
"""In place of the number of fields: the user has not been in the shard."""


class UserCopies(StorePart):
    """Raises StoreUnavailable and redis.exceptions.RedisError where not stated otherwise."""

    def __init__(self, shards: Shards, reapings: Mapping[Shard, Reaping]) -> None:
        super().__init__(shards)
        self._reapings = reapings
        self._timer = time.monotonic
        self._unknown = TokenBucket(UNKNOWN_PER_SECOND, UNKNOWN_AT_ONCE, self._timer())

    async def bring(self, shard: Shard, passkeys: Collection[str]) -> bool:
        """Copies users into a shard where they have not been; False if there are none. Raises StoreUnavailable also
        where that would need too many reads of the main prefix for passkeys that it does not know."""
        if shard is self._shards.main or not passkeys:
            return False
        there = await shard.connection.pipeline(*(("EXISTS", shard.keys.passkey(each)) for each in passkeys))
        missing = [each for each, exists in zip(passkeys, there, strict=True) if not exists]
        brought = False
        for some in in_parts(missing, USERS_A_CALL):
            if not self._unknown.has(self._timer(), len(some)):
                raise StoreUnavailable("too many unknown passkeys are looked for")
            brought |= await self._bring(some, shard)
        return brought

    async def _bring(self, passkeys: Sequence[str], shard: Shard) -> bool:
        for _ in range(_TRIES):
            # Before the rows: a change after they were read gets another number, and the script writes nothing.
            copied = whole(await shard.connection.command("GET", shard.keys.copied()))
            rows = await self._known(passkeys)
            argv: list[Argument] = [copied, copied]
            for passkey, row in rows.items():
                argv += (passkey, 2 * len(row), *flattened(row))
            if not rows or await shard.scripts.copy_users(argv):
                self._unknown.take(self._timer(), len([each for each in passkeys if each not in rows]))
                return bool(rows)
        raise StoreUnavailable("the users of the shard change too fast")

    async def _known(self, passkeys: Sequence[str]) -> dict[str, dict[bytes, bytes]]:
        """The rows of those that exist. Before them those of listed users whose ids they have too. A user whom a site
        wrote is listed first."""
        rows = {each: row for each, row in zip(passkeys, await self._rows(passkeys), strict=True) if row}
        user_ids = (row.get(b"user_id", b"").decode("ascii", "replace") for row in rows.values())
        listed = await self._listed(list(filter(is_user_id, user_ids)))
        if unlisted := [each for each in rows if each not in listed]:
            await self._scripts.note_users([part for each in unlisted for part in (each, "")])
        others = [each for each in listed if each not in rows]
        return dict(zip(others, await self._rows(others), strict=True)) | rows if others else rows

    async def _listed(self, user_ids: Sequence[str]) -> list[str]:
        """The passkeys of users, by their ids."""
        found = await self._connection.pipeline(
            *(("ZRANGE", self._keys.users(), user_id, user_id, "BYSCORE") for user_id in user_ids)
        )
        return [passkey.decode() for each in found if isinstance(each, list) for passkey in each]

    async def bring_users(self, shard: Shard, user_ids: Collection[str]) -> None:
        """The same by ids."""
        if shard is self._shards.main or not user_ids:
            return
        users = shard.keys.users()
        there = await shard.connection.pipeline(*(("ZCOUNT", users, each, each) for each in user_ids))
        missing = [each for each, number in zip(user_ids, there, strict=True) if number == 0]
        if missing:
            await self.bring(shard, await self._listed(missing))

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
        while True:
            copied = whole(await shard.connection.command("GET", shard.keys.copied()))
            version = whole(await self._connection.command("GET", self._keys.copies_version()))
            if copied == version:
                return
            # A number above that of the main prefix: the main store has lost its latest changes, so all rows are copied
            # again.
            after = copied if copied < version else 0
            flat = await self._connection.command(
                "ZRANGE", self._keys.copies(), f"({after}", "+inf", "BYSCORE", "LIMIT", 0, USERS_A_CALL, "WITHSCORES"
            )
            members = [member.decode() for member in flat[::2]]
            reached = int(float(flat[-1])) if len(members) == USERS_A_CALL else version
            users = dict(zip(members, await self._user_ids(members), strict=True))
            there = await self._of_the_shard(users, shard)
            rows = dict(zip(there, map(flattened, await self._rows(there)), strict=True))
            argv: list[Argument] = [copied, reached]
            for member, user_id in users.items():
                argv += (member, len(rows[member]), *rows[member]) if member in rows else (member, _NOT_THERE, user_id)
            if await shard.scripts.copy_users(argv):
                for member in there:
                    if member.startswith("deleted:"):
                        await delete_in(shard, self._reapings[shard], member.partition(":")[2])

    async def _user_ids(self, members: Sequence[str]) -> list[str]:
        """The id of each changed or deleted user; empty if it is unknown."""
        found = await self._connection.pipeline(
            *(("HGET", self._keys.passkey(member), "user_id") for member in members)
        )
        return [
            member.partition(":")[2] or (user_id.decode("ascii", "replace") if isinstance(user_id, bytes) else "")
            for member, user_id in zip(members, found, strict=True)
        ]

    @staticmethod
    async def _of_the_shard(users: Mapping[str, str], shard: Shard) -> list[str]:
        """Those who have been in a shard, as copy_users.lua decides it."""
        keys = shard.keys
        found = await shard.connection.pipeline(
            *(
                ("EXISTS", keys.passkey(member), keys.user(user_id), *(keys.user_set(user_id, each) for each in SETS))
                for member, user_id in users.items()
            )
        )
        return [member for member, number in zip(users, found, strict=True) if number]

    async def compare_one(self, named: bytes) -> None:
        """Copies a user, by passkey or id, whose row under the main prefix is not the one that was compared last."""
        name = named.decode("ascii", "replace")
        await self._compare((await self._listed([name]) if is_user_id(name) else []) or [name])

    async def compare_page(self, cursor: bytes) -> bytes:
        """The same for some of the listed users. Returns the next cursor, b"0" at the end."""
        total = int(await self._connection.command("ZCARD", self._keys.users()))
        after, flat = await self._connection.command(
            "ZSCAN", self._keys.users(), cursor, "COUNT", max(MIN_COMPARED, total // PAGES)
        )
        await self._compare([passkey.decode("utf-8", "replace") for passkey in flat[::2]])
        return bytes(after)

    async def _compare(self, passkeys: list[str]) -> None:
        differing: list[Argument] = []
        for some in in_parts(passkeys, USERS_A_CALL):
            digests = list(map(_digest, await self._rows(some)))
            compared = await self._connection.command("HMGET", self._keys.compared_rows(), *some)
            gone = list[str]()
            for passkey, digest, before in zip(some, digests, compared, strict=True):
                if digest != (before or b""):
                    differing += (passkey, digest)
                elif not digest:
                    gone.append(passkey)
            if gone:  # a site may have deleted a row before it was compared
                asked = [(shard, ("EXISTS", *map(shard.keys.passkey, gone))) for shard in self._shards]
                if any(await self._shards.ask(asked)):
                    differing += [part for passkey in gone for part in (passkey, b"")]
        if differing:
            await self._scripts.note_users(differing)
            await self.copy_to_all()

    async def _rows(self, members: Sequence[str]) -> list[dict[bytes, bytes]]:
        """The fields of each passkey; empty for one that does not exist. Limits of a user over all torrents are
        divided, as those in the rules are."""
        replies = await self._connection.pipeline(*(("HGETALL", self._keys.passkey(member)) for member in members))
        rows = list(map(hash_of, replies))
        for row in rows:
            if (limit := row.get(b"max_downloads", b"")).isdigit():
                row[b"max_downloads"] = b"%d" % math.ceil(int(limit) / len(self._shards))
        return rows


async def delete_in(shard: Shard, reaping: Reaping, user_id: str, passkey: str = "") -> None:
    """Deletes what a prefix has of a user. An empty ``passkey`` continues a deletion that has begun."""
    while left := await shard.scripts.delete_user([user_id, passkey, _MAX_DELETED_PER_CALL]):
        passkey = ""
        if left == _HAS_PEERS:
            await reaping.remove([f"user:{user_id}"])


def _digest(row: Mapping[bytes, bytes]) -> bytes:
    """Empty for a user who does not exist."""
    return hashlib.blake2b(repr(sorted(row.items())).encode(), digest_size=8).digest() if row else b""
