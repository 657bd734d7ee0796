"""/users: the users and their totals. Passkeys are secrets: only scope full reads them."""

import asyncio
from typing import Any, Literal

from pydantic import Field

from tracker import operations
from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import (
    CursorPage,
    Factor,
    Moment,
    MultiplierEnd,
    OffsetPage,
    Paged,
    Scanned,
    UserIdText,
    page_of,
    scan_of,
)
from tracker.admin.api.multipliers import multiplier_fields
from tracker.admin.api.routing import not_found
from tracker.errors import ClientError
from tracker.store.torrents.torrents import Torrent
from tracker.store.users.rules import rule_fields
from tracker.store.users.users import User

endpoints = Endpoints("users", "Users: passkeys, permissions, totals, hit-and-runs.")

_UNKNOWN = {404: "Unknown user."}
SetName = Literal["active", "complete", "incomplete", "hnr"]


class UserRow(Reply):
    """A user with totals."""

    user_id: str
    enabled: bool
    can_leech: bool
    uploaded: int = Field(description="Bytes, times the multipliers.")
    downloaded: int = Field(description="Bytes, times the multipliers.")
    snatches: int
    announces: int
    upload_multiplier: float = Field(description="The user's own; 1: none.")
    upload_multiplier_until: Moment | None = Field(description="When it ends; null: never.")
    download_multiplier: float = Field(description="The user's own; 0: freeleech, 1: none.")
    download_multiplier_until: Moment | None = Field(description="When it ends; null: never.")
    max_downloads: int | None = Field(
        description="Torrents that the user downloads at once; 0: any number, null: as many as the setting allows."
    )
    hnr_exempt: bool = Field(description="The user gets no hit-and-runs.")


class UserPage(OffsetPage[UserRow]):
    """A page of users, ordered by ID."""


class SetSizes(Reply):
    """Numbers of the user's torrents by state."""

    active: int
    complete: int
    incomplete: int
    hnr: int = Field(description="Uncleared hit-and-runs.")


class UserDetails(UserRow):
    """A user in full."""

    passkey: str | None = Field(description="null for scope `read`.")
    torrents: SetSizes
    unreported: int = Field(
        description="Bytes downloaded but not reported: `left` fell without `downloaded` rising. Not charged."
    )


class Passkey(Reply):
    """A user's passkey, shown once."""

    user_id: str
    passkey: str
    announce_path: str = Field(description="Path of the announce URL, after host and port.")


class UserNew(Body):
    """A new user."""

    user_id: UserIdText | None = Field(None, description="Default: the next free number.")
    can_leech: bool = Field(True, description="false: downloading is blocked.")


class UserEdit(Body):
    """Changes; omitted and null fields are unchanged."""

    enabled: bool | None = Field(None, description="false: announces are refused immediately.")
    can_leech: bool | None = None
    upload_multiplier: Factor | None = Field(None, description="1: none.")
    upload_multiplier_until: MultiplierEnd = None
    download_multiplier: Factor | None = Field(None, description="0: freeleech, 1: none.")
    download_multiplier_until: MultiplierEnd = None
    max_downloads: int | None = Field(
        None, ge=-1, le=999_999, description="0: any number, -1: as many as the setting allows."
    )
    hnr_exempt: bool | None = Field(None, description="true: the user gets no hit-and-runs.")


class UserTorrent(Reply):
    """A user's totals on a torrent, over all of the user's clients."""

    torrent_id: str
    info_hash: str | None = Field(description="null if the torrent was removed.")
    name: str
    uploaded: int
    downloaded: int
    total_seconds: int
    seed_seconds: int
    completed_at: Moment | None
    peers: int = Field(description="The user's active clients on the torrent.")
    unreported: int = Field(
        description="Bytes downloaded but not reported: `left` fell without `downloaded` rising. Not charged."
    )


class UserTorrentPage(CursorPage[UserTorrent]):
    """A page of a user's torrents, unordered."""


class HitAndRuns(Reply):
    """A user with hit-and-runs."""

    user_id: str
    torrents: int


class HitAndRunsPage(OffsetPage[HitAndRuns]):
    """Users with hit-and-runs, highest count first."""


class PendingHitAndRun(Reply):
    """A torrent that a user has left, and that becomes a hit-and-run unless the user comes back before `at`."""

    user_id: str
    torrent_id: str
    info_hash: str | None = Field(description="null if the torrent was removed.")
    name: str
    at: Moment
    downloaded: int
    uploaded: int
    total_seconds: int
    seed_seconds: int


class PendingHitAndRunsPage(OffsetPage[PendingHitAndRun]):
    """Pending hit-and-runs, the next one first."""


class Forgiven(Reply):
    """Number of forgiven hit-and-runs."""

    forgiven: int


async def _known(call: Call, user_id: str) -> User:
    passkey = await call.store.users.passkey_of(user_id)
    user = await call.store.users.get(passkey) if passkey else None
    if user is None:
        raise not_found("user")
    return user


def _fields(user: User) -> dict[str, Any]:
    rules = user.rules
    return {
        **{name: getattr(user, name) for name in UserRow.model_fields if hasattr(user, name)},
        **multiplier_fields(rules.upload_multiplier, rules.download_multiplier),
        "max_downloads": rules.max_downloads,
        "hnr_exempt": rules.hnr_exempt,
    }


def _passkey(user: User) -> Passkey:
    return Passkey(user_id=user.user_id, passkey=user.passkey, announce_path=f"/{user.passkey}/announce")


@endpoints.get("/users", "List users")
async def list_all(call: Call, query: Paged) -> UserPage:
    users = call.store.users
    found = await users.page(query.offset, query.limit)
    return UserPage(**page_of(query, [UserRow(**_fields(user)) for user in found], await users.count()))


@endpoints.post(
    "/users",
    "Add a user",
    status=201,
    errors={409: "A user with this id exists."},
    location="/users/{reply.user_id}",
)
async def create(call: Call, body: UserNew) -> Passkey:
    """The response contains the new passkey of 160 random bits."""
    return _passkey(await call.store.users.add(body.user_id, can_leech=body.can_leech))


@endpoints.get("/users/{user_id}", "Show a user", errors=_UNKNOWN)
async def show(call: Call, user_id: UserIdText) -> UserDetails:
    user = await _known(call, user_id)
    sizes = SetSizes(**await call.store.users.set_sizes(user_id))
    return UserDetails(
        **_fields(user),
        passkey=user.passkey if call.is_full else None,
        torrents=sizes,
        unreported=user.unreported,
    )


@endpoints.patch("/users/{user_id}", "Change a user", errors=_UNKNOWN)
async def edit(call: Call, user_id: UserIdText, body: UserEdit) -> UserRow:
    user = await _known(call, user_id)
    given = body.model_dump(exclude_none=True)
    rules = rule_fields(given)
    rights = {name: value for name, value in given.items() if name in ("enabled", "can_leech")}
    await call.store.users.edit_rules(user.passkey, rules)
    await call.store.users.edit(user.passkey, rights)
    return UserRow(**_fields(await _known(call, user_id)))


@endpoints.post("/users/{user_id}/passkey", "Replace the passkey", errors=_UNKNOWN)
async def rotate(call: Call, user_id: UserIdText) -> Passkey:
    """The old passkey stops working immediately. The response contains the new one."""
    user = await _known(call, user_id)
    return _passkey(await call.store.users.rotate(user.passkey))


@endpoints.delete("/users/{user_id}", "Delete a user", errors=_UNKNOWN)
async def delete(call: Call, user_id: UserIdText) -> None:
    """Deletes all totals too."""
    try:
        await call.store.users.delete(user_id)
    except ClientError as error:
        raise not_found("user") from error


@endpoints.get("/users/{user_id}/torrents/{set_name}", "List a user's torrents", errors=_UNKNOWN)
async def torrents(call: Call, user_id: UserIdText, set_name: SetName, query: Scanned) -> UserTorrentPage:
    await _known(call, user_id)
    users = call.store.users
    after, ids = await users.torrents_page(user_id, set_name, query.cursor, query.limit)
    known = {torrent.torrent_id: torrent for torrent in await call.store.torrents.by_ids(ids)}
    shares = await asyncio.gather(*(users.torrent(user_id, each) for each in ids))
    items = [
        _user_torrent(each, known.get(each), share or {}) for each, share in zip(ids, shares, strict=True)
    ]
    return UserTorrentPage(**scan_of(after, items, (await users.set_sizes(user_id))[set_name]))


def _user_torrent(torrent_id: str, torrent: Torrent | None, share: dict[str, str]) -> UserTorrent:
    whole = operations.to_integer
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
        unreported=whole(share.get("unreported")),
    )


@endpoints.post("/users/{user_id}/forgive", "Forgive all hit-and-runs", errors=_UNKNOWN)
async def forgive(call: Call, user_id: UserIdText) -> Forgiven:
    """Past downloads do not count again; new downloads above the threshold do."""
    await _known(call, user_id)
    return Forgiven(forgiven=await call.store.users.forgive(user_id))


@endpoints.post(
    "/users/{user_id}/forgive/{torrent_id}",
    "Forgive one hit-and-run",
    errors={404: "Unknown user or hit-and-run."},
)
async def forgive_one(call: Call, user_id: UserIdText, torrent_id: UserIdText) -> Forgiven:
    """By `torrent_id`."""
    await _known(call, user_id)
    forgiven = await call.store.users.forgive(user_id, torrent_id)
    if not forgiven:
        raise not_found("hit-and-run")
    return Forgiven(forgiven=forgiven)


@endpoints.get("/hit-and-runs", "List users with hit-and-runs")
async def hit_and_runs(call: Call, query: Paged) -> HitAndRunsPage:
    """Highest count first."""
    users = call.store.users
    found = await users.hit_and_runs(query.offset, query.limit)
    items = [HitAndRuns(user_id=user_id, torrents=number) for user_id, number in found]
    return HitAndRunsPage(**page_of(query, items, await users.hit_and_run_count()))


@endpoints.get("/hit-and-runs/pending", "List pending hit-and-runs")
async def pending_hit_and_runs(call: Call, query: Paged) -> PendingHitAndRunsPage:
    """Torrents whose users may still come back: see `TRACKER_USERS__HNR_GRACE_SECONDS`."""
    found = await operations.pending_hit_and_runs(call.store, query.offset, query.limit)
    total = await call.store.hit_and_runs.pending_count()
    return PendingHitAndRunsPage(**page_of(query, [PendingHitAndRun(**each) for each in found], total))
