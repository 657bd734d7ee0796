"""``tracker group …``."""

from typing import Annotated

import typer

from tracker.cli import terminal
from tracker.cli.commands import AsJson, Config, change_store, each, group, with_store
from tracker.cli.commands.multipliers import Until, given_multipliers
from tracker.cli.commands.options import Given, columns_of, options_of, row_of
from tracker.cli.terminal import Column, Listing, Row
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.store.store import Store
from tracker.store.users.fields import MAX_GROUP_ID
from tracker.store.users.rules import GROUP_FIELDS, Group

GroupId = Annotated[int, typer.Argument(metavar="GROUP", min=1, max=MAX_GROUP_ID, help="Group id.")]

groups = group("Manage groups of users: rules for all users of a group.")


@groups.command("set")
@options_of(Group)
def set_group(
    group_id: GroupId,
    given: Given = None,
    until: Until = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Add a group, or change one from the next announce of its users on; other fields are unchanged."""
    fields = given_multipliers(given or {}, until)

    async def work(store: Store, change: Change) -> None:
        await change.touch("group", str(group_id))
        change.given(fields)
        await store.groups.save(group_id, fields)
        await _show(store, group_id, as_json)

    change_store(config, "group.set", work)


@groups.command("show")
def show_group(group_id: GroupId, as_json: AsJson = False, config: Config = None) -> None:
    """Show a group."""
    with_store(config, lambda store: _show(store, group_id, as_json))


async def _show(store: Store, group_id: int, as_json: bool) -> None:
    found = await store.groups.get(group_id)
    if found is None:
        raise ClientError("there is no such group")
    terminal.describe(_row(found), as_json=as_json)


@groups.command("list")
def list_groups(as_json: AsJson = False, config: Config = None) -> None:
    """List all groups."""
    listing = Listing([Column("group_id", 9, right=True), *columns_of(Group)], as_json=as_json)

    async def work(store: Store) -> None:
        listing.page([_row(found) for found in await store.groups.all()])

    with_store(config, work)


@groups.command("delete")
def delete_groups(
    group_ids: Annotated[list[str], typer.Argument(metavar="GROUP…", help="Group ids.")],
    config: Config = None,
) -> None:
    """Delete groups. Their users keep the number, without rules."""

    async def action(store: Store, text: str) -> str:
        if not (text.isascii() and text.isdigit()) or not await store.groups.delete(int(text)):
            raise ClientError("there is no such group")
        return f"deleted group {text}"

    each(config, group_ids, action, "group.delete", "group")


def _row(found: Group) -> Row:
    return {"group_id": found.group_id, **row_of(found, GROUP_FIELDS)}
