"""Users of a store with several shards: their rows are at home, and what they have on torrents is in the shards."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tracker.errors import ClientError
from tracker.store.client.clock import seconds_ahead
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.multipliers import RuleChange
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import ScanCursors, Shard, Shards, in_parts
from tracker.store.sharding.user_copies import UserCopies
from tracker.store.sharding.user_sums import UserSums
from tracker.store.swarms.reaping import Reaping
from tracker.store.users.fields import User, Value
from tracker.store.users.freeleech import Freeleech, Token, tokens_of
from tracker.store.users.hit_and_runs import (
    TORRENTS_A_CALL,
    HitAndRuns,
    Pending,
    pending_of,
    sorted_pending,
)
from tracker.store.users.importing import SavedUser, UserImport
from tracker.store.users.rules import Multipliers
from tracker.store.users.users import Users, checked_set, fields_of, size_commands, sum_sizes

_Result = TypeVar("_Result")
_MIN_SCANNED = 16
"""Members of a set that a shard is asked for at least."""


class ShardedUsers(Users):
    """Lists and rankings show sums that are some seconds old; one user is shown as the shards are now. While one is
    away, sums stay as they were when it went."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        max_changes: Callable[[], int],
        reaping: Reaping,
        clock: Callable[[], float],
        shards: Shards,
        copies: UserCopies,
        sums: UserSums,
    ) -> None:
        super().__init__(connection, scripts, keys, max_changes, reaping, clock)
        self._shards = shards
        self._copies = copies
        self._sums = sums
        self._cursors = ScanCursors(shards)
        self._parts = [Users(*shard.parts, max_changes, shard.reaping) for shard in shards]

    async def get(self, passkey: str) -> User | None:
        user = await super().get(passkey)
        if user is None:
            return None
        totals: dict[str, Any] = {**await self._sums.totals(user.user_id)}
        return replace(user, **totals)

    async def _changed(self, user_id: str) -> None:
        await self._copies.copy_to_all()
        await self._sums.save_if_possible([user_id])  # totals that were set begin now, not at the next walk
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
        """As with one shard. A page that ends the set of a shard continues with the next shards, as far as it has
        room."""
        name, number = checked_set(set_name), len(self._shards)
        own, first = divmod(cursor, number)
        if own:
            return await self._cursors.page(
                cursor, lambda shard, own: self._parts[shard.number].torrents_page(user_id, name, own, count)
            )
        sizes = await self._shards.each(lambda shard: ("SCARD", shard.keys.user_set(user_id, name)))
        chosen, left = list[Shard](), count
        for shard in self._shards:
            if shard.number >= first and left > 0 and sizes.get(shard):
                chosen.append(shard)
                left -= sizes[shard]
        return await self._pages_of(user_id, name, chosen, count, full=left <= 0)

    async def _pages_of(
        self, user_id: str, name: str, shards: Sequence[Shard], count: int, *, full: bool
    ) -> tuple[int, list[str]]:
        """The first pages of the sets of these shards, as far as one after the other is complete. ``full``: whether
        the walk goes on behind them."""
        parts = await self._scan(user_id, name, dict.fromkeys(shards, 0), count)
        found, number = list[str](), len(self._shards)
        for shard, (after, members) in parts.items():
            found += [member.decode("utf-8", "replace") for member in members]
            if int(after):
                return int(after) * number + shard.number, found
        return (shards[-1].number + 1) % number if full else 0, found

    async def _scan(
        self, user_id: str, name: str, cursors: Mapping[Shard, int], count: int
    ) -> dict[Shard, tuple[bytes, list[bytes]]]:
        """Next cursors and members of a set of the user in some shards."""
        return await self._shards.each(
            lambda shard: ("SSCAN", shard.keys.user_set(user_id, name), cursors[shard], "COUNT", count),
            list(cursors),
        )

    async def first_torrents(self, user_id: str, set_name: str, count: int) -> tuple[list[str], bool]:
        """As with one shard, but from all shards at once."""
        cursors: dict[Shard, int] = dict.fromkeys(self._shards, 0)
        found = dict[str, None]()
        while cursors and len(found) < count:
            parts = await self._scan(user_id, set_name, cursors, max(_MIN_SCANNED, 2 * count // len(cursors)))
            cursors = {shard: int(after) for shard, (after, _) in parts.items() if int(after)}
            for _, members in parts.values():
                found |= dict.fromkeys(member.decode("utf-8", "replace") for member in members)
        return list(found)[:count], not cursors and len(found) <= count

    async def set_sizes(self, user_id: str) -> dict[str, int]:
        parts = await self._shards.several(lambda shard: size_commands(shard.keys, user_id))
        return sum_sizes(parts.values())

    async def accounts(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
        """An account on a torrent that was deleted is found where the id was given out."""
        shards = await self._shards.of_torrents([torrent_id for _, torrent_id in pairs])
        known = [place for place, shard in enumerate(shards) if shard is not None]
        rows = await self._shards.ask(
            [
                (shard, ("HGETALL", shard.keys.user_torrent(*pair)))
                for shard, pair in zip(shards, pairs, strict=True)
                if shard is not None
            ],
            keep_errors=True,
        )
        found: list[dict[str, str]] = [{} for _ in pairs]
        for place, row in zip(known, rows, strict=True):
            found[place] = fields_of(row or [])
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
    def __init__(self, scripts: Scripts, copies: UserCopies, sums: UserSums) -> None:
        super().__init__(scripts)
        self._copies = copies
        self._sums = sums

    async def save(
        self, users: Sequence[Mapping[str, Value]], *, replace_totals: bool = False
    ) -> list[SavedUser | ClientError]:
        outcomes = await super().save(users, replace_totals=replace_totals)
        await self._copies.copy_to_all()
        if replace_totals:
            known = [each for each in outcomes if isinstance(each, SavedUser) and not each.new]
            await self._sums.save_if_possible([each.user_id for each in known])
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
        parts = await self._shards.each(
            lambda shard: self._parts[shard.number]._page_command(user_id, 0, offset + count)
        )
        tokens = [token for pairs in parts.values() for token in tokens_of(pairs)]
        return sorted(tokens, key=lambda token: token[::-1])[offset : offset + count]

    async def count(self, user_id: str) -> int:
        return sum(
            (
                await self._shards.each(lambda shard: self._parts[shard.number]._count_command(user_id))
            ).values()
        )


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
        gaps = await self._shards.each(lambda shard: ("GET", shard.keys.gap()))
        ahead = max(
            map(seconds_ahead, gaps.values()), default=0
        )  # the same, but after an outage of one shard only
        return pending_of([(member, int(at)) for member, at in pairs], ahead)

    async def pending_of(self, user_id: str, torrent_ids: Sequence[str]) -> list[Pending]:
        shards = await self._shards.of_torrents(torrent_ids)
        by_shard = defaultdict[Shard, list[str]](list)
        for torrent_id, shard in zip(torrent_ids, shards, strict=True):
            if shard is not None:
                by_shard[shard].append(torrent_id)
        parts = [(shard, some) for shard, ids in by_shard.items() for some in in_parts(ids, TORRENTS_A_CALL)]
        commands = []
        for shard, some in parts:
            members = (f"{user_id}:{each}" for each in some)
            commands.append((shard, ("ZMSCORE", shard.keys.pending_hit_and_runs(), *members)))
            commands.append((shard, ("GET", shard.keys.gap())))
        replies = await self._shards.ask(commands)
        times: dict[str, float | bytes | None] = {}
        for (_, some), reply, gap in zip(parts, replies[::2], replies[1::2], strict=True):
            ends = (
                (each, at)
                for each, at in zip(some, reply or [None] * len(some), strict=True)
                if at is not None
            )
            times |= {each: float(at) + seconds_ahead(gap) for each, at in ends}
        return sorted_pending(user_id, torrent_ids, times)

    async def pending_count(self) -> int:
        found = await self._shards.each(lambda shard: ("ZCARD", shard.keys.pending_hit_and_runs()))
        return sum(found.values())


class ShardedMultipliers(Multipliers):
    """The originals are at home."""

    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys, shards: Shards) -> None:
        super().__init__(connection, scripts, keys)
        self._shards = shards

    async def set(self, upload: str | None = None, download: str | None = None) -> None:
        await super().set(upload, download)
        await self._shards.gather(self.copy_to)  # one that is away gets them when it is back

    async def change_rule(self, change: RuleChange) -> bool:
        changed = await super().change_rule(change)
        await self._shards.gather(self.copy_to)
        return changed

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
