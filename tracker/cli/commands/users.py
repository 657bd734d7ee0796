"""``tracker user …``."""

import sys
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tracker.bittorrent import parse_info_hash
from tracker.cli import terminal
from tracker.cli.commands import AsJson, Config, Yes, change_store, each, group, with_store
from tracker.cli.commands.multipliers import (
    RemoveRule,
    Rule,
    Until,
    check_removed,
    given_multipliers,
    given_rules,
)
from tracker.cli.commands.options import Given, columns_of, options_of, row_of
from tracker.cli.commands.paging import EVERYTHING, PAGE, in_no_order, in_order
from tracker.cli.terminal import MOMENT, Column, Listing, Moment, Row, note, say
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.operations.users import pending_hit_and_runs, shares
from tracker.store.schema.record import fields_of
from tracker.store.store import Store
from tracker.store.users.fields import ADDITIONS, FIELDS, Additions, User, Value
from tracker.store.users.listing import ORDERS, UserFilter

_HASH_DIGITS = 40
_ON_A_TORRENT = (
    *("torrent_id", "uploaded", "downloaded", "total_seconds", "seed_seconds", "credit_cut"),
    *("info_hash", "name"),
)


def _read_secret(text: str | None) -> str | None:
    """The argument, or for ``-`` a line of standard input: other users of the machine can see its arguments."""
    if text != "-":
        return text
    try:
        line = sys.stdin.readline().strip()
    except UnicodeDecodeError:
        line = ""
    if not line:  # an empty passkey would mean a random one
        raise ClientError("the first line of standard input is empty or not UTF-8 text")
    return line


Who = Annotated[
    str,
    typer.Argument(
        metavar="USER", help="User id or passkey; `-` reads it from standard input.", callback=_read_secret
    ),
]
WhoAll = Annotated[list[str], typer.Argument(metavar="USER…", help="User ids or passkeys.")]
Passkey = Annotated[
    str | None,
    typer.Option(
        "--passkey",
        help="16 to 64 letters, digits, _ or -; `-` reads it from standard input. Default: random.",
        callback=_read_secret,
    ),
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", help=fields_of(User)["reason"].about),
]
Passkeys = Annotated[bool, typer.Option("--passkeys", help="Show passkeys (secret).")]


class UserSet(StrEnum):
    active = "active"
    complete = "complete"
    incomplete = "incomplete"
    hnr = "hnr"


users = group("Manage users: passkeys, totals, hit-and-runs.")


@users.command("add")
@options_of(User)
def add_user(
    user_id: Annotated[
        str | None, typer.Option("--id", help="User id. Default: the next free number.")
    ] = None,
    passkey: Passkey = None,
    given: Given = None,
    until: Until = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Add a user and print the passkey."""
    fields = given_multipliers(given or {}, until)

    async def work(store: Store, change: Change) -> None:
        added = await store.users.add(user_id, passkey, **fields)
        change.given(fields)
        change.created("user", added.user_id)
        _show_passkey(added, as_json)

    change_store(config, "user.add", work)


@users.command("rotate")
def rotate_passkey(who: Who, passkey: Passkey = None, as_json: AsJson = False, config: Config = None) -> None:
    """Give a user a new passkey and print it. The old one stops working at once."""

    async def work(store: Store, change: Change) -> None:
        await change.touch("user", who)
        found = await store.users.find(who)
        _show_passkey(await store.users.rotate(found.passkey, passkey), as_json)

    change_store(config, "user.rotate", work)


def _show_passkey(found: User, as_json: bool) -> None:
    row: Row = {
        "user_id": found.user_id,
        "passkey": found.passkey,
        "announce_path": f"/{found.passkey}/announce",
    }
    terminal.describe(row, as_json=as_json)


@users.command("enable")
def enable_user(who: WhoAll, config: Config = None) -> None:
    """Enable users."""
    _edit_users(config, who, {"enabled": True}, "enabled")


@users.command("disable")
def disable_user(who: WhoAll, reason: Reason = None, config: Config = None) -> None:
    """Disable users: they are refused from their next announce on."""
    _edit_users(config, who, {"enabled": False, **({} if reason is None else {"reason": reason})}, "disabled")


def _edit_users(config: Path | None, who: list[str], fields: Mapping[str, Value], done: str) -> None:
    async def action(store: Store, text: str) -> str:
        found = await store.users.find(text)
        await store.users.edit(found.passkey, fields)
        return f"{done} user {found.user_id}"

    each(config, who, action, "user.edit", "user", secret=True)


@users.command("edit")
@options_of(User, Additions)
def edit_user(
    who: Who,
    given: Given = None,
    once: Annotated[
        str,
        typer.Option(
            "--idempotency-key",
            metavar="KEY",
            help="A name for this change, kept for a week: a repeated command adds to totals only once.",
        ),
    ] = "",
    until: Until = None,
    rule: Rule = None,
    remove_rule: RemoveRule = None,
    config: Config = None,
) -> None:
    """Change a user from the next announce on; other fields are unchanged. A total replaces the stored one."""
    fields, changes = given_rules(given or {}, until, rule, remove_rule)
    if not fields and not changes:
        raise typer.BadParameter("nothing to change: give an option such as --no-leech")

    async def work(store: Store, change: Change) -> None:
        await change.touch("user", who)
        change.given(fields)
        found = await store.users.find(who)
        if once:
            await store.repeats.begin(once, repr((found.user_id, sorted(fields.items()))).encode())
        await store.users.edit(found.passkey, fields, once)
        for each_rule in changes:
            check_removed(await store.users.change_rule(found.passkey, each_rule))
        say(f"changed user {found.user_id}")
        if not fields.keys().isdisjoint(ADDITIONS):
            found = await store.users.find(found.user_id)
            say(f"uploaded {found.uploaded}, downloaded {found.downloaded}")

    change_store(config, "user.edit", work)


@users.command("delete")
def delete_user(
    who: Who,
    yes: Yes = False,
    config: Config = None,
) -> None:
    """Delete a user and all of the user's totals."""

    async def work(store: Store, change: Change) -> None:
        await change.touch("user", who)
        user_id, _ = await store.users.identify(who)
        if not yes:
            typer.confirm(f"Delete user {user_id} and all totals?", abort=True)
        await store.users.delete(who)
        say(f"deleted user {user_id}")

    change_store(config, "user.delete", work)


@users.command("show")
def show_user(who: Who, passkeys: Passkeys = False, as_json: AsJson = False, config: Config = None) -> None:
    """Show a user: rights, totals, number of torrents."""

    async def work(store: Store) -> None:
        found = await store.users.find(who)
        sets: Row = {**await store.users.set_sizes(found.user_id)}
        check = await store.connect_checks.of_user(found.user_id)
        row: Row = {
            **_user_row(found, passkeys),
            "unreported": found.unreported,
            **sets,
            "connectable": check.connectable if check else None,
        }
        terminal.describe(row, as_json=as_json)

    with_store(config, work)


@users.command("torrents")
def list_torrents(
    who: Who,
    name: Annotated[
        UserSet, typer.Argument(metavar="active|complete|incomplete|hnr", help="hnr: hit-and-runs.")
    ],
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List the torrents in one of a user's sets, with the user's totals (bytes and seconds)."""
    numbers = [Column(name, 16, right=True) for name in ("uploaded", "downloaded")]
    times = [Column(name, 13, right=True) for name in ("total_seconds", "seed_seconds")]
    columns = [
        Column("torrent_id", 10, right=True),
        *numbers,
        *times,
        Column("credit_cut", 16, right=True),
        Column("info_hash", 40),
        Column("name"),
    ]

    async def work(store: Store) -> None:
        found = await store.users.find(who)
        listing = Listing(columns, as_json=as_json)
        seen: set[str] = set()
        async for ids in in_no_order(partial(store.users.torrents_page, found.user_id, name.value)):
            new = [torrent_id for torrent_id in ids if torrent_id not in seen]  # a page may repeat some
            seen.update(new)
            on_torrents = await shares(store, found.user_id, new)
            listing.page(row_of(share, _ON_A_TORRENT) for share in on_torrents)

    with_store(config, work)


@users.command("forgive")
def forgive_user(
    who: Who,
    torrents: Annotated[
        list[str] | None,
        typer.Argument(metavar="TORRENT…", help="Torrent ids or info hashes. Default: all."),
    ] = None,
    yes: Yes = False,
    config: Config = None,
) -> None:
    """Clear a user's hit-and-runs. Past downloads will not count again."""
    if torrents:
        each(
            config,
            torrents,
            lambda store, text: _forgive_one(store, who, text),
            "user.forgive",
            "user",
            objects=[who],
        )
        return

    async def work(store: Store, change: Change) -> None:
        await change.touch("user", who)
        found = await store.users.find(who)
        owed = (await store.users.set_sizes(found.user_id))["hnr"]
        if owed and not yes:
            typer.confirm(f"Clear all {owed} hit-and-runs of user {found.user_id}?", abort=True)
        say(f"cleared {await store.users.forgive(found.user_id)} hit-and-runs of user {found.user_id}")

    change_store(config, "user.forgive", work)


async def _forgive_one(store: Store, who: str, text: str) -> str:
    found = await store.users.find(who)
    torrent_id = text
    if len(text) == _HASH_DIGITS:
        torrent = await store.torrents.get(parse_info_hash(text))
        torrent_id = torrent.torrent_id if torrent else ""
    if not torrent_id or not await store.users.forgive(found.user_id, torrent_id):
        raise ClientError(f"user {found.user_id} has no hit-and-run on this torrent")
    return f"cleared the hit-and-run of user {found.user_id} on torrent {text}"


@users.command("list")
def list_users(
    by: Annotated[str, typer.Option(help=f"Sort by {', '.join(ORDERS)}.")] = "id",
    descending: Annotated[bool, typer.Option("--descending", help="Highest first.")] = False,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Only enabled, or only disabled users.")
    ] = None,
    can_leech: Annotated[
        bool | None,
        typer.Option("--can-leech/--no-leech", help="Only users who may download, or only others."),
    ] = None,
    search: Annotated[
        str, typer.Option(help="Only users with this text in their name; sorted by name.")
    ] = "",
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of users.", show_default="all")
    ] = EVERYTHING,
    passkeys: Passkeys = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List users and their totals. The order by uploaded, downloaded or ratio follows announces within minutes."""
    if by not in ORDERS:
        raise typer.BadParameter(f"--by must be {', '.join(ORDERS)}")
    wanted = UserFilter(by, descending, enabled, can_leech, search)
    columns = [Column("user_id", 15, right=True), *columns_of(User), Column("name", optional=True)]
    listing = Listing([*columns, Column("passkey")] if passkeys else columns, as_json=as_json)

    async def work(store: Store) -> None:
        cursor, left = "", limit
        while left > 0:
            cursor, users, *_ = await store.user_listing.page(wanted, cursor, min(PAGE, left))
            listing.page(_user_row(each, passkeys) for each in users)
            left -= len(users)
            if not cursor:
                break

    with_store(config, work)


def _user_row(found: User, passkeys: bool) -> Row:
    """JSON output has more fields than the table."""
    row: Row = {"user_id": found.user_id, **row_of(found, FIELDS)}
    return {**row, "passkey": found.passkey} if passkeys else row


@users.command("owing")
def list_owing(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of users.")] = 100,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List users by their number of hit-and-runs (see TRACKER_USERS__HNR_THRESHOLD_SECONDS), highest first."""

    async def work(store: Store) -> None:
        listing = Listing([Column("hit_and_runs", 12, right=True), Column("user_id")], as_json=as_json)
        async for page in in_order(limit, store.users.hit_and_runs):
            listing.page({"hit_and_runs": owed, "user_id": user_id} for user_id, owed in page)
            if not page and not as_json:
                note("no user has a hit-and-run")

    with_store(config, work)


@users.command("unregistered")
def list_unregistered(who: Who, as_json: AsJson = False, config: Config = None) -> None:
    """List torrents that a user announced in the last 90 days, and that are not registered: the newest 100."""
    listing = Listing([Column("at", MOMENT), Column("info_hash", 40)], as_json=as_json)

    async def work(store: Store) -> None:
        found = await store.users.find(who)
        tried = await store.unregistered.of(found.user_id)
        listing.page({"at": Moment(each.at), "info_hash": each.info_hash.hex()} for each in tried)

    with_store(config, work)


@users.command("pending")
def list_pending(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lines.")] = 100,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List torrents that become hit-and-runs unless their users come back (see TRACKER_USERS__HNR_GRACE_SECONDS)."""
    columns = [Column("at", MOMENT), Column("user_id", 15, right=True), Column("downloaded", 16, right=True)]
    columns += [Column("total_seconds", 13, right=True), Column("seed_seconds", 13, right=True)]

    async def work(store: Store) -> None:
        listing = Listing([*columns, Column("info_hash", 40), Column("name")], as_json=as_json)
        async for page in in_order(limit, partial(pending_hit_and_runs, store)):
            listing.page({**pending, "at": Moment(pending["at"])} for pending in page)

    with_store(config, work)
