"""``tracker user …``."""

from pathlib import Path
from typing import Annotated

import typer

from tracker import terminal
from tracker.commands import PAGE, AsJson, Config, each, group, with_stores
from tracker.store.users import SETS, User
from tracker.stores import Stores
from tracker.terminal import Column, Listing, Row, say

Who = Annotated[str, typer.Argument(metavar="USER", help="A user id or a passkey.")]
WhoAll = Annotated[list[str], typer.Argument(metavar="USER…", help="User ids or passkeys.")]
Passkeys = Annotated[bool, typer.Option("--passkeys", help="Show passkeys, which are secrets.")]

users = group("Users of a private tracker: passkeys and totals.")


@users.command("add")
def add_user(
    user_id: Annotated[
        str | None, typer.Option("--id", help="A number; the next free one when not given.")
    ] = None,
    passkey: Annotated[
        str | None, typer.Option(help="16 to 64 letters and digits; a random one when not given.")
    ] = None,
    no_leech: Annotated[bool, typer.Option("--no-leech", help="May seed only.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Add a user and print the passkey."""

    async def work(stores: Stores) -> None:
        added = await stores.users.add(user_id, passkey, can_leech=not no_leech)
        _show_passkey(added, as_json)

    with_stores(config, work)


@users.command("rotate")
def rotate_passkey(who: Who, as_json: AsJson = False, config: Config = None) -> None:
    """Give a user a new passkey and print it; the old one is unknown at once."""

    async def work(stores: Stores) -> None:
        found = await stores.users.find(who)
        _show_passkey(await stores.users.rotate(found.passkey), as_json)

    with_stores(config, work)


def _show_passkey(found: User, as_json: bool) -> None:
    row: Row = {
        "user_id": found.user_id,
        "passkey": found.passkey,
        "announce_path": f"/{found.passkey}/announce",
    }
    terminal.describe(row, as_json=as_json)


@users.command("enable")
def enable_user(who: WhoAll, config: Config = None) -> None:
    """Serve disabled users again."""
    _edit_users(config, who, enabled=True)


@users.command("disable")
def disable_user(who: WhoAll, config: Config = None) -> None:
    """Refuse users from the very next announce."""
    _edit_users(config, who, enabled=False)


def _edit_users(config: Path | None, who: list[str], *, enabled: bool) -> None:
    async def action(stores: Stores, text: str) -> str:
        found = await stores.users.find(text)
        await stores.users.edit(found.passkey, {"enabled": enabled})
        return f"{'enabled' if enabled else 'disabled'} user {found.user_id}"

    each(config, who, action, secret=True)


@users.command("delete")
def delete_user(
    who: Who,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: Config = None,
) -> None:
    """Delete a user with all totals."""

    async def work(stores: Stores) -> None:
        found = await stores.users.find(who)
        if not yes:
            typer.confirm(f"Delete user {found.user_id} with all totals?", abort=True)
        await stores.users.delete(found.passkey)
        say(f"deleted user {found.user_id}")

    with_stores(config, work)


@users.command("list")
def list_users(passkeys: Passkeys = False, as_json: AsJson = False, config: Config = None) -> None:
    """List users and their totals."""
    figures = (Column(name, 16, right=True) for name in ("uploaded", "downloaded"))
    counts = (Column(name, 11, right=True) for name in ("snatches", "announces"))
    rights = (Column("enabled", 8), Column("may_leech", 10))
    columns = [Column("user_id", 15, right=True), *rights, *figures, *counts]
    listing = Listing([*columns, Column("passkey")] if passkeys else columns, as_json=as_json)

    async def work(stores: Stores) -> None:
        for offset in range(0, 2**53, PAGE):
            found = await stores.users.page(offset, PAGE)
            if offset and not found:
                return
            listing.page(_user_row(each, passkeys) for each in found)

    with_stores(config, work)


def _user_row(found: User, passkeys: bool) -> Row:
    row: Row = {
        "user_id": found.user_id,
        "enabled": found.enabled,
        "may_leech": found.can_leech,
        "uploaded": found.uploaded,
        "downloaded": found.downloaded,
        "snatches": found.snatches,
        "announces": found.announces,
    }
    return {**row, "passkey": found.passkey} if passkeys else row


@users.command("show")
def show_user(who: Who, passkeys: Passkeys = False, as_json: AsJson = False, config: Config = None) -> None:
    """Show a user, the totals, and on how many torrents."""

    async def work(stores: Stores) -> None:
        found = await stores.users.find(who)
        sets: Row = {name: len(await stores.users.torrents(found.user_id, name)) for name in SETS}
        terminal.describe({**_user_row(found, passkeys), **sets}, as_json=as_json)

    with_stores(config, work)
