"""/users and /hit-and-runs: users, totals, hit-and-runs, freeleech tokens. Role `read` does not see passkeys."""

import asyncio
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from tracker.admin.api.changes import FEED_CONFLICT, UserQuery, updated
from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import (
    MAX_ROWS,
    Batch,
    End,
    Hex,
    InfoHashText,
    ItemList,
    Moment,
    Outcome,
    Outcomes,
    Page,
    Paged,
    Part,
    RowError,
    UserIdText,
    UserIdValue,
    applied,
    changes_of,
    reply_of,
)
from tracker.admin.context import announce_urls
from tracker.bittorrent import parse_info_hash
from tracker.errors import ClientError, existing
from tracker.operations import users as user_operations
from tracker.operations.torrents import counting_torrent
from tracker.operations.users import Share, freeleech_tokens, shares
from tracker.store.schema.multipliers import MULTIPLIERS, join_ends, refuse_ended
from tracker.store.schema.record import shown
from tracker.store.torrents.torrents import Torrent
from tracker.store.users.fields import Additions, User, Value, checked_fields
from tracker.store.users.importing import SavedUser

endpoints = Endpoints("users", "Users: passkeys, permissions, totals, hit-and-runs.")

_CUT = (
    "Bytes that were not credited, because the rate was above `TRACKER_USERS__MAX_CREDIT_BYTES_PER_SECOND` or "
    "`TRACKER_USERS__MAX_USER_CREDIT_BYTES_PER_SECOND`."
)
PasskeyText = Annotated[
    str,
    Field(
        pattern="^[0-9A-Za-z_-]{16,64}$",
        description="A passkey: 16 to 64 letters, digits, `_` or `-`. Secret.",
        examples=["3f6c0a9be2d14c7f8a5b6c7d8e9f0a1b2c3d4e5f"],
    ),
]
SetName = Literal["active", "complete", "incomplete", "hnr"]


@reply_of(User)
class UserRow(Reply):
    """A user with totals."""

    user_id: str


class SetSizes(Reply):
    """Numbers of the user's torrents by state."""

    active: int
    complete: int
    incomplete: int
    hnr: int = Field(description="Uncleared hit-and-runs.")


class UserDetails(UserRow):
    """A user in full."""

    passkey: str | None = Field(description="null for role `read`.")
    torrents: SetSizes
    unreported: int = Field(
        description="Bytes downloaded but not reported: `left` fell without `downloaded` rising. Not charged."
    )
    connectable: bool | None = Field(
        description="Whether a client of the user accepted a connection of the tracker in the last day; null: none was "
        "checked."
    )
    connectable_checked_at: Moment | None


class Passkey(Reply):
    """A user's passkey, shown once."""

    location = "/users/{reply.user_id}"

    user_id: str
    passkey: str
    announce_path: str = Field(description="Path of the announce URL, after host and port.")
    announce_urls: list[str] = Field(
        description="Announce URLs of the user, from `TRACKER_ANNOUNCE__URLS`. Empty: unknown."
    )


@changes_of(User)
class UserFields(Body):
    """Fields of a user; omitted and null ones are unchanged."""

    passkey: PasskeyText | None = None


class UserNew(UserFields):
    """A new user."""

    user_id: UserIdValue | None = Field(None, description="Default: the next free number.")
    passkey: PasskeyText | None = Field(None, description="Default: a new one of 160 random bits.")


@changes_of(Additions)
class UserEdit(UserFields):
    """Changes; omitted and null fields are unchanged. A total replaces the stored one; `add_uploaded` and
    `add_downloaded` lose nothing that announces credit at the same time."""

    user_id: UserIdValue | None = Field(None, description="If given, that of the path.")
    passkey: PasskeyText | None = Field(None, description="Replaces the passkey; the old one stops working.")


class PasskeyLookup(Body):
    """A passkey to look up."""

    passkey: PasskeyText


@reply_of(Share)
class UserTorrent(Reply):
    """A user's totals on a torrent, over all of the user's clients."""


class Unregistered(Reply):
    """A torrent that a user announced and that is not registered."""

    info_hash: Hex
    at: Moment = Field(description="When the user first announced it.")


class Forgiven(Reply):
    """Number of forgiven hit-and-runs."""

    forgiven: int


async def _known(call: Call, user_id: str) -> User:
    return existing(await call.store.users.by_id(user_id), "user")


def fields_of(user: User) -> dict[str, Any]:
    """The fields of a UserRow."""
    return {"user_id": user.user_id, **user.settable()}


def given(call: Call, body: Body) -> dict[str, Any]:
    """The fields of a user or a group that are given. Raises ClientError for the end of a multiplier without the
    multiplier, and for one in the past."""
    fields = join_ends(body.model_dump(exclude_none=True, exclude={"user_id", "passkey"}))
    refuse_ended((fields[name] for name in MULTIPLIERS if name in fields), call.context.clock())
    return fields


def _passkey(call: Call, user: User) -> Passkey:
    return Passkey(
        user_id=user.user_id,
        passkey=user.passkey,
        announce_path=f"/{user.passkey}/announce",
        announce_urls=announce_urls(call.context, passkey=user.passkey),
    )


@endpoints.get("/users", "List or search users", conflict=FEED_CONFLICT, schema="UserPage: A page of users.")
async def list_all(call: Call, query: UserQuery) -> Page[UserRow]:
    """Sorted by an index, filtered by rights, or searched by display name."""
    page = await part(call, query, query.cursor, query.limit)
    return Page(items=[UserRow(**row) for row in page.rows], total=page.total, next_cursor=page.cursor or None)


async def part(call: Call, query: UserQuery, cursor: str, count: int) -> Part:
    if query.updated_since is None:
        page = await call.store.user_listing.page(query.filter, cursor, count)
        return Part(list(map(fields_of, page.rows)), page.cursor, page.total, page.first)
    ids, after, since = await updated(call, attrgetter("user_id"), query.updated_since, cursor, count)
    return Part(list(map(fields_of, await call.store.users.by_ids(ids))), after, since=since)


@endpoints.post("/users", "Add a user", "user.add", status=201, conflict="The ID or the passkey is taken.")
async def create(call: Call, body: UserNew) -> Passkey:
    """The response contains the passkey."""
    return _passkey(call, await call.store.users.add(body.user_id, body.passkey, **given(call, body)))


@endpoints.post("/users/lookup", "Find a user by passkey", "", missing="Unknown user.")
async def lookup(call: Call, body: PasskeyLookup) -> UserDetails:
    """POST, because proxies log URLs, and a passkey is a secret."""
    return await _details(call, existing(await call.store.users.get(body.passkey), "user"))


@endpoints.get("/users/{user_id}", "Show a user")
async def show(call: Call, user_id: UserIdText) -> UserDetails:
    return await _details(call, await _known(call, user_id))


async def _details(call: Call, user: User) -> UserDetails:
    store = call.store
    sizes, check = await asyncio.gather(
        store.users.set_sizes(user.user_id), store.shards.main_or(store.connect_checks.of_user(user.user_id), None)
    )
    return UserDetails(
        **fields_of(user),
        passkey=user.passkey if call.sees_secrets else None,
        torrents=SetSizes(**sizes),
        unreported=user.unreported,
        connectable=check.connectable if check else None,
        connectable_checked_at=check.at if check else None,
    )


@endpoints.patch(
    "/users/{user_id}",
    "Change a user",
    "user.edit",
    conflict="The passkey is taken, or another request had the Idempotency-Key.",
    repeatable=True,
)
async def edit(call: Call, user_id: UserIdText, body: UserEdit) -> UserRow:
    """The reply has the new totals."""
    users = call.store.users
    if body.user_id not in (None, user_id):
        raise ClientError("the id of a user cannot be changed")
    fields = given(call, body)
    checked_fields(fields)  # before the passkey is replaced
    if body.passkey is not None:
        user = await _known(call, user_id)
        if body.passkey != user.passkey:
            await users.rotate(user.passkey, body.passkey)
    await users.edit(user_id, fields, call.once)
    return UserRow(**fields_of(await _known(call, user_id)))


@endpoints.post("/users/{user_id}/passkey", "Replace the passkey", "user.rotate")
async def rotate(call: Call, user_id: UserIdText) -> Passkey:
    """The old passkey stops working immediately. The response contains the new one."""
    user = await _known(call, user_id)
    return _passkey(call, await call.store.users.rotate(user.passkey))


@endpoints.delete("/users/{user_id}", "Delete a user", "user.delete", role="admin")
async def delete(call: Call, user_id: UserIdText) -> None:
    """Deletes all totals too."""
    await call.store.users.delete(user_id)


@endpoints.get(
    "/users/{user_id}/torrents/{set_name}",
    "List a user's torrents",
    schema="UserTorrentPage: A page of a user's torrents, unordered.",
)
async def torrents(call: Call, user_id: UserIdText, set_name: SetName, query: Paged) -> Page[UserTorrent]:
    await _known(call, user_id)
    users = call.store.users
    after, ids = await users.torrents_page(user_id, set_name, query.cursor, query.limit)
    items = [UserTorrent(**shown(each)) for each in await shares(call.store, user_id, ids)]
    return Page.scan(after, items, (await users.set_sizes(user_id))[set_name])


@endpoints.get(
    "/users/{user_id}/unregistered",
    "List a user's unregistered torrents",
    schema="UnregisteredTorrents: The newest of a user, at most 100, newest first.",
)
async def unregistered(call: Call, user_id: UserIdText) -> ItemList[Unregistered]:
    """Torrents that the user announced in the last 90 days, and that are not registered."""
    await _known(call, user_id)
    tried = await call.store.unregistered.of(user_id)
    return ItemList(items=[Unregistered.from_record(each) for each in tried])


@endpoints.post("/users/{user_id}/forgive", "Forgive all hit-and-runs", "user.forgive")
async def forgive(call: Call, user_id: UserIdText) -> Forgiven:
    """Past downloads do not count again; new downloads above the threshold do."""
    await _known(call, user_id)
    return Forgiven(forgiven=await call.store.users.forgive(user_id))


@endpoints.post(
    "/users/{user_id}/forgive/{torrent_id}",
    "Forgive one hit-and-run",
    "user.forgive",
    missing="Unknown user or hit-and-run.",
)
async def forgive_one(call: Call, user_id: UserIdText, torrent_id: UserIdText) -> Forgiven:
    """By `torrent_id`."""
    await _known(call, user_id)
    return Forgiven(forgiven=existing(await call.store.users.forgive(user_id, torrent_id), "hit-and-run"))


class HitAndRuns(Reply):
    """A user with hit-and-runs."""

    user_id: str
    torrents: int


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


@endpoints.get(
    "/hit-and-runs",
    "List users with hit-and-runs",
    schema="HitAndRunsPage: Users with hit-and-runs, highest count first.",
)
async def hit_and_runs(call: Call, query: Paged) -> Page[HitAndRuns]:
    """Highest count first."""
    users = call.store.users
    found = await users.hit_and_runs(query.offset, query.limit)
    items = [HitAndRuns(user_id=user_id, torrents=number) for user_id, number in found]
    return Page.of(query, items, await users.hit_and_run_count())


@endpoints.get(
    "/hit-and-runs/pending",
    "List pending hit-and-runs",
    schema="PendingHitAndRunsPage: Pending hit-and-runs, the next one first.",
)
async def pending_hit_and_runs(call: Call, query: Paged) -> Page[PendingHitAndRun]:
    """Torrents whose users may still come back: see `TRACKER_USERS__HNR_GRACE_SECONDS`."""
    found = await user_operations.pending_hit_and_runs(call.store, query.offset, query.limit)
    total = await call.store.hit_and_runs.pending_count()
    return Page.of(query, [PendingHitAndRun(**each) for each in found], total)


@changes_of(Additions)
class UserBatchRow(UserFields):
    """A user to add or change, by `user_id` or `passkey`. Omitted and null fields are unchanged. A new user without a
    passkey gets a random one."""

    user_id: UserIdValue | None = None


class UserBatch(Batch):
    """Users to add or change."""

    users: list[SkipValidation[UserBatchRow]] = Field(min_length=1, max_length=MAX_ROWS)
    replace_totals: bool = Field(
        False, description="Replace totals of known users too. They may have grown since they were exported."
    )


class UserOutcome(Reply):
    """What became of one row."""

    user_id: str | None
    outcome: Outcome
    passkey: str | None = Field(description="The passkey that was generated for a new user; else null.")
    uploaded: int | None = Field(description="The new total, if the row adds to totals; else null.")
    downloaded: int | None
    error: RowError


@endpoints.post("/users/batch", "Add or change many users", "user.batch", repeatable=True, schema="UserOutcomes")
async def batch(call: Call, body: UserBatch) -> Outcomes[UserOutcome]:
    """An invalid row changes nothing, and the others are applied. A repeated batch changes nothing more: users that
    exist are `known`. One that adds to totals needs an `Idempotency-Key` for that."""

    async def save(valid: list[dict[str, Value]], first_row: int) -> Sequence[SavedUser | ClientError]:
        named = [str(row.get("user_id") or row["passkey"]) for row in valid if row.get("user_id") or row.get("passkey")]
        before = await call.change.read_rows("user", named)
        saved = await call.store.user_import.save(
            valid, replace_totals=body.replace_totals, once=call.once, first_row=first_row
        )
        call.change.given({name: True for row in valid for name in row})
        ids = [each.user_id for each in saved if not isinstance(each, ClientError)]
        await call.change.note_rows("user", before, ids)
        return saved

    def read(row: UserBatchRow) -> dict[str, Value]:
        return join_ends(row.model_dump(exclude_none=True))

    return await applied(body.users, UserBatchRow, read, save, _outcome_user, call.context.batches)


def _outcome_user(row: UserBatchRow | None, saved: SavedUser | ClientError) -> UserOutcome:
    found: dict[str, Any] = dict.fromkeys(UserOutcome.model_fields)
    if isinstance(saved, ClientError):
        found |= {"user_id": row.user_id if row else None, "outcome": "error", "error": saved.text}
    else:
        found |= {"user_id": saved.user_id, "outcome": "added" if saved.new else "known"}
        found["passkey"] = saved.passkey or None
        found["uploaded"], found["downloaded"] = saved.totals or (None, None)
    return UserOutcome(**found)


freeleech_endpoints = Endpoints(
    "freeleech", "Freeleech tokens: downloads of one torrent that do not count for one user."
)


class FreeleechNew(Body):
    """A freeleech token."""

    until: End | None = Field(None, description="When it ends (epoch s), in the future; without it, never.")


class FreeleechToken(Reply):
    """A torrent whose download does not count for the user."""

    torrent_id: str
    info_hash: str | None = Field(description="null if the torrent was removed.")
    name: str
    until: Moment | None = Field(description="null: never.")


@freeleech_endpoints.get(
    "/users/{user_id}/freeleech",
    "List a user's freeleech tokens",
    schema="FreeleechPage: A page of a user's freeleech tokens, the next to end first.",
)
async def freeleech_list_all(call: Call, user_id: UserIdText, query: Paged) -> Page[FreeleechToken]:
    """Those that have not ended."""
    existing(await call.store.users.passkey_of(user_id), "user")
    rows = await freeleech_tokens(call.store, user_id, query.offset, query.limit)
    total = await call.store.freeleech.count(user_id)
    return Page.of(query, [FreeleechToken(**row) for row in rows], total)


@freeleech_endpoints.put("/users/{user_id}/freeleech/{info_hash}", "Give a freeleech token", "freeleech.give")
async def give(call: Call, user_id: UserIdText, info_hash: InfoHashText, body: FreeleechNew) -> FreeleechToken:
    """Changes the end of a token that the user has. A user has at most 10,000. One for the v2 half of a hybrid torrent
    is given for its v1 half."""
    torrent = await _user_and_torrent(call, user_id, info_hash)
    await call.store.freeleech.give(user_id, torrent.torrent_id, body.until)
    return FreeleechToken(
        torrent_id=torrent.torrent_id, info_hash=torrent.info_hash.hex(), name=torrent.name, until=body.until
    )


@freeleech_endpoints.delete(
    "/users/{user_id}/freeleech/{info_hash}",
    "Take back a freeleech token",
    "freeleech.revoke",
    missing="Unknown user, torrent or token.",
)
async def take_back(call: Call, user_id: UserIdText, info_hash: InfoHashText) -> None:
    torrent = await _user_and_torrent(call, user_id, info_hash)
    existing(await call.store.freeleech.take_back(user_id, torrent.torrent_id), "token")


async def _user_and_torrent(call: Call, user_id: str, info_hash: str) -> Torrent:
    """The torrent that counts for users. Raises NotFound."""
    existing(await call.store.users.passkey_of(user_id), "user")
    return await counting_torrent(call.store, parse_info_hash(info_hash))
