"""Users of a store with several shards: their rows are at home, and what they have on torrents is in the shards."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracker.errors import ClientError
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


class ShardedUsers(Users):
    """Lists and rankings show sums that are some seconds old; one user is shown as the shards are now."""

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
        numbers = await asyncio.gather(*(part.finish_deletions() for part in self._parts))
        return await super().finish_deletions() + sum(numbers)

    # Torrents of a user

    async def torrents(self, user_id: str, name: str) -> list[str]:
        parts = await asyncio.gather(*(part.torrents(user_id, name) for part in self._parts))
        return sorted({each for part in parts for each in part}, key=lambda i: (len(i), i))

    async def torrents_page(
        self, user_id: str, set_name: str, cursor: int = 0, count: int = 100
    ) -> tuple[int, list[str]]:
        shard, own = self._cursors.shard(cursor)
        after, found = await self._parts[shard.number].torrents_page(user_id, set_name, own, count)
        return self._cursors.after(shard, after), found

    async def set_sizes(self, user_id: str) -> dict[str, int]:
        parts = await asyncio.gather(*(part.set_sizes(user_id) for part in self._parts))
        return {name: sum(part[name] for part in parts) for name in parts[0]}

    async def accounts(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
        """An account on a torrent that was deleted is found where the id was given out."""
        shards = await self._shards.of_torrents([torrent_id for _, torrent_id in pairs])
        places: dict[Shard, list[int]] = {}
        for place, shard in enumerate(shards):
            if shard is not None:
                places.setdefault(shard, []).append(place)
        found: list[dict[str, str]] = [{} for _ in pairs]
        parts = await asyncio.gather(
            *(self._parts[shard.number].accounts([pairs[n] for n in some]) for shard, some in places.items())
        )
        for some, rows in zip(places.values(), parts, strict=True):
            for place, row in zip(some, rows, strict=True):
                found[place] = row
        return found

    # Hit-and-runs

    async def forgive(self, user_id: str, torrent_id: str | None = None) -> int:
        parts = await asyncio.gather(*(part.forgive(user_id, torrent_id) for part in self._parts))
        if forgiven := sum(parts):
            await self._sums.save([user_id])
        return forgiven

    async def reindex_hit_and_runs(self) -> int:
        await asyncio.gather(*(part.reindex_hit_and_runs() for part in self._parts))
        cursor = b"0"
        while (cursor := await self._sums.save_page(cursor)) != b"0":
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
        (shard,) = await self._shards.of_torrents([torrent_id])
        if shard is None:
            raise ClientError("unknown torrent")
        return self._parts[shard.number]

    async def give(self, user_id: str, torrent_id: str, until: int) -> None:
        await (await self._part(torrent_id)).give(user_id, torrent_id, until)

    async def take_back(self, user_id: str, torrent_id: str) -> bool:
        return await (await self._part(torrent_id)).take_back(user_id, torrent_id)

    async def page(self, user_id: str, offset: int = 0, count: int = 100) -> list[Token]:
        parts = await asyncio.gather(*(part.page(user_id, 0, offset + count) for part in self._parts))
        tokens = sorted((token for part in parts for token in part), key=lambda token: token[::-1])
        return tokens[offset : offset + count]

    async def count(self, user_id: str) -> int:
        return sum(await asyncio.gather(*(part.count(user_id) for part in self._parts)))


class ShardedHitAndRuns(HitAndRuns):
    def __init__(self, shards: Shards, parts: Sequence[HitAndRuns]) -> None:
        self._shards = shards
        self._parts = parts

    async def decide(self) -> int:
        return sum(await asyncio.gather(*(part.decide() for part in self._parts)))

    async def drop(self) -> int:
        return sum(await asyncio.gather(*(part.drop() for part in self._parts)))

    async def pending(self, offset: int = 0, count: int = 100) -> list[Pending]:
        pairs = await top_of(
            self._shards, lambda shard: shard.keys.pending_hit_and_runs(), count, offset, ascending=True
        )
        return pending_of([(member, int(at)) for member, at in pairs])

    async def pending_of(self, user_id: str, torrent_ids: Sequence[str]) -> list[Pending]:
        parts = await asyncio.gather(*(part.pending_of(user_id, torrent_ids) for part in self._parts))
        return sorted((each for part in parts for each in part), key=lambda each: each.at)

    async def pending_count(self) -> int:
        return sum(await self._shards.each(lambda shard: ("ZCARD", shard.keys.pending_hit_and_runs())))


class ShardedMultipliers(Multipliers):
    """The originals are at home."""

    def __init__(self, connection: Connection, keys: Keys, shards: Shards) -> None:
        super().__init__(connection, keys)
        self._shards = shards

    async def set(self, upload: str, download: str) -> None:
        await super().set(upload, download)
        await asyncio.gather(*map(self.copy_to, self._shards))

    async def copy_to(self, shard: Shard) -> None:
        """Raises StoreUnavailable; a later call heals that."""
        texts = await self._connection.command("MGET", *self._keys.values())
        keys = (shard.keys.upload_multiplier(), shard.keys.download_multiplier())
        if await shard.connection.command("MGET", *keys) != texts:
            pairs = [part for key, text in zip(keys, texts, strict=True) for part in (key, text or "")]
            await shard.connection.command("MSET", *pairs)
