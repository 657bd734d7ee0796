"""/users: the users of a private tracker. Passkeys are secrets: only who has scope full reads them."""

import asyncio
from typing import Any, Literal

from pydantic import Field

from tracker.admin import operations
from tracker.admin.api.contract import Answer, Body, Call, Endpoints
from tracker.admin.api.models import (
    CursorPage,
    Moment,
    OffsetPage,
    Paged,
    Scanned,
    UserIdText,
    page_of,
    scan_of,
)
from tracker.admin.api.routing import conflict, not_found
from tracker.errors import ClientError
from tracker.store.torrents import Torrent
from tracker.store.users import User

endpoints = Endpoints("users", "Users of a private tracker: passkeys, permissions, totals, hit and runs.")

_UNKNOWN = {404: "There is no such user."}
SetName = Literal["active", "complete", "incomplete", "hnr"]


class UserRow(Answer):
    """A user and the totals."""

    user_id: str
    enabled: bool
    can_leech: bool
    uploaded: int = Field(description="Bytes, with the torrents' multipliers.")
    downloaded: int = Field(description="Bytes, with the torrents' multipliers.")
    snatches: int
    announces: int


class UserPage(OffsetPage[UserRow]):
    """A page of users, by id."""


class SetSizes(Answer):
    """On how many torrents a user is or was."""

    active: int
    complete: int
    incomplete: int
    hnr: int = Field(description="Hit and runs that are not made up for.")


class UserDetails(UserRow):
    """A user, with what a list leaves out."""

    passkey: str | None = Field(description="null for whoever has scope read.")
    torrents: SetSizes


class Passkey(Answer):
    """A user's passkey, told once."""

    user_id: str
    passkey: str
    announce_path: str = Field(description="What follows the tracker's host and port in the announce URL.")


class UserNew(Body):
    """A new user."""

    user_id: UserIdText | None = Field(None, description="The next free number when left out.")
    can_leech: bool = Field(True, description="false: may seed only.")


class UserEdit(Body):
    """What is to change; what is left out or null stays."""

    enabled: bool | None = Field(None, description="false refuses the user from the very next announce.")
    can_leech: bool | None = None


class UserTorrent(Answer):
    """What a user did on a torrent, added up over all of the user's programs."""

    torrent_id: str
    info_hash: str | None = Field(description="null when the torrent is gone.")
    name: str
    uploaded: int
    downloaded: int
    total_seconds: int
    seed_seconds: int
    completed_at: Moment | None
    peers: int = Field(description="Programs of the user there now.")


class UserTorrentPage(CursorPage[UserTorrent]):
    """A page of a user's torrents, in no order."""


class Debt(Answer):
    """A user's hit and runs."""

    user_id: str
    torrents: int


class DebtPage(OffsetPage[Debt]):
    """Users with hit and runs, most first."""


class Forgiven(Answer):
    """How many hit and runs were taken away."""

    forgiven: int


async def _known(call: Call, user_id: str) -> User:
    passkey = await call.stores.users.passkey_of(user_id)
    user = await call.stores.users.get(passkey) if passkey else None
    if user is None:
        raise not_found("user")
    return user


def _fields(user: User) -> dict[str, Any]:
    return {name: getattr(user, name) for name in UserRow.model_fields}


def _told(user: User) -> Passkey:
    return Passkey(user_id=user.user_id, passkey=user.passkey, announce_path=f"/{user.passkey}/announce")


@endpoints.get("/users", "List users")
async def list_all(call: Call, query: Paged) -> UserPage:
    users = call.stores.users
    found = await users.page(query.offset, query.limit)
    return UserPage(**page_of(query, [UserRow(**_fields(user)) for user in found], await users.count()))


@endpoints.post(
    "/users",
    "Add a user",
    status=201,
    errors={409: "A user with this id exists."},
    location="/users/{answer.user_id}",
)
async def create(call: Call, body: UserNew) -> Passkey:
    """With a new passkey of 160 random bits, which is told in this answer."""
    try:
        return _told(await call.stores.users.add(body.user_id, can_leech=body.can_leech))
    except ClientError as error:
        raise conflict(error) from error


@endpoints.get("/users/{user_id}", "Show a user", errors=_UNKNOWN)
async def show(call: Call, user_id: UserIdText) -> UserDetails:
    user = await _known(call, user_id)
    sizes = SetSizes(**await call.stores.users.set_sizes(user_id))
    return UserDetails(**_fields(user), passkey=user.passkey if call.is_full else None, torrents=sizes)


@endpoints.patch("/users/{user_id}", "Change a user", errors=_UNKNOWN)
async def edit(call: Call, user_id: UserIdText, body: UserEdit) -> UserRow:
    user = await _known(call, user_id)
    await call.stores.users.edit(user.passkey, body.model_dump(exclude_none=True))
    return UserRow(**_fields(await _known(call, user_id)))


@endpoints.post("/users/{user_id}/passkey", "Give a new passkey", errors=_UNKNOWN)
async def rotate(call: Call, user_id: UserIdText) -> Passkey:
    """The old one is unknown at once. The new one is told in this answer."""
    user = await _known(call, user_id)
    return _told(await call.stores.users.rotate(user.passkey))


@endpoints.delete("/users/{user_id}", "Delete a user", errors=_UNKNOWN)
async def delete(call: Call, user_id: UserIdText) -> None:
    """With all totals."""
    try:
        await call.stores.users.delete(user_id)
    except ClientError as error:
        raise not_found("user") from error


@endpoints.get("/users/{user_id}/torrents/{set_name}", "List a user's torrents", errors=_UNKNOWN)
async def torrents(call: Call, user_id: UserIdText, set_name: SetName, query: Scanned) -> UserTorrentPage:
    await _known(call, user_id)
    users = call.stores.users
    after, ids = await users.torrents_page(user_id, set_name, query.cursor, query.limit)
    known = {torrent.torrent_id: torrent for torrent in await call.stores.torrents.by_ids(ids)}
    shares = await asyncio.gather(*(users.torrent(user_id, each) for each in ids))
    items = [
        _user_torrent(each, known.get(each), share or {}) for each, share in zip(ids, shares, strict=True)
    ]
    return UserTorrentPage(**scan_of(after, items, (await users.set_sizes(user_id))[set_name]))


def _user_torrent(torrent_id: str, torrent: Torrent | None, share: dict[str, str]) -> UserTorrent:
    whole = operations.whole
    return UserTorrent(
        torrent_id=torrent_id,
        info_hash=torrent.info_hash.hex() if torrent else None,
        name=torrent.name if torrent else "",
        uploaded=whole(share.get("uploaded")),
        downloaded=whole(share.get("downloaded")),
        total_seconds=whole(share.get("total_time")),
        seed_seconds=whole(share.get("seed_time")),
        completed_at=whole(share.get("completed_at")) or None,
        peers=whole(share.get("peers")),
    )


@endpoints.post("/users/{user_id}/forgive", "Forgive hit and runs", errors=_UNKNOWN)
async def forgive(call: Call, user_id: UserIdText) -> Forgiven:
    """All of the user's. As much as makes a hit and run, downloaded from now on, makes one again."""
    await _known(call, user_id)
    return Forgiven(forgiven=await call.stores.users.forgive(user_id))


@endpoints.post(
    "/users/{user_id}/forgive/{torrent_id}", "Forgive a hit and run", errors={404: "There is no such debt."}
)
async def forgive_one(call: Call, user_id: UserIdText, torrent_id: UserIdText) -> Forgiven:
    """Of one torrent, by its `torrent_id`."""
    await _known(call, user_id)
    forgiven = await call.stores.users.forgive(user_id, torrent_id)
    if not forgiven:
        raise not_found("hit and run")
    return Forgiven(forgiven=forgiven)


@endpoints.get("/hit-and-runs", "List who owes")
async def hit_and_runs(call: Call, query: Paged) -> DebtPage:
    """Users who took and left, most torrents first."""
    users = call.stores.users
    found = await users.hit_and_runs(query.offset, query.limit)
    items = [Debt(user_id=user_id, torrents=number) for user_id, number in found]
    return DebtPage(**page_of(query, items, await users.hit_and_run_count()))
