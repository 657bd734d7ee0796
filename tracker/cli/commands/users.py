"""``tracker user …``."""

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tracker.bittorrent import parse_info_hash
from tracker.cli import terminal
from tracker.cli.commands import AsJson, Config, Yes, change_store, each, with_store
from tracker.cli.commands.multipliers import (
    RemoveRule,
    Rule,
    Until,
    check_removed,
    given_multipliers,
    given_rules,
)
from tracker.cli.commands.paging import in_no_order
from tracker.cli.commands.user_group import users
from tracker.cli.commands.user_list import Passkeys, user_row
from tracker.cli.commands.user_options import (
    Announces,
    CreditCut,
    Download,
    Downloaded,
    Exempt,
    MaxDownloads,
    Name,
    Passkey,
    Reason,
    Snatches,
    Upload,
    Uploaded,
    Who,
    WhoAll,
)
from tracker.cli.terminal import Column, Listing, Row, say
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.store.store import Store
from tracker.store.users.fields import Value
from tracker.store.users.users import User

_ON_A_TORRENT = {
    "uploaded": "uploaded",
    "downloaded": "downloaded",
    "total_seconds": "total_time",
    "seed_seconds": "seed_time",
    "credit_cut": "credit_cut",
}
"""Columns of a user's torrents, and the stored fields."""
_HASH_DIGITS = 40


class UserSet(StrEnum):
    active = "active"
    complete = "complete"
    incomplete = "incomplete"
    hnr = "hnr"


@users.command("add")
def add_user(
    user_id: Annotated[
        str | None, typer.Option("--id", help="User id. Default: the next free number.")
    ] = None,
    passkey: Passkey = None,
    name: Name = None,
    no_leech: Annotated[bool, typer.Option("--no-leech", help="Block downloading.")] = False,
    disabled: Annotated[bool, typer.Option("--disabled", help="Refuse the user's announces.")] = False,
    reason: Reason = None,
    uploaded: Uploaded = None,
    downloaded: Downloaded = None,
    snatches: Snatches = None,
    announces: Announces = None,
    credit_cut: CreditCut = None,
    upload_multiplier: Upload = None,
    download_multiplier: Download = None,
    until: Until = None,
    max_downloads: MaxDownloads = None,
    hnr_exempt: Exempt = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Add a user and print the passkey."""
    fields = _given(
        name=name,
        can_leech=not no_leech,
        enabled=not disabled,
        reason=reason,
        uploaded=uploaded,
        downloaded=downloaded,
        snatches=snatches,
        announces=announces,
        credit_cut=credit_cut,
        **given_multipliers(upload_multiplier, download_multiplier, until),
        max_downloads=max_downloads,
        hnr_exempt=hnr_exempt,
    )

    async def work(store: Store, change: Change) -> None:
        added = await store.users.add(user_id, passkey, **fields)
        change.given(fields)
        change.created("user", added.user_id)
        _show_passkey(added, as_json)

    change_store(config, "user.add", work)


def _given(**fields: Value | None) -> dict[str, Value]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


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
    _edit_users(config, who, _given(enabled=False, reason=reason), "disabled")


def _edit_users(config: Path | None, who: list[str], fields: Mapping[str, Value], done: str) -> None:
    async def action(store: Store, text: str) -> str:
        found = await store.users.find(text)
        await store.users.edit(found.passkey, fields)
        return f"{done} user {found.user_id}"

    each(config, who, action, "user.edit", "user", secret=True)


@users.command("edit")
def edit_user(
    who: Who,
    name: Name = None,
    can_leech: Annotated[
        bool | None, typer.Option("--can-leech/--no-leech", "--may-leech", help="Allow or block downloading.")
    ] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Serve or refuse the user.")
    ] = None,
    reason: Reason = None,
    uploaded: Uploaded = None,
    downloaded: Downloaded = None,
    snatches: Snatches = None,
    announces: Announces = None,
    credit_cut: CreditCut = None,
    upload_multiplier: Upload = None,
    download_multiplier: Download = None,
    until: Until = None,
    rule: Rule = None,
    remove_rule: RemoveRule = None,
    max_downloads: MaxDownloads = None,
    hnr_exempt: Exempt = None,
    config: Config = None,
) -> None:
    """Change a user from the next announce on; other fields are unchanged. A total replaces the stored one."""
    multipliers, changes = given_rules(upload_multiplier, download_multiplier, until, rule, remove_rule)
    fields = _given(
        name=name,
        can_leech=can_leech,
        enabled=enabled,
        reason=reason,
        uploaded=uploaded,
        downloaded=downloaded,
        snatches=snatches,
        announces=announces,
        credit_cut=credit_cut,
        **multipliers,
        max_downloads=max_downloads,
        hnr_exempt=hnr_exempt,
    )
    if not fields and not changes:
        raise typer.BadParameter("nothing to change: give an option such as --no-leech")

    async def work(store: Store, change: Change) -> None:
        await change.touch("user", who)
        change.given(fields)
        found = await store.users.find(who)
        await store.users.edit(found.passkey, fields)
        for each_rule in changes:
            check_removed(await store.users.change_rule(found.passkey, each_rule))
        say(f"changed user {found.user_id}")

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
            **user_row(found, passkeys),
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
            listing.page(await _torrent_rows(store, found.user_id, new))

    with_store(config, work)


async def _torrent_rows(store: Store, user_id: str, torrent_ids: list[str]) -> list[Row]:
    known = {torrent.torrent_id: torrent for torrent in await store.torrents.by_ids(torrent_ids)}
    accounts = await store.users.on_torrents(user_id, torrent_ids)
    rows: list[Row] = []
    for torrent_id, account in zip(torrent_ids, accounts, strict=True):
        torrent = known.get(torrent_id)
        rows.append(
            {
                "torrent_id": torrent_id,
                **{column: account.get(stored, "0") for column, stored in _ON_A_TORRENT.items()},
                "info_hash": torrent.info_hash.hex() if torrent else "",
                "name": torrent.name if torrent else "",
            }
        )
    return rows


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
