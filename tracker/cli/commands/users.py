"""``tracker user …``, ``tracker group …``, ``tracker multipliers`` and ``tracker freeleech …``."""

import sys
import time
from functools import partial
from typing import Annotated, Literal

from typer import Argument, BadParameter, Option

from tracker.bittorrent import parse_info_hash
from tracker.cli.commands import (
    EVERYTHING,
    PAGE,
    AsJson,
    InfoHash,
    Limit,
    LimitOrAll,
    Pages,
    Yes,
    change_store,
    confirm,
    group,
    in_no_order,
    in_order,
    load_settings,
    run_each,
    with_store,
)
from tracker.cli.commands.options import (
    Given,
    OptionsOf,
    RemoveRule,
    Rule,
    Until,
    check_removed,
    columns_of,
    given_multipliers,
    given_rules,
    row_of,
    shown_multiplier,
)
from tracker.cli.terminal import UNKNOWN_URL, Moment, Row, columns, describe, say
from tracker.errors import ClientError, existing
from tracker.operations.audit import Change
from tracker.operations.snapshots import ALL_USERS
from tracker.operations.torrents import counting_torrent
from tracker.operations.users import freeleech_tokens, pending_hit_and_runs, shares
from tracker.store.schema.multipliers import MULTIPLIERS, parse_end, split_ends
from tracker.store.schema.record import fields_of
from tracker.store.store import Store
from tracker.store.torrents.torrents import Torrent
from tracker.store.users.fields import ADDITIONS, FIELDS, MAX_GROUP_ID, Additions, User
from tracker.store.users.listing import Order, UserFilter
from tracker.store.users.rules import GROUP_FIELDS, Group

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
    str, Argument(metavar="USER", help="User id or passkey; `-` reads it from standard input.", callback=_read_secret)
]
EachUser = Annotated[str, Argument(metavar="USER", help="User ids or passkeys.")]
Passkey = Annotated[
    str | None,
    Option(
        "--passkey",
        help="16 to 64 letters, digits, _ or -; `-` reads it from standard input. Default: random.",
        callback=_read_secret,
    ),
]
Reason = Annotated[str | None, Option("--reason", help=fields_of(User)["reason"].about)]
Passkeys = Annotated[bool, Option("--passkeys", help="Show passkeys (secret).")]

users = group("Manage users: passkeys, totals, hit-and-runs.")


@users.command("add", audited="user.add", checks=given_multipliers, given=OptionsOf(User))
async def add_user(
    store: Store,
    change: Change,
    user_id: Annotated[str | None, Option("--id", help="User id. Default: the next free number.")] = None,
    passkey: Passkey = None,
    given: Given = None,
    until: Until = None,
    as_json: AsJson = False,
) -> None:
    """Add a user and print the passkey."""
    fields = given_multipliers(given or {}, until)
    added = await store.users.add(user_id, passkey, **fields)
    change.given(fields)
    change.created("user", added.user_id)
    _show_passkey(added, as_json)


@users.command("rotate", audited="user.rotate")
async def rotate_passkey(
    store: Store, change: Change, who: Who, passkey: Passkey = None, as_json: AsJson = False
) -> None:
    """Give a user a new passkey and print it. The old one stops working at once."""
    await change.touch("user", who)
    found = await store.users.find(who)
    _show_passkey(await store.users.rotate(found.passkey, passkey), as_json)


def _show_passkey(found: User, as_json: bool) -> None:
    urls = load_settings().announce.urls_of(found.passkey)
    row: Row = {
        "user_id": found.user_id,
        "passkey": found.passkey,
        "announce_path": f"/{found.passkey}/announce",
        "announce_urls": " ".join(urls) or ("" if as_json else UNKNOWN_URL),
    }
    describe(row, as_json=as_json)


@users.command("enable", audited="user.edit", each="user", secret=True)
async def enable_user(store: Store, who: EachUser) -> str:
    """Enable users."""
    found = await store.users.find(who)
    await store.users.edit(found.passkey, {"enabled": True})
    return f"enabled user {found.user_id}"


@users.command("disable", audited="user.edit", each="user", secret=True)
async def disable_user(store: Store, who: EachUser, reason: Reason = None) -> str:
    """Disable users: they are refused from their next announce on."""
    found = await store.users.find(who)
    await store.users.edit(found.passkey, {"enabled": False, **({} if reason is None else {"reason": reason})})
    return f"disabled user {found.user_id}"


def _check_edit(given: Given, until: str | None, rule: str | None, remove_rule: str | None) -> None:
    fields, changes = given_rules(given or {}, until, rule, remove_rule)
    if not fields and not changes:
        raise BadParameter("nothing to change: give an option such as --no-leech")


@users.command("edit", audited="user.edit", checks=_check_edit, given=OptionsOf(User, Additions))
async def edit_user(
    store: Store,
    change: Change,
    who: Who,
    given: Given = None,
    once: Annotated[
        str,
        Option(
            "--idempotency-key",
            metavar="KEY",
            help="A name for this change, kept for a week: a repeated command adds to totals only once.",
        ),
    ] = "",
    until: Until = None,
    rule: Rule = None,
    remove_rule: RemoveRule = None,
) -> None:
    """Change a user from the next announce on; other fields are unchanged. A total replaces the stored one."""
    fields, changes = given_rules(given or {}, until, rule, remove_rule)
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


@users.command("delete", audited="user.delete")
async def delete_user(store: Store, change: Change, who: Who, yes: Yes = False) -> None:
    """Delete a user and all of the user's totals."""
    await change.touch("user", who)
    user_id, _ = await store.users.identify(who)
    confirm(f"Delete user {user_id} and all totals?", yes=yes)
    await store.users.delete(who)
    say(f"deleted user {user_id}")


@users.command("show")
async def show_user(store: Store, who: Who, passkeys: Passkeys = False) -> Row:
    """Show a user: rights, totals, number of torrents."""
    found = await store.users.find(who)
    sets: Row = {**await store.users.set_sizes(found.user_id)}
    check = await store.shards.main_or(store.connect_checks.of_user(found.user_id), None)
    row: Row = {**_user_row(found, passkeys), "unreported": found.unreported, **sets}
    return {**row, "connectable": check.connectable if check else None}


@users.command(
    "torrents",
    lists="torrent_id>10 uploaded>16 downloaded>16 total_seconds>13 seed_seconds>13 credit_cut>16 info_hash:40 name",
)
async def list_torrents(
    store: Store,
    who: Who,
    name: Annotated[
        Literal["active", "complete", "incomplete", "hnr"], Argument(metavar="SET", help="hnr: hit-and-runs.")
    ],
) -> Pages:
    """List the torrents in one of a user's sets, with the user's totals (bytes and seconds)."""
    found = await store.users.find(who)
    seen: set[str] = set()
    async for ids in in_no_order(partial(store.users.torrents_page, found.user_id, name)):
        new = [torrent_id for torrent_id in ids if torrent_id not in seen]  # a page may repeat some
        seen.update(new)
        yield [row_of(share, _ON_A_TORRENT) for share in await shares(store, found.user_id, new)]


@users.command("forgive")
def forgive_user(
    who: Who,
    torrents: Annotated[
        list[str] | None, Argument(metavar="TORRENT…", help="Torrent ids or info hashes. Default: all.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Clear a user's hit-and-runs. Past downloads will not count again."""

    async def forgive_one(store: Store, text: str) -> str:
        found = await store.users.find(who)
        torrent_id = text
        if len(text) == 40:  # hexadecimal digits
            torrent = await store.torrents.get(parse_info_hash(text))
            torrent_id = torrent.torrent_id if torrent else ""
        if not torrent_id or not await store.users.forgive(found.user_id, torrent_id):
            raise ClientError(f"user {found.user_id} has no hit-and-run on this torrent")
        return f"cleared the hit-and-run of user {found.user_id} on torrent {text}"

    if torrents:
        run_each(torrents, forgive_one, "user.forgive", "user", objects=[who])
        return

    async def work(store: Store, change: Change) -> None:
        await change.touch("user", who)
        found = await store.users.find(who)
        owed = (await store.users.set_sizes(found.user_id))["hnr"]
        confirm(f"Clear all {owed} hit-and-runs of user {found.user_id}?", yes=yes or not owed)
        say(f"cleared {await store.users.forgive(found.user_id)} hit-and-runs of user {found.user_id}")

    change_store("user.forgive", work)


@users.command(
    "list",
    lists=lambda passkeys, **_: [*columns("user_id>15"), *columns_of(User), *columns(f"name?{' passkey' * passkeys}")],
)
async def list_users(
    store: Store,
    by: Annotated[Order, Option(help="Sort by this.")] = "id",
    descending: Annotated[bool, Option("--descending", help="Highest first.")] = False,
    enabled: Annotated[
        bool | None, Option("--enabled/--disabled", help="Only enabled, or only disabled users.")
    ] = None,
    can_leech: Annotated[
        bool | None, Option("--can-leech/--no-leech", help="Only users who may download, or only others.")
    ] = None,
    search: Annotated[str, Option(help="Only users with this text in their name; sorted by name.")] = "",
    limit: LimitOrAll = EVERYTHING,
    passkeys: Passkeys = False,
) -> Pages:
    """List users and their totals. The order by uploaded, downloaded or ratio follows announces within minutes."""
    wanted = UserFilter(by, descending, enabled, can_leech, search)
    cursor, left = "", limit
    while left > 0:
        cursor, users, *_ = await store.user_listing.page(wanted, cursor, min(PAGE, left))
        yield (_user_row(each, passkeys) for each in users)
        left -= len(users)
        if not cursor:
            break


def _user_row(found: User, passkeys: bool) -> Row:
    """JSON output has more fields than the table."""
    row: Row = {"user_id": found.user_id, **row_of(found, FIELDS)}
    return {**row, "passkey": found.passkey} if passkeys else row


@users.command("owing", lists="hit_and_runs>12 user_id")
async def list_owing(store: Store, limit: Limit = 100) -> Pages:
    """List users by their number of hit-and-runs (see TRACKER_USERS__HNR_THRESHOLD_SECONDS), highest first."""
    async for page in in_order(limit, store.users.hit_and_runs):
        yield ({"hit_and_runs": owed, "user_id": user_id} for user_id, owed in page)
        if not page:
            yield "no user has a hit-and-run"


@users.command("unregistered", lists="at:20 info_hash:40")
async def list_unregistered(store: Store, who: Who) -> Pages:
    """List torrents that a user announced in the last 90 days, and that are not registered: the newest 100."""
    found = await store.users.find(who)
    tried = await store.unregistered.of(found.user_id)
    yield ({"at": Moment(each.at), "info_hash": each.info_hash.hex()} for each in tried)


@users.command("pending", lists="at:20 user_id>15 downloaded>16 total_seconds>13 seed_seconds>13 info_hash:40 name")
async def list_pending(store: Store, limit: Limit = 100) -> Pages:
    """List torrents that become hit-and-runs unless their users come back (see TRACKER_USERS__HNR_GRACE_SECONDS)."""
    async for page in in_order(limit, partial(pending_hit_and_runs, store)):
        yield ({**pending, "at": Moment(pending["at"])} for pending in page)


GroupId = Annotated[int, Argument(metavar="GROUP", min=1, max=MAX_GROUP_ID, help="Group id.")]

groups = group("Manage groups of users: rules for all users of a group.")


@groups.command("set", audited="group.set", given=OptionsOf(Group))
async def set_group(store: Store, change: Change, group_id: GroupId, given: Given = None, until: Until = None) -> Row:
    """Add a group, or change one from the next announce of its users on; other fields are unchanged."""
    fields = given_multipliers(given or {}, until)
    await change.touch("group", str(group_id))
    change.given(fields)
    await store.groups.save(group_id, fields)
    return await show_group(store, group_id)


@groups.command("show")
async def show_group(store: Store, group_id: GroupId) -> Row:
    """Show a group."""
    return _group_row(existing(await store.groups.get(group_id), "group"))


@groups.command("list", lists=[*columns("group_id>9"), *columns_of(Group)])
async def list_groups(store: Store) -> Pages:
    """List all groups."""
    yield [_group_row(found) for found in await store.groups.all()]


@groups.command("delete", audited="group.delete", each="group")
async def delete_groups(store: Store, group_id: Annotated[str, Argument(metavar="GROUP", help="Group ids.")]) -> str:
    """Delete groups. Their users keep the number, without rules."""
    if not (group_id.isascii() and group_id.isdigit()) or not await store.groups.delete(int(group_id)):
        raise ClientError("there is no such group")
    return f"deleted group {group_id}"


def _group_row(found: Group) -> Row:
    return {"group_id": found.group_id, **row_of(found, GROUP_FIELDS)}


def multipliers(
    upload: Annotated[str | None, Option("--upload", help="Factor for all users' upload, 0 to 1000; 1: none.")] = None,
    download: Annotated[
        str | None, Option("--download", help="Factor for all users' download; 0: freeleech, 1: none.")
    ] = None,
    until: Until = None,
    rule: Rule = None,
    remove_rule: RemoveRule = None,
    as_json: AsJson = False,
) -> None:
    """Show or set the multipliers for all users. The best one counts: that for all users, the user's or the
    torrent's."""
    values = dict(zip(MULTIPLIERS, (upload, download), strict=True))
    given = {name: value for name, value in values.items() if value is not None}
    fields, changes = given_rules(given, until, rule, remove_rule)

    async def set_given(store: Store, change: Change) -> None:
        await change.touch("multipliers", ALL_USERS)
        if fields:
            await store.multipliers.set(*map(fields.get, MULTIPLIERS))
        for each_rule in changes:
            check_removed(await store.multipliers.change_rule(each_rule))
        await show(store)

    async def show(store: Store) -> None:
        row = split_ends(*await store.multipliers.get())
        describe({name: shown_multiplier(name, row[name]) for name in row}, as_json=as_json)

    if fields or changes:
        change_store("multipliers.set", set_given)
    else:
        with_store(show)


UserId = Annotated[str, Argument(metavar="USER", help="User id.")]

freeleech = group("Give users freeleech tokens: downloads of one torrent that do not count.")


@freeleech.command("give", audited="freeleech.give", checks=lambda until: parse_end(until, time.time()))
async def give_freeleech(
    store: Store,
    change: Change,
    user_id: UserId,
    info_hash: InfoHash,
    until: Annotated[
        str,
        Option(
            metavar="WHEN",
            help="3d, 12h, 30m, or a date such as 2026-12-31T18:00 (UTC).",
            show_default="without an end",
        ),
    ] = "",
) -> None:
    """Give a token, or change the end of the one that the user has."""
    end = parse_end(until, time.time())
    torrent = await _touched(store, change, user_id, info_hash)
    await store.freeleech.give(user_id, torrent.torrent_id, end)
    says = "without an end" if end is None else f"until {Moment(end)}"
    say(f"user {user_id} downloads {info_hash} freely {says}")


@freeleech.command("revoke", audited="freeleech.revoke")
async def revoke_freeleech(store: Store, change: Change, user_id: UserId, info_hash: InfoHash) -> None:
    """Take a token back."""
    torrent = await _touched(store, change, user_id, info_hash)
    if not await store.freeleech.take_back(user_id, torrent.torrent_id):
        raise ClientError(f"user {user_id} has no token for this torrent")
    say(f"took back the token of user {user_id}")


async def _touched(store: Store, change: Change, user_id: str, info_hash: str) -> Torrent:
    await change.touch("user", user_id)
    await change.touch("torrent", info_hash)
    return await counting_torrent(store, parse_info_hash(info_hash))


@freeleech.command("list", lists="until:20 info_hash:40 name")
async def list_freeleech(store: Store, user_id: UserId) -> Pages:
    """List the tokens of a user that have not ended, the next to end first."""
    async for page in in_order(EVERYTHING, partial(freeleech_tokens, store, user_id)):
        yield ({**token, "until": token["until"] and Moment(token["until"])} for token in page)
