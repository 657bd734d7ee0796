"""Users of a store with several shards: their rows are at home, and what they have on torrents is in the shards."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tracker.errors import ClientError, StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import ScanCursors, Shard, Shards
from tracker.store.sharding.torrents import top_of
from tracker.store.sharding.user_copies import UserCopies
from tracker.store.sharding.user_sums import UserSums
from tracker.store.users.fields import Value
from tracker.store.users.freeleech import Freeleech, Token
from tracker.store.users.hit_and_runs import HitAndRuns, Pending, pending_of
from tracker.store.users.importing import SavedUser, UserImport
from tracker.store.users.rules import Multipliers
from tracker.store.users.users import User, Users

_Result = TypeVar("_Result")


class ShardedUsers(Users):
    """Lists and rankings show sums that are some seconds old; one user is shown as the shards are now. While one is
    away, sums stay as they were when it went."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        max_changes: Callable[[], int],
        shards: Shards,
        copies: UserCopies,
        sums: UserSums,
    ) -> None:
        super().__init__(connection, scripts, keys, max_changes)
        self._shards = shards
        self._copies = copies
        self._sums = sums
        self._cursors = ScanCursors(shards)
        self._parts = [Users(shard.connection, shard.scripts, shard.keys, max_changes) for shard in shards]

    async def get(self, passkey: str) -> User | None:
        user = await super().get(passkey)
        if user is None:
            return None
        totals: dict[str, Any] = {**await self._sums.totals(user.user_id)}
        return replace(user, **totals)

    async def _changed(self, user_id: str) -> None:
        await self._copies.copy_to_all()
        await super()._changed(user_id)

    async def finish_deletions(self) -> int:
        numbers = await self._of_parts(lambda part: part.finish_deletions())
        return await super().finish_deletions() + sum(numbers)

    async def _of_parts(self, call: Callable[[Users], Awaitable[_Result]]) -> list[_Result]:
        """The results of the shards that are not away."""
        return list((await self._shards.gather(lambda shard: call(self._parts[shard.number]))).values())

    # Torrents of a user

    async def torrents(self, user_id: str, name: str) -> list[str]:
        parts = await self._of_parts(lambda part: part.torrents(user_id, name))
        return sorted({each for part in parts for each in part}, key=lambda i: (len(i), i))

    async def torrents_page(
        self, user_id: str, set_name: str, cursor: int = 0, count: int = 100
    ) -> tuple[int, list[str]]:
        return await self._cursors.page(
            cursor,
            lambda shard, own: self._parts[shard.number].torrents_page(user_id, set_name, own, count),
        )

    async def set_sizes(self, user_id: str) -> dict[str, int]:
        parts = await self._of_parts(lambda part: part.set_sizes(user_id))
        return {name: sum(part[name] for part in parts) for name in parts[0]}

    async def accounts(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
        """An account on a torrent that was deleted is found where the id was given out."""
        shards = await self._shards.of_torrents([torrent_id for _, torrent_id in pairs])
        places: dict[Shard, list[int]] = {}
        for place, shard in enumerate(shards):
            if shard is not None:
                places.setdefault(shard, []).append(place)
        found: list[dict[str, str]] = [{} for _ in pairs]

        async def read(shard: Shard, some: list[int]) -> None:
            try:
                rows = await self._parts[shard.number].accounts([pairs[place] for place in some])
            except StoreUnavailable as error:
                self._shards.leave_out([shard.number], error)
                return
            for place, row in zip(some, rows, strict=True):
                found[place] = row

        await asyncio.gather(*(read(shard, some) for shard, some in places.items()))
        return found

    # Hit-and-runs

    async def forgive(self, user_id: str, torrent_id: str | None = None) -> int:
        parts = await asyncio.gather(*(part.forgive(user_id, torrent_id) for part in self._parts))
        if forgiven := sum(parts):
            await self._sums.save([user_id])
        return forgiven

    async def reindex_hit_and_runs(self) -> int:
        """Sums stay as they were while a shard is away."""
        await self._of_parts(lambda part: part.reindex_hit_and_runs())
        cursor = b"0"
        while not self._shards.away and (cursor := await self._sums.save_page(cursor)) != b"0":
            pass
        return await self.hit_and_run_count()


class ShardedUserImport(UserImport):
    def __init__(self, scripts: Scripts, copies: UserCopies) -> None:
        super().__init__(scripts)
        self._copies = copies

    async def save(
        self, users: Sequence[Mapping[str, Value]], *, replace_totals: bool = False
    ) -> list[SavedUser | ClientError]:
        outcomes = await super().save(users, replace_totals=replace_totals)
        await self._copies.copy_to_all()
        return outcomes


class ShardedFreeleech(Freeleech):
    """A token is in the shard of its torrent."""

    def __init__(self, shards: Shards, parts: Sequence[Freeleech]) -> None:
        self._shards = shards
        self._parts = parts

    async def _part(self, torrent_id: str) -> Freeleech:
        shard = await self._shards.of_torrent(torrent_id)
        if shard is None:
            raise ClientError("unknown torrent")
        return self._parts[shard.number]

    async def give(self, user_id: str, torrent_id: str, until: int) -> None:
        await (await self._part(torrent_id)).give(user_id, torrent_id, until)

    async def take_back(self, user_id: str, torrent_id: str) -> bool:
        return await (await self._part(torrent_id)).take_back(user_id, torrent_id)

    async def page(self, user_id: str, offset: int = 0, count: int = 100) -> list[Token]:
        parts = await self._shards.gather(
            lambda shard: self._parts[shard.number].page(user_id, 0, offset + count)
        )
        tokens = sorted((token for part in parts.values() for token in part), key=lambda token: token[::-1])
        return tokens[offset : offset + count]

    async def count(self, user_id: str) -> int:
        parts = await self._shards.gather(lambda shard: self._parts[shard.number].count(user_id))
        return sum(parts.values())


class ShardedHitAndRuns(HitAndRuns):
    def __init__(self, shards: Shards, parts: Sequence[HitAndRuns]) -> None:
        self._shards = shards
        self._parts = parts

    async def decide(self) -> int:
        parts = await self._shards.gather(lambda shard: self._parts[shard.number].decide())
        return sum(parts.values())

    async def drop(self) -> int:
        parts = await self._shards.gather(lambda shard: self._parts[shard.number].drop())
        return sum(parts.values())

    async def pending(self, offset: int = 0, count: int = 100) -> list[Pending]:
        pairs = await top_of(
            self._shards, lambda shard: shard.keys.pending_hit_and_runs(), count, offset, ascending=True
        )
        return pending_of([(member, int(at)) for member, at in pairs])

    async def pending_of(self, user_id: str, torrent_ids: Sequence[str]) -> list[Pending]:
        parts = await self._shards.gather(
            lambda shard: self._parts[shard.number].pending_of(user_id, torrent_ids)
        )
        return sorted((each for part in parts.values() for each in part), key=lambda each: each.at)

    async def pending_count(self) -> int:
        found = await self._shards.each(lambda shard: ("ZCARD", shard.keys.pending_hit_and_runs()))
        return sum(found.values())


class ShardedMultipliers(Multipliers):
    """The originals are at home."""

    def __init__(self, connection: Connection, keys: Keys, shards: Shards) -> None:
        super().__init__(connection, keys)
        self._shards = shards

    async def set(self, upload: str, download: str) -> None:
        await super().set(upload, download)
        await self._shards.gather(self.copy_to)  # one that is away gets them when it is back

    async def outdated(self, shards: Sequence[Shard]) -> list[Shard]:
        """Those that have other ones than home. One round trip for each node."""
        texts = await self._connection.command("MGET", *self._keys.values())
        found = await self._shards.send([(shard, ("MGET", *_multipliers(shard))) for shard in shards])
        wanted = [text or b"" for text in texts]
        return [
            shard
            for shard, copies in zip(shards, found, strict=True)
            if [text or b"" for text in copies] != wanted
        ]

    async def copy_to(self, shard: Shard) -> None:
        """Raises StoreUnavailable; a later call heals that."""
        texts = await self._connection.command("MGET", *self._keys.values())
        pairs = [
            part for key, text in zip(_multipliers(shard), texts, strict=True) for part in (key, text or "")
        ]
        await shard.connection.command("MSET", *pairs)


def _multipliers(shard: Shard) -> tuple[str, str]:
    return shard.keys.upload_multiplier(), shard.keys.download_multiplier()
