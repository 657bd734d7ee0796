"""Lists of users: sorted by an index, filtered by rights, searched by display name.

A filter by a right that users do not have reads them from an index of their own, and knows their number. Any other
filter walks through the index of the order, some users in each script call. So do all until the indexes are complete.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from tracker.errors import ClientError
from tracker.names import fold
from tracker.store.client.pipe import Argument
from tracker.store.sharding.ranking import Pause, RankWalk
from tracker.store.sharding.shards import Part, Shard, in_parts
from tracker.store.users.fields import User, is_user_id
from tracker.store.users.users import Users

Order = Literal["id", "name", "uploaded", "downloaded", "ratio", "hit_and_runs"]
ORDERS: tuple[Order, ...] = get_args(Order)
_WHOLE = ("id", "uploaded", "downloaded", "ratio")
"""Orders that list all users."""
USERS_A_CALL = 500
"""Users that one script call looks at. Takes the store about a millisecond. Announces wait for that call."""
NAMES_A_PAGE, USERS_A_PAGE = 50_000, 10_000
"""Max users whose names, or whose rights, are looked at for one page: each takes the store about 50 ms. The next page
continues from there."""
MAX_MATCHES, MATCHES_A_CALL = 20_000, 1000
"""A filter by an index of at most this many users sorts them for each page; MATCHES_A_CALL are read in one command.
Takes the store about 20 ms."""
MAX_FEW = 1000
"""At most this many users are read to sort them by name, or to search their names."""
LISTS_AT_ONCE = 2
"""Max concurrent lists with a filter or a search. Announces run between the script calls of a few lists, but would wait
for the calls of many."""
USERS_A_ROUND = 20_000
"""Max users that ``rank`` visits, unless their indexes are incomplete."""
CURSOR = re.compile(r"([fw])([0-9]{1,16})", re.ASCII)
"""f: a place among those that fit; w: a position of a walk through the order."""
_END = -1


@dataclass(frozen=True, slots=True)
class UserFilter:
    """Which users a list has, and in which order. None: both. ``name``: a part of the display name."""

    order: Order = "id"
    descending: bool = False
    enabled: bool | None = None
    can_leech: bool | None = None
    name: str = ""

    @property
    def is_selective(self) -> bool:
        """Whether the list leaves users of its index out."""
        return bool(self.name) or self.has_rights

    @property
    def has_rights(self) -> bool:
        """Whether users are selected by their rights."""
        return self.enabled is not None or self.can_leech is not None

    @property
    def missing(self) -> list[str]:
        """The indexes of users that the filter lets through: those without a right."""
        flags = {"disabled": self.enabled, "blocked": self.can_leech}
        return [state for state, flag in flags.items() if flag is False]

    def fits(self, user: User) -> bool:
        """Whether the user has the rights."""
        return self.enabled in (None, user.enabled) and self.can_leech in (None, user.can_leech)


class UserPage(NamedTuple):
    """Users of a list. ``cursor``: that of the next page, '' at the end. ``total`` and ``first``, the place of the
    first one from 0 on, are None if they are unknown."""

    cursor: str
    users: list[User]
    total: int | None = None
    first: int | None = None


class UserListing(Part):
    """Lists under one key prefix."""

    def __init__(self, shard: Shard, users: Users) -> None:
        super().__init__(shard)
        self._users = users
        self._lists = asyncio.Semaphore(LISTS_AT_ONCE)
        self._ranks = RankWalk(shard, "users", self._rank)

    async def page(self, wanted: UserFilter, cursor: str = "", count: int = 100) -> UserPage:
        """Returns at most ``count`` users; ``cursor`` may also be made of ``f`` and a place. Raises ClientError for an
        invalid cursor.

        Order ``name`` lists only users who have a name, and ``hit_and_runs`` only those who have any. Orders by totals
        follow the totals within some minutes: see ``rank``. A search (``name``) is ordered by name; if its text is a
        user's id, this user comes first. A page with a filter may be short before the end. Users that change between
        pages may be missing or repeated.
        """
        if not wanted.is_selective:
            _, position = _place(cursor)
            page = await self._walk(wanted, position, count)
            return page._replace(total=await self.count(wanted.order), first=position)
        async with self._lists:
            if not wanted.name:
                return await self._matches(wanted, cursor, count)
            return await self._search(wanted, cursor, count)

    async def _search(self, wanted: UserFilter, cursor: str, count: int) -> UserPage:
        text = wanted.name.strip()
        passkey = await self._users.passkey_of(text) if is_user_id(text) else None
        found = await self._users.get(passkey) if passkey else None
        first = [found] if found is not None and not cursor and wanted.fits(found) else []
        left_out = text if found is not None else ""
        page = await self._matches(wanted, cursor, count - len(first), left_out)
        return UserPage(page.cursor, first + page.users)

    async def _matches(self, wanted: UserFilter, cursor: str, count: int, left_out: str = "") -> UserPage:
        """Users that fit, from an index of users without a right, as far as these are few enough. Indexes that are
        incomplete may miss some: then the rights are read from the rows. A list that began with few goes on with up to
        twice as many."""
        kind, position = _place(cursor)
        if wanted.has_rights and not await self.is_complete():
            return await self._walk(wanted, position, count, left_out)
        missing = wanted.missing
        sizes = {state: int(await self._size(self._keys.user_index(state))) for state in missing}
        if not sizes:
            page = await self._walk(wanted, position, count, left_out)
            return page._replace(total=await self._rest(wanted))
        index = min(sizes, key=sizes.__getitem__)
        is_alone = [wanted.enabled, wanted.can_leech].count(None) == 1
        by_name = bool(wanted.name) or wanted.order == "name"
        in_order = wanted.order == "id" and is_alone and not wanted.name
        max_matches = (MAX_FEW if by_name else MAX_MATCHES) * (2 if position else 1)
        if kind == "w" or (sizes[index] > max_matches and not in_order):
            page = await self._walk(wanted, position, count, left_out)
            return page._replace(total=sizes[index] if is_alone and wanted.order in _WHOLE else None)
        if in_order:
            ids = await self._range(index, wanted.descending, position, count)
            return await self._page_of(wanted, ids, position, count, sizes[index])
        found = await self._range(index, False, 0, sizes[index])
        found = await self._fitting(wanted, found, index)
        ids = await (self._by_name(wanted, found, left_out) if by_name else self._by_score(wanted, found))
        return await self._page_of(wanted, ids[position : position + count], position, count, len(ids))

    async def _size(self, key: str) -> int:
        return int(await self._connection.command("ZCARD", key))

    async def _rest(self, wanted: UserFilter) -> int | None:
        """How many users have the one right that is wanted, if that is known."""
        states = {"disabled": wanted.enabled, "blocked": wanted.can_leech}
        having = [state for state, flag in states.items() if flag]
        if wanted.name or wanted.order not in _WHOLE or len(having) != 1:
            return None
        return max(0, await self.count(wanted.order) - await self._size(self._keys.user_index(having[0])))

    async def _range(self, state: str, descending: bool, first: int, count: int) -> list[str]:
        """Ids of users without a right, in order of the ids."""
        order = ("REV",) if descending else ()
        key, found = self._keys.user_index(state), list[bytes]()
        while len(found) < count:
            some = min(MATCHES_A_CALL, count - len(found))
            start = first + len(found)
            found += (more := await self._connection.command("ZRANGE", key, start, start + some - 1, *order))
            if len(more) < some:
                break
        return [user_id.decode() for user_id in found]

    async def _fitting(self, wanted: UserFilter, ids: list[str], index: str) -> list[str]:
        """The users in ``ids`` whose rights match. All are in ``index``."""
        for state, flag in (("disabled", wanted.enabled), ("blocked", wanted.can_leech)):
            if flag is not None and state != index:
                listed = await self._scores(self._keys.user_index(state), ids)
                ids = [id for id, score in zip(ids, listed, strict=True) if (score is None) == flag]
        return ids

    async def _by_score(self, wanted: UserFilter, ids: list[str]) -> list[str]:
        """The users in ``ids`` that the order lists, in its order."""
        if wanted.order == "id":
            return list(ids[::-1] if wanted.descending else ids)
        scores = await self._scores(self._index(wanted.order), ids)
        pairs = [(score, id) for id, score in zip(ids, scores, strict=True) if score is not None]
        return [id for _, id in sorted(pairs, reverse=wanted.descending)]

    async def _scores(self, key: str, ids: Sequence[str]) -> list[float | None]:
        scores: list[float | None] = []
        for some in in_parts(ids, MATCHES_A_CALL):
            found = await self._connection.command("ZMSCORE", key, *some)
            scores += (None if score is None else float(score) for score in found)
        return scores

    async def _by_name(self, wanted: UserFilter, ids: list[str], left_out: str) -> list[str]:
        """The users in ``ids`` whose name matches, ordered by name."""
        rows = await self._connection.pipeline(*(("HGET", self._keys.user(id), "listed") for id in ids))
        part = fold(wanted.name).encode()
        names = {
            id: name
            for id, name in zip(ids, rows, strict=True)
            if isinstance(name, bytes) and part in name and id != left_out
        }
        return sorted(
            names, key=lambda id: names[id] + b"\t" + id.encode(), reverse=wanted.descending and not wanted.name
        )

    async def _page_of(self, wanted: UserFilter, ids: Sequence[str], first: int, count: int, total: int) -> UserPage:
        """Users whose rights a site changed since a job listed them are left out."""
        users = [user for user in await self._users.by_ids(ids) if wanted.fits(user)]
        return UserPage(f"f{first + count}" if first + count < total else "", users, total, first)

    async def _walk(self, wanted: UserFilter, position: int, count: int, left_out: str = "") -> UserPage:
        order = "name" if wanted.name else wanted.order
        flags = ("" if flag is None else int(flag) for flag in (wanted.enabled, wanted.can_leech))
        rules: list[Argument] = [*flags, fold(wanted.name), left_out]
        users_a_call = USERS_A_CALL if wanted.is_selective else count
        passkeys: list[bytes] = []
        stop = position + (USERS_A_PAGE if wanted.has_rights else NAMES_A_PAGE)
        while len(passkeys) < count and position != _END and position < stop:
            left = count - len(passkeys)
            position, found = await self._scripts.list_users(
                [order, int(wanted.descending), position, users_a_call, left, *rules]
            )
            passkeys += found
        users = await self._users.get_all([passkey.decode() for passkey in passkeys])
        return UserPage("" if position == _END else f"w{position}", users)

    async def count(self, order: Order) -> int:
        """Returns the number of users in the index of an order."""
        return await self._size(self._index(order))

    def _index(self, order: Order) -> str:
        indexes = {"id": self._keys.users(), "hit_and_runs": self._keys.hit_and_runs()}
        return indexes.get(order, self._keys.user_index(order))

    async def is_complete(self) -> bool:
        return await self._ranks.is_complete()

    async def rank(self, users: int = USERS_A_ROUND, *, all_users: bool = False, pause: Pause = asyncio.sleep) -> bool:
        """Ranks the next users by totals and rights, about ``users`` of them; all if ``all_users``, or if the indexes
        are incomplete. False if the store is out of memory: the next call goes on there."""
        return await self._ranks.go_on(users, pause, ranks_all=all_users)

    async def _rank(self, cursor: bytes) -> tuple[bytes, int]:
        after, ranked = await self._scripts.rank_users([cursor, USERS_A_CALL])
        return after, int(ranked)


def _place(cursor: str) -> tuple[str, int]:
    """The kind of a cursor and its number. Raises ClientError."""
    match = CURSOR.fullmatch(cursor or "f0")
    if match is None:
        raise ClientError("invalid cursor")
    return match[1], int(match[2])
