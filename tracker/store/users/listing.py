"""Lists of users: which users, in which order."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from tracker.errors import ClientError
from tracker.names import fold
from tracker.store.client.pipe import Argument
from tracker.store.sharding.listing import END, Condition, Filter, Listing, ListPage, page_of
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.users.fields import User, is_user_id
from tracker.store.users.users import Users

Order = Literal["id", "name", "uploaded", "downloaded", "ratio", "hit_and_runs"]
ORDERS: tuple[Order, ...] = get_args(Order)
USERS_A_CALL = 500
"""Users that one script call looks at. Takes the store about a millisecond. Announces wait for that call."""
NAMES_A_PAGE, USERS_A_PAGE = 50_000, 10_000
"""Max users whose names, or whose rights, are looked at for one page: each takes the store about 50 ms. The next page
continues from there."""


@dataclass(frozen=True, slots=True)
class UserFilter(Filter[User]):
    """None: both. ``left_out``: the id of a user who is not in the list."""

    order: Order = "id"
    descending: bool = False
    enabled: bool | None = None
    can_leech: bool | None = None
    name: str = ""
    left_out: str = ""

    @property
    def switches(self) -> tuple[bool | None, ...]:
        return self.enabled, self.can_leech

    @property
    def conditions(self) -> list[Condition]:
        """Users without a right have an index; its scores are their ids."""
        states = zip(("disabled", "blocked"), self.switches, strict=True)
        return [Condition(state, "id", listed=not has) for state, has in states if has is not None]

    def fits(self, user: User) -> bool:
        """Whether the user has the rights."""
        return self.enabled in (None, user.enabled) and self.can_leech in (None, user.can_leech)


class UserListing(Listing[UserFilter, User]):
    """Lists under one key prefix. Orders by totals follow the totals within some minutes: see ``rank``."""

    kind = "users"
    whole = ("id", "uploaded", "downloaded", "ratio")

    def __init__(self, shard: Shard, users: Users) -> None:
        super().__init__(Shards.only(shard), users.by_ids)
        self._users = users

    async def page(self, wanted: UserFilter, cursor: str = "", count: int = 100) -> ListPage[User]:
        """Returns at most ``count`` users; ``cursor`` may also be made of ``f`` and a place. Raises ClientError for an
        invalid cursor. Order ``name`` lists only users who have a name, and ``hit_and_runs`` only those who have any. A
        search (``name``) is ordered by name; if its text is a user's id, this user comes first."""
        first, positions = self._place(cursor)
        if not wanted.is_selective:
            if positions == [END]:
                raise ClientError("invalid cursor")
            page = await self._walk(wanted, positions, first, count)
            return page._replace(total=await self.count(wanted.order), first=positions[0] if positions else first)
        if not wanted.name:
            return await self.filtered(wanted, cursor, count)
        text = wanted.name.strip()
        passkey = await self._users.passkey_of(text) if is_user_id(text) else None
        if (found := await self._users.get(passkey) if passkey else None) is not None:
            wanted = replace(wanted, left_out=text)
        own = [found] if found is not None and not cursor and wanted.fits(found) else []
        page = await self.filtered(wanted, cursor, count - len(own))
        return ListPage(page.cursor, own + page.rows)

    def _key(self, shard: Shard, index: str) -> str:
        others = {"id": shard.keys.users(), "hit_and_runs": shard.keys.hit_and_runs()}
        return others.get(index) or shard.keys.user_index(index)

    async def _by_name(self, ids: list[str], wanted: UserFilter, first: int, count: int) -> ListPage[User]:
        (main,) = self._shards
        rows = await main.connection.pipeline(*(("HGET", main.keys.user(id), "listed") for id in ids)) if ids else []
        part = fold(wanted.name).encode()
        found = [
            (name + b"\t" + id.encode(), id)
            for id, name in zip(ids, rows, strict=True)
            if isinstance(name, bytes) and part in name and id != wanted.left_out
        ]
        found.sort(reverse=wanted.descending and not wanted.name)
        users = await self._fitting_rows([id for _, id in found[first : first + count]], wanted)
        return page_of(users, first, count, len(found))

    async def _walk(self, wanted: UserFilter, positions: list[int] | None, first: int, count: int) -> ListPage[User]:
        (main,) = self._shards
        (position,) = positions or (first,)
        order = "name" if wanted.name else wanted.order
        head: list[Argument] = [order, int(wanted.descending)]
        rules = [*wanted.arguments(), wanted.left_out]
        users_a_call = USERS_A_CALL if wanted.is_selective else count
        passkeys: list[bytes] = []
        stop = position + (USERS_A_PAGE if wanted.flags else NAMES_A_PAGE)
        while len(passkeys) < count and position != END and position < stop:
            left = count - len(passkeys)
            position, found = await main.scripts.list_users([*head, position, users_a_call, left, *rules])
            passkeys += found
        users = await self._users.get_all([passkey.decode() for passkey in passkeys])
        return ListPage("" if position == END else f"w{position}", users)

    async def _rank(self, shard: Shard, cursor: bytes) -> tuple[bytes, int]:
        after, ranked = await shard.scripts.rank_users([cursor, USERS_A_CALL])
        return after, int(ranked)
