"""``tracker group …``."""

from typing import Annotated

from typer import Argument

from tracker.cli.commands import Pages, audited, each, group, lists
from tracker.cli.commands.multipliers import Until, given_multipliers
from tracker.cli.commands.options import Given, columns_of, options_of, row_of
from tracker.cli.terminal import Row, columns
from tracker.errors import ClientError, existing
from tracker.operations.audit import Change
from tracker.store.store import Store
from tracker.store.users.fields import MAX_GROUP_ID
from tracker.store.users.rules import GROUP_FIELDS, Group

GroupId = Annotated[int, Argument(metavar="GROUP", min=1, max=MAX_GROUP_ID, help="Group id.")]

groups = group("Manage groups of users: rules for all users of a group.")


@groups.command("set")
@options_of(Group)
@audited("group.set")
async def set_group(store: Store, change: Change, group_id: GroupId, given: Given = None, until: Until = None) -> Row:
    """Add a group, or change one from the next announce of its users on; other fields are unchanged."""
    fields = given_multipliers(given or {}, until)
    await change.touch("group", str(group_id))
    change.given(fields)
    await store.groups.save(group_id, fields)
    return await _shown(store, group_id)


@groups.command("show")
async def show_group(store: Store, group_id: GroupId) -> Row:
    """Show a group."""
    return await _shown(store, group_id)


async def _shown(store: Store, group_id: int) -> Row:
    return _row(existing(await store.groups.get(group_id), "group"))


@groups.command("list")
@lists([*columns("group_id>9"), *columns_of(Group)])
async def list_groups(store: Store) -> Pages:
    """List all groups."""
    yield [_row(found) for found in await store.groups.all()]


@groups.command("delete")
@each("group.delete", "group")
async def delete_groups(store: Store, group_id: Annotated[str, Argument(metavar="GROUP", help="Group ids.")]) -> str:
    """Delete groups. Their users keep the number, without rules."""
    if not (group_id.isascii() and group_id.isdigit()) or not await store.groups.delete(int(group_id)):
        raise ClientError("there is no such group")
    return f"deleted group {group_id}"


def _row(found: Group) -> Row:
    return {"group_id": found.group_id, **row_of(found, GROUP_FIELDS)}
