"""The sums of a user over all shards: read when they are asked for, and written under the main prefix for lists and
rankings."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import product

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Shard, Shards, StorePart, in_parts
from tracker.store.users.fields import TOTALS

SUMMED = (*TOTALS, "unreported")
USERS_A_CALL = 100
USERS_A_PASS = 500


class UserSums(StorePart):
    """A single shard has the sums themselves. Every method raises StoreUnavailable and redis.exceptions.RedisError."""

    def __init__(self, shards: Shards) -> None:
        super().__init__(shards)
        self._parts = shards.others

    async def totals(self, user_ids: Sequence[str]) -> list[dict[str, int]]:
        """Of each user the current value of each of SUMMED; none where there is nothing to add up. While a shard is
        unavailable, the value that was saved last; without the main prefix, what the available shards have."""
        if not self._parts:
            return [{} for _ in user_ids]
        main, bases = self._shards.main, [f"base_{name}" for name in SUMMED]
        read = self._shards.send([(main, ("HMGET", main.keys.user(each), *SUMMED, *bases)) for each in user_ids])
        rows = await self._shards.main_or(read, None)
        reads = [(at, ("HMGET", at.keys.user(each), *SUMMED)) for each in user_ids for at in self._parts]
        if rows is None:
            parts = in_parts(await self._shards.ask(reads), len(self._parts))
            return [dict(zip(SUMMED, _totals([each for each in some if each]), strict=True)) for some in parts]
        try:
            parts = in_parts(await self._shards.send(reads), len(self._parts))
        except StoreUnavailable as error:
            self._shards.leave_out(self._shards.unavailable, error)
            return [dict(zip(SUMMED, map(whole, row), strict=False)) for row in rows]
        return [
            dict(zip(SUMMED, map(_total, row, row[len(SUMMED) :], _totals(some)), strict=True))
            for row, some in zip(rows, parts, strict=True)
        ]

    async def save(self, user_ids: Sequence[str]) -> None:
        """Writes the sums under the main prefix. Users that were deleted are left out."""
        for some in in_parts(user_ids if self._parts else (), USERS_A_CALL):
            commands: list[tuple[Shard, tuple[Argument, ...]]] = []
            for user_id, shard in product(some, self._parts):
                commands.append((shard, ("HMGET", shard.keys.user(user_id), *SUMMED)))
                commands.append((shard, ("SCARD", shard.keys.user_set(user_id, "hnr"))))
            parts = in_parts(await self._shards.send(commands), 2 * len(self._parts))
            argv: list[Argument] = [" ".join(SUMMED)]
            for user_id, found in zip(some, parts, strict=True):
                argv += (user_id, sum(found[1::2]), *_totals(found[::2]))
            await self._scripts.sum_users(argv)

    async def save_if_possible(self, user_ids: Sequence[str]) -> None:
        """The same, but while a shard is unavailable that is left to ``save_page``."""
        if not self._shards.unavailable:
            with suppress(StoreUnavailable):
                await self.save(user_ids)

    async def changed(self, shards: Sequence[Shard]) -> list[Shard]:
        """Those where sums of users have changed. One round trip for each node."""
        found = await self._shards.send([(shard, ("EXISTS", shard.keys.changed())) for shard in shards])
        return [shard for shard, exists in zip(shards, found, strict=True) if exists]

    async def save_changed(self, shard: Shard) -> int:
        """Writes the sums of users that have changed in a shard, at most USERS_A_PASS; returns how many there were."""
        changed = await shard.connection.command("SPOP", shard.keys.changed(), USERS_A_PASS)
        user_ids = [user_id.decode() for user_id in changed]
        try:
            await self.save(user_ids)
        except BaseException:
            with suppress(StoreUnavailable, RedisError):  # save_page heals that
                if user_ids:
                    await shard.connection.command("SADD", shard.keys.changed(), *user_ids)
            raise
        return len(user_ids)

    async def save_page(self, cursor: bytes, count: int = USERS_A_CALL) -> bytes:
        """Writes the sums of about ``count`` of all users, and returns the next cursor, b"0" at the end. It heals what
        a tracker that was killed has not written."""
        if not self._parts:
            return b"0"
        after, flat = await self._connection.command("ZSCAN", self._keys.users(), cursor, "COUNT", count)
        await self.save([f"{float(score):.0f}" for score in flat[1::2]])
        return bytes(after)


def _totals(rows: Sequence[Sequence[bytes | None]]) -> tuple[int, ...]:
    return tuple(sum(map(whole, column)) for column in zip(*rows, strict=True))


def _total(value: bytes | None, base: bytes | None, number: int) -> int:
    """A value without a base was set by a program; sum_users.lua makes the base of it."""
    if base is None:
        return number if value is None else whole(value)
    return max(0, int(base) + number)
