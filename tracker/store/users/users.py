"""The users: passkeys, permissions and totals.

Their rows are under the main prefix. What they have on torrents is in the shards of these: lists and rankings show sums
that are some seconds old, one user is shown as the shards are now. While a shard is unavailable, sums stay as they
were.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from redis.exceptions import ResponseError

from tracker.errors import ClientError, Conflict, NotFound, StoreUnavailable
from tracker.store.access.repeats import once_of
from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import hash_of, ranked, text_of
from tracker.store.schema.multipliers import RuleChange, has_changed
from tracker.store.sharding.shards import Shard, Shards, StorePart, in_parts, read_in_turns, scan
from tracker.store.swarms.reaping import Reaping
from tracker.store.swarms.rules import LiveRules
from tracker.store.users.copies import UserCopies, delete_in
from tracker.store.users.fields import (
    ADDITIONS,
    SETS,
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
from tracker.store.users.sums import UserSums

_READ_PER_CALL = 50
"""Users that one script call reads. Takes the store about a millisecond. Announces wait for that call."""
_PAGE = 500
_MIN_SCANNED = 16
"""Members of a set that a shard is asked for at least."""


class UnknownUser(NotFound):
    def __init__(self) -> None:
        super().__init__("there is no such user")


class Users(StorePart):
    """Changes apply to the next announce, as the announce script reads the user. ``reapings`` remove the peers of
    deleted users. ``clock`` returns epoch seconds."""

    def __init__(
        self,
        shards: Shards,
        rules: LiveRules,
        reapings: Mapping[Shard, Reaping],
        copies: UserCopies,
        sums: UserSums,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(shards, clock)
        self._rules = rules
        self._reapings = reapings
        self._copies = copies
        self._sums = sums

    async def add(self, user_id: str | None = None, passkey: str | None = None, **fields: Value) -> User:
        """Adds a user with some of FIELDS. Without ``passkey``, generates one with 160 random bits. Raises ClientError
        if a value is invalid, Conflict if the id or the passkey is taken."""
        passkey = checked_passkey(passkey or new_passkey())
        if user_id is not None and not is_user_id(user_id):
            raise ClientError("a user id is a positive number")
        packed = pack_user(user_id or "", passkey, checked_fields(fields))
        ((outcome, *given),) = await self._scripts.save_users(["new", "", 0, packed])
        if outcome == b"passkey":
            raise Conflict("this passkey is taken: another user has it, so give one of them a new one")
        if outcome in (b"user", b"deleting"):
            raise Conflict("a user with this id exists")
        if outcome != 1:
            raise ResponseError("a key of users is of a wrong type")
        await self._changed(given[0].decode())
        return await self.find(passkey)

    async def passkey_of(self, user_id: str) -> str | None:
        replies = await self._shards.main_or_copies(
            lambda shard: shard.connection.command("ZRANGE", shard.keys.users(), user_id, user_id, "BYSCORE")
        )
        return next((found[0].decode() for found in replies if found), None)

    async def find(self, who: str) -> User:
        """Finds a user by id or passkey. Raises ClientError if there is none."""
        user = await self.by_id(who) if is_user_id(who) else None
        user = user or await self.get(who)
        if user is None:
            raise UnknownUser
        return user

    async def by_id(self, user_id: str) -> User | None:
        return await self._with_totals(await self.by_ids([user_id]))

    async def get(self, passkey: str) -> User | None:
        return await self._with_totals(await self.get_all([passkey]))

    async def _with_totals(self, found: list[User]) -> User | None:
        """Raises StoreUnavailable if only the main prefix, which is unavailable, may know the user."""
        if not found and self._shards.main_is_unavailable:
            raise StoreUnavailable("the main store is unavailable, and no shard that answers knows the user")
        if not found:
            return None
        (totals,) = await self._sums.totals([found[0].user_id])
        return replace(found[0], **totals)  # type: ignore[arg-type]

    async def by_ids(self, user_ids: Sequence[str]) -> list[User]:
        """The users with these ids, in order. Others are left out."""
        return await self._read([user_id for user_id in user_ids if is_user_id(user_id)], by_id=True)

    async def get_all(self, passkeys: Sequence[str]) -> list[User]:
        """Returns the users with these passkeys, in order. Unknown passkeys, and users with a key of a wrong type, are
        left out."""
        return await self._read(passkeys, by_id=False)

    async def _read(self, names: Sequence[str], *, by_id: bool) -> list[User]:
        found: list[User] = []
        for some in in_parts(names, _READ_PER_CALL):
            argv: list[Argument] = [int(by_id), " ".join(STORED_RIGHTS), " ".join(STORED_TOTALS), *some]
            parts = await self._shards.main_or_copies(lambda shard, argv=argv: shard.scripts.read_users(argv))  # type: ignore[misc]
            rows = (next((row for row in copies if row is not None), None) for copies in zip(*parts, strict=True))
            found += await read_in_turns((row for row in rows if row is not None), user_of)
        return found

    async def edit(self, who: str, fields: Mapping[str, Value], once: str = "") -> None:
        """Sets some of FIELDS of the user with this id or passkey, as ``checked_fields`` reads them, and adds ADDITIONS
        to totals. Enabling a user clears the reason. ``once``: a key of Repeats; it adds only at its first call. Raises
        UnknownUser, and ClientError for another field or an invalid value."""
        row = checked_fields(fields)
        if not row.keys().isdisjoint(ADDITIONS):
            known = who
            if not is_user_id(who):
                found = await self._connection.command("HGET", self._keys.passkey(who), "user_id")
                if not found:
                    raise UnknownUser
                known = found.decode("utf-8", "replace")
            await self._sums.save_if_possible([known])  # the bases that are added to
        user_id = await self._scripts.edit_user(
            [pack_user(who, "", row) if is_user_id(who) else pack_user("", who, row), once_of(once) if once else ""]
        )
        if user_id is None:
            raise UnknownUser
        if not user_id:
            raise ClientError("this user has an invalid id, or the id of another user")
        if row:
            await self._changed(user_id.decode("utf-8", "replace"))

    async def change_rule(self, passkey: str, change: RuleChange) -> bool:
        """Sets or removes one rule of a multiplier. False if there is none to remove. Raises ClientError for too many
        rules and for an unknown passkey."""
        answer = await self._scripts.set_rule([*change, passkey, ""])
        if answer is None:
            raise UnknownUser
        if changed := has_changed(answer):
            await self._changed(answer[1].decode("utf-8", "replace"))
        return changed

    async def rotate(self, passkey: str, new: str | None = None) -> User:
        """Replaces a user's passkey. The old one is invalid at once, except for `stopped` of the peers that used it.
        Without ``new``, generates one. Raises ClientError if the old passkey is unknown, Conflict if the new one is
        taken."""
        new = checked_passkey(new or new_passkey())
        user_id = await self._scripts.rotate_user([passkey, new, int(self._clock())])
        if user_id is None:
            raise UnknownUser
        if not user_id:
            raise Conflict("this passkey is taken: another user has it, so give one of them a new one")
        await self._changed(user_id.decode())
        return await self.find(new)

    async def delete(self, who: str) -> None:
        """Deletes a user, by id or passkey, with all their keys and peers. The first step deletes the passkey and the
        list entry, so no more traffic is credited. After an interruption, repeat the call with the user id, or call
        ``finish_deletions``. Raises ClientError if there is no such user."""
        user_id, passkey = await self.identify(who)
        main = self._shards.main
        await delete_in(main, self._reapings[main], user_id, passkey)
        await self._changed(user_id)

    async def finish_deletions(self) -> int:
        """Completes interrupted deletions, also those of other processes. Returns how many there were."""
        numbers = await self._shards.gather(self._finish_deletions_in, self._shards.others)
        return await self._finish_deletions_in(self._shards.main) + sum(numbers.values())

    async def _finish_deletions_in(self, shard: Shard) -> int:
        unfinished = await shard.connection.command("SMEMBERS", shard.keys.deleting())
        for user_id in unfinished:
            await delete_in(shard, self._reapings[shard], user_id.decode())
            if shard is self._shards.main:
                await self._changed(user_id.decode())
        return len(unfinished)

    async def identify(self, who: str) -> tuple[str, str]:
        """Returns (user id, passkey) of a user to delete, by id or passkey. Also finds a user by id if a site deleted
        the passkey's key. The passkey is empty if the deletion has begun. Raises ClientError if there is no such
        user."""
        if is_user_id(who):
            passkey = await self.passkey_of(who)
            if passkey is not None:
                return who, passkey
            if await self._connection.command("SISMEMBER", self._keys.deleting(), who):
                return who, ""
        user = await self.find(who)
        return user.user_id, user.passkey

    # Torrents of a user

    async def torrents_page(self, user_id: str, name: str, cursor: int = 0, count: int = 100) -> tuple[int, list[str]]:
        """Returns (next cursor, about ``count`` torrent ids) of one of SETS, unordered. Cursor 0 begins and ends the
        walk. An id may appear twice. A set of a few hundred ids is one page: one that ends the set of a shard continues
        with the next shards, as far as it has room. Raises ClientError for another set."""
        if name not in SETS:
            raise ClientError("a user has no such set")

        async def read(shard: Shard, own: int) -> tuple[int, list[str]]:
            how = ("SSCAN", shard.keys.user_set(user_id, name), own, "COUNT", count)
            after, members = await shard.connection.command(*how)
            return int(after), _texts(members)

        after, found = await self._shards.page(cursor, read)
        if 0 < after < len(self._shards) and len(found) < count:
            after, more = await self._next_shards(user_id, name, after, count - len(found))
            found += more
        return after, found

    async def _next_shards(self, user_id: str, name: str, first: int, count: int) -> tuple[int, list[str]]:
        """The first pages of the sets of the shards from ``first`` on, as far as one after the other is complete."""
        sizes = await self._shards.each(lambda shard: ("SCARD", shard.keys.user_set(user_id, name)))
        chosen, left = list[Shard](), count
        for shard in self._shards:
            if shard.number >= first and left > 0 and sizes.get(shard):
                chosen.append(shard)
                left -= sizes[shard]
        parts = await self._scan(user_id, name, dict.fromkeys(chosen, 0), count)
        found, number = list[str](), len(self._shards)
        for shard, (after, members) in parts.items():
            found += _texts(members)
            if int(after):
                return int(after) * number + shard.number, found
        return (chosen[-1].number + 1) % number if left <= 0 else 0, found

    async def _scan(
        self, user_id: str, name: str, cursors: Mapping[Shard, int], count: int
    ) -> dict[Shard, tuple[bytes, list[bytes]]]:
        """Next cursors and members of a set of the user in some shards."""
        return await self._shards.each(
            lambda shard: ("SSCAN", shard.keys.user_set(user_id, name), cursors[shard], "COUNT", count), list(cursors)
        )

    async def first_torrents(self, user_id: str, set_name: str, count: int) -> tuple[list[str], bool]:
        """Returns (at most ``count`` torrent ids of one of SETS, unordered, whether these are all)."""
        cursors: dict[Shard, int] = dict.fromkeys(self._shards, 0)
        found = dict[str, None]()
        while cursors and len(found) < count:
            some = min(_PAGE, max(_MIN_SCANNED, 2 * count // len(cursors)))
            parts = await self._scan(user_id, set_name, cursors, some)
            cursors = {shard: int(after) for shard, (after, _) in parts.items() if int(after)}
            for _, members in parts.values():
                found |= dict.fromkeys(_texts(members))
        return list(found)[:count], not cursors and len(found) <= count

    async def set_sizes(self, user_id: str) -> dict[str, int]:
        """Returns the number of torrents in each of SETS. A key of the wrong type counts as 0."""
        sizes = await self._sums_of(lambda shard: [("SCARD", shard.keys.user_set(user_id, name)) for name in SETS])
        return dict(zip(SETS, sizes, strict=True))

    async def torrents_at_once(self, user_id: str) -> tuple[int, int]:
        """Returns (torrents that the user seeds now, those that the user downloads now)."""
        seeding, leeching = await self._sums_of(
            lambda shard: [
                ("SINTERCARD", 2, *(shard.keys.user_set(user_id, each) for each in ("active", name)))
                for name in ("complete", "incomplete")
            ]
        )
        return seeding, leeching

    async def _sums_of(self, commands: Callable[[Shard], Sequence[tuple[Argument, ...]]]) -> list[int]:
        """The sums over the shards of several numbers. A key of the wrong type counts as 0."""
        parts = await self._shards.several(commands)
        return [sum(each for each in found if isinstance(each, int)) for found in zip(*parts.values(), strict=True)]

    async def on_torrents(self, user_id: str, torrent_ids: Sequence[str]) -> list[dict[str, str]]:
        """Returns the user's fields on torrents (``t:u:<uid>:t:<tid>``), in order, each summed over all of the user's
        peer ids. Empty where the user has never been."""
        return await self.accounts([(user_id, torrent_id) for torrent_id in torrent_ids])

    async def accounts(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
        """Returns the same for several users: (user id, torrent id). An account on a torrent that was deleted is found
        where the id was given out."""
        shards = await self._shards.of_torrents([torrent_id for _, torrent_id in pairs])
        places = {place: shard for place, shard in enumerate(shards) if shard is not None}
        rows = await self._shards.ask(
            [(shard, ("HGETALL", shard.keys.user_torrent(*pairs[place]))) for place, shard in places.items()],
            keep_errors=True,
        )
        found: list[dict[str, str]] = [{} for _ in pairs]
        for place, row in zip(places, rows, strict=True):
            found[place] = text_of(hash_of(row or []))
        return found

    async def count(self) -> int:
        """Returns the number of users. Without the main prefix, that of those who have been in one shard."""
        counts = self._shards.main_or_copies(lambda shard: shard.connection.command("ZCARD", shard.keys.users()))
        return int(max(await counts))

    async def page(self, offset: int, count: int = 100) -> list[User]:
        """Returns ``count`` users from ``offset`` on, ordered by id."""
        passkeys = await self._connection.command("ZRANGE", self._keys.users(), offset, offset + count - 1)
        return await self.get_all([passkey.decode() for passkey in passkeys])

    async def hit_and_runs(self, offset: int = 0, count: int = 100) -> list[tuple[str, int]]:
        """Returns (user id, number of hit-and-runs) of the users who have any, highest number first."""
        index = self._keys.hit_and_runs()
        return ranked(await self._connection.command("ZRANGE", index, offset, offset + count - 1, "REV", "WITHSCORES"))

    async def hit_and_run_count(self) -> int:
        return int(await self._connection.command("ZCARD", self._keys.hit_and_runs()))

    async def forgive(self, user_id: str, torrent_id: str | None = None) -> int:
        """Clears the user's hit-and-run on one torrent, or on all of them, also pending ones. Returns how many it
        cleared. Past downloads will not count again. New downloads of the required amount make a new hit-and-run."""
        forgiven = sum(await asyncio.gather(*(self._forgive_in(shard, user_id, torrent_id) for shard in self._shards)))
        if forgiven:
            await self._sums.save([user_id])
            await self._publish(user_id)
        return forgiven

    async def _forgive_in(self, shard: Shard, user_id: str, torrent_id: str | None) -> int:
        head = (user_id, self._rules.current.max_changes)
        if torrent_id is not None:
            return int(await shard.scripts.forgive([*head, torrent_id]))
        forgiven = 0
        for name in ("hnr", "incomplete", "complete"):  # a pending one is in one of the last two
            async for ids in scan(shard.connection, ("SSCAN", shard.keys.user_set(user_id, name)), "COUNT", _PAGE):
                forgiven += int(await shard.scripts.forgive([*head, *ids])) if ids else 0
        return forgiven

    async def reindex_hit_and_runs(self) -> int:
        """Rebuilds the index of ``hit_and_runs`` from the users' sets. Returns how many users have hit-and-runs. Needed
        after a site changed the sets. It walks the key space, and may run while trackers update the index. Sums stay as
        they were while a shard is unavailable."""
        await self._shards.gather(_reindex_hit_and_runs)
        cursor = b"0"
        while not self._shards.unavailable and (cursor := await self._sums.save_page(cursor)) != b"0":
            pass
        return await self.hit_and_run_count()

    async def _changed(self, user_id: str) -> None:
        await self._copies.copy_to_all()
        await self._sums.save_if_possible([user_id])  # totals that were set begin now, not at the next walk
        await self._publish(user_id)

    async def _publish(self, user_id: str) -> None:
        await self._connection.command("PUBLISH", self._keys.channel("users"), user_id)


async def _reindex_hit_and_runs(shard: Shard) -> None:
    head, tail = shard.keys.user_set("*", "hnr").split("*")
    how = ("MATCH", f"{head}*{tail}", "COUNT", _PAGE, "TYPE", "set")
    async for found in scan(shard.connection, ("SCAN",), *how):
        if user_ids := [name[len(head) : -len(tail)] for name in _texts(found) if name.startswith(head)]:
            await shard.scripts.rank_hit_and_runs(user_ids)
    async for pairs in scan(shard.connection, ("ZSCAN", shard.keys.hit_and_runs()), "COUNT", _PAGE):
        if pairs:
            await shard.scripts.rank_hit_and_runs([user_id for user_id, _ in ranked(pairs)])


def _texts(values: Sequence[bytes]) -> list[str]:
    return [value.decode("utf-8", "replace") for value in values]
