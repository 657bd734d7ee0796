"""Lists of users: sorted by an index, filtered by rights, searched by display name."""

import asyncio
from dataclasses import dataclass
from typing import Literal, get_args

from redis.exceptions import OutOfMemoryError

from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument
from tracker.store.client.scripts import Scripts
from tracker.store.schema.folding import fold
from tracker.store.schema.keys import Keys
from tracker.store.users.fields import is_user_id
from tracker.store.users.users import User, Users

Order = Literal["id", "name", "uploaded", "downloaded", "ratio", "hit_and_runs"]
ORDERS: tuple[Order, ...] = get_args(Order)
USERS_A_CALL = 500
"""Users that one script call looks at. Takes the store about a millisecond. Announces wait for that call."""
NAMES_A_PAGE, USERS_A_PAGE = 50_000, 10_000
"""Max users whose names, or whose rights, are looked at for one page: each takes the store about 50 ms. The next page
continues from there."""
LISTS_AT_ONCE = 2
"""Max concurrent lists with a filter or a search. Announces run between the script calls of a few lists, but would wait
for the calls of many."""
USERS_A_ROUND = 20_000
"""Max users that ``rank`` visits."""
END = -1


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


class UserListing:
    """Lists under one key prefix."""

    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys, users: Users) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._users = users
        self._lists = asyncio.Semaphore(LISTS_AT_ONCE)
        self._rank_cursor = b"0"

    async def page(self, wanted: UserFilter, position: int = 0, count: int = 100) -> tuple[int, list[User]]:
        """Returns (position of the next page, at most ``count`` users). The position is END after the last user.

        Order ``name`` lists only users who have a name, and ``hit_and_runs`` only those who have any. Orders by totals
        follow the totals within some minutes: see ``rank``. A search (``name``) is ordered by name; if its text is a
        user's id, this user comes first. A page with a filter may be short before the end. Users that change between
        pages may be missing or repeated.
        """
        if not wanted.is_selective:
            return await self._walk(wanted, position, count)
        async with self._lists:
            if not wanted.name:
                return await self._walk(wanted, position, count)
            return await self._search(wanted, position, count)

    async def _search(self, wanted: UserFilter, position: int, count: int) -> tuple[int, list[User]]:
        text = wanted.name.strip()
        passkey = await self._users.passkey_of(text) if is_user_id(text) else None
        found = await self._users.get(passkey) if passkey else None
        # Position 0 is the user with this id, if there is one; the others follow from 1 on.
        first = [found] if found is not None and not position and _fits(found, wanted) else []
        left_out = text if found is not None else ""
        after, users = await self._walk(wanted, max(position - 1, 0), count - len(first), left_out)
        return END if after == END else after + 1, first + users

    async def _walk(
        self, wanted: UserFilter, position: int, count: int, left_out: str = ""
    ) -> tuple[int, list[User]]:
        order = "name" if wanted.name else wanted.order
        flags = ("" if flag is None else int(flag) for flag in (wanted.enabled, wanted.can_leech))
        rules: list[Argument] = [*flags, fold(wanted.name), left_out]
        users_a_call = USERS_A_CALL if wanted.is_selective else count
        passkeys: list[bytes] = []
        stop = position + (USERS_A_PAGE if wanted.has_rights else NAMES_A_PAGE)
        while len(passkeys) < count and position != END and position < stop:
            left = count - len(passkeys)
            position, found = await self._scripts.list_users(
                [order, int(wanted.descending), position, users_a_call, left, *rules]
            )
            passkeys += found
        return position, await self._users.get_all([passkey.decode() for passkey in passkeys])

    async def count(self, order: Order) -> int:
        """Returns the number of users in the index of an order."""
        indexes = {"id": self._keys.users(), "hit_and_runs": self._keys.hit_and_runs()}
        return int(await self._connection.command("ZCARD", indexes.get(order, self._keys.user_index(order))))

    async def rank(self, users: int = USERS_A_ROUND) -> None:
        """Ranks the next users by their totals, about ``users`` of them; each process keeps its own position.

        Does nothing if the store is out of memory.
        """
        visited = 0
        try:
            while visited < users:
                self._rank_cursor, ranked = await self._scripts.rank_users([self._rank_cursor, USERS_A_CALL])
                visited += int(ranked)
                if self._rank_cursor == b"0":
                    return
        except OutOfMemoryError:
            return


def _fits(user: User, wanted: UserFilter) -> bool:
    return wanted.enabled in (None, user.enabled) and wanted.can_leech in (None, user.can_leech)
