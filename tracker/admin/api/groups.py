"""/groups: the groups of users, whose rules apply to all users of a group."""

from typing import Annotated

from pydantic import Field

from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import changes_of, reply_of
from tracker.errors import existing
from tracker.store.schema.multipliers import MULTIPLIERS, join_ends, refuse_ended
from tracker.store.schema.record import shown
from tracker.store.users.rules import GROUP_FIELDS, Group

endpoints = Endpoints("groups", "Groups of users: rules for all users of a group.")

GroupIdText = Annotated[
    str, Field(pattern="^[1-9][0-9]{0,8}$", description="Group ID, a decimal number.", examples=["20"])
]


@reply_of(Group)
class GroupRow(Reply):
    """A group."""

    group_id: int


class GroupList(Reply):
    """All groups, by ID."""

    groups: list[GroupRow]


@changes_of(Group)
class GroupFields(Body):
    """Fields of a group. A user's `group` names it."""


@endpoints.get("/groups", "List groups")
async def list_all(call: Call) -> GroupList:
    return GroupList(groups=[_row(group) for group in await call.store.groups.all()])


@endpoints.get("/groups/{group_id}", "Show a group")
async def show(call: Call, group_id: GroupIdText) -> GroupRow:
    return _row(existing(await call.store.groups.get(int(group_id)), "group"))


@endpoints.put("/groups/{group_id}", "Add or replace a group", "group.set", missing="Not found.")
async def replace(call: Call, group_id: GroupIdText, body: GroupFields) -> GroupRow:
    """Omitted and null fields get their defaults. Applies from the next announce of all users of the group. There are
    at most 200 groups."""
    await _save(call, group_id, body, replace=True)
    return await show(call, group_id)


@endpoints.patch("/groups/{group_id}", "Change a group", "group.set")
async def edit(call: Call, group_id: GroupIdText, body: GroupFields) -> GroupRow:
    """Omitted and null fields are unchanged."""
    await show(call, group_id)
    await _save(call, group_id, body, replace=False)
    return await show(call, group_id)


@endpoints.delete("/groups/{group_id}", "Delete a group", "group.delete")
async def delete(call: Call, group_id: GroupIdText) -> None:
    """Its users keep the number, without rules."""
    existing(await call.store.groups.delete(int(group_id)), "group")


async def _save(call: Call, group_id: str, body: GroupFields, *, replace: bool) -> None:
    """Raises ClientError."""
    fields = join_ends(body.model_dump(exclude_none=True))
    refuse_ended((fields[name] for name in MULTIPLIERS if name in fields), call.context.clock())
    await call.store.groups.save(int(group_id), fields, replace=replace)


def _row(group: Group) -> GroupRow:
    return GroupRow(group_id=group.group_id, **shown(group, GROUP_FIELDS))
