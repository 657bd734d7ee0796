"""/multipliers: how much of the traffic of all users is credited; and /…/rules: the rules of these multipliers, and of
those of a user or a torrent, each with a name and an end; /groups: groups, whose rules apply to their users."""

from typing import Annotated, Literal

from pydantic import Field

from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import (
    Factor,
    InfoHashText,
    Moment,
    MultiplierEnd,
    RulesValue,
    StoredRules,
    UserIdText,
    changes_of,
    reply_of,
)
from tracker.admin.api.torrents import known
from tracker.admin.api.users import given
from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import existing
from tracker.operations.torrents import change_torrent_rule
from tracker.store.schema.multipliers import (
    RULE_NAME,
    RuleChange,
    Rules,
    join_ends,
    refuse_ended,
    rule_change,
    split_ends,
)
from tracker.store.schema.record import shown
from tracker.store.users.rules import GROUP_FIELDS, Group

endpoints = Endpoints("multipliers", "Freeleech and double upload for all users.")


class MultipliersNew(Body):
    """The multipliers for all users. The best one counts of those of the torrent, the user and all users."""

    upload_multiplier: RulesValue = Field("1", description="2: upload counts twice. 1: none. Text is all its rules.")
    upload_multiplier_until: MultiplierEnd = None
    download_multiplier: RulesValue = Field("1", description="0: freeleech. 1: none.")
    download_multiplier_until: MultiplierEnd = None


class Multipliers(Reply):
    """The multipliers for all users, as they were set; after its end one no longer applies."""

    upload_multiplier: StoredRules
    upload_multiplier_until: Moment | None
    download_multiplier: StoredRules
    download_multiplier_until: Moment | None


@endpoints.get("/multipliers", "Show the multipliers for all users")
async def show(call: Call) -> Multipliers:
    return Multipliers.model_validate(split_ends(*await call.store.multipliers.get()))


@endpoints.put("/multipliers", "Replace the multipliers for all users", "multipliers.set", role="admin")
async def replace(call: Call, body: MultipliersNew) -> Multipliers:
    """Omitted ones are reset to 1."""
    upload, download = join_ends(body.model_dump()).values()
    refuse_ended((upload, download), call.context.clock())
    await call.store.multipliers.set(upload, download)
    return await show(call)


rule_endpoints = Endpoints("rules", "Rules of multipliers that stand side by side, each with a name and an end.")

RuleName = Annotated[str, Field(pattern=f"^{RULE_NAME}$", description="The name of the rule.", examples=["donor"])]


class RuleNew(Body):
    """A rule; it needs a multiplier of upload or of download."""

    upload: Factor | None = Field(None, description="2: upload counts twice. Without it, the rule has none.")
    download: Factor | None = Field(None, description="0: freeleech. Without it, the rule has none.")
    until: MultiplierEnd = None


class RuleRow(Reply):
    """A multiplier of one rule."""

    name: str = Field(description="Empty for a rule without a name.")
    direction: Literal["upload", "download"]
    factor: float
    until: Moment | None
    active: bool = Field(description="false: the rule has ended.")


class RuleList(Reply):
    """The rules of both multipliers."""

    rules: list[RuleRow]


@rule_endpoints.get("/users/{user_id}/rules", "List a user's rules")
async def of_user(call: Call, user_id: UserIdText) -> RuleList:
    user = existing(await call.store.users.by_id(user_id), "user")
    return _listed(call, user.upload_multiplier, user.download_multiplier)


@rule_endpoints.put("/users/{user_id}/rules/{name}", "Set a rule of a user", "user.edit")
async def set_of_user(call: Call, user_id: UserIdText, name: RuleName, body: RuleNew) -> RuleList:
    """Replaces the rule of this name, or adds one. The others stay, except those that have ended."""
    passkey = existing(await call.store.users.passkey_of(user_id), "user")
    await call.store.users.change_rule(passkey, _change(call, name, body))
    return await of_user(call, user_id)


@rule_endpoints.delete(
    "/users/{user_id}/rules/{name}", "Remove a rule of a user", "user.edit", missing="Unknown user or rule."
)
async def remove_of_user(call: Call, user_id: UserIdText, name: RuleName) -> None:
    passkey = existing(await call.store.users.passkey_of(user_id), "user")
    existing(await call.store.users.change_rule(passkey, _removal(call, name)), "rule")


@rule_endpoints.get("/torrents/{info_hash}/rules", "List a torrent's rules")
async def of_torrent(call: Call, info_hash: InfoHashText) -> RuleList:
    torrent = await known(call, info_hash)
    return _listed(call, torrent.upload_multiplier, torrent.download_multiplier)


@rule_endpoints.put("/torrents/{info_hash}/rules/{name}", "Set a rule of a torrent", "torrent.edit")
async def set_of_torrent(call: Call, info_hash: InfoHashText, name: RuleName, body: RuleNew) -> RuleList:
    """As for a user. A torrent with 0 for upload and for download is neutral: nothing counts, whatever other rules
    say."""
    await change_torrent_rule(call.store, await _registered(call, info_hash), _change(call, name, body))
    return await of_torrent(call, info_hash)


@rule_endpoints.delete(
    "/torrents/{info_hash}/rules/{name}",
    "Remove a rule of a torrent",
    "torrent.edit",
    missing="Unknown torrent or rule.",
)
async def remove_of_torrent(call: Call, info_hash: InfoHashText, name: RuleName) -> None:
    wanted = await _registered(call, info_hash)
    existing(await change_torrent_rule(call.store, wanted, _removal(call, name)), "rule")


@rule_endpoints.get("/multipliers/rules", "List the rules for all users")
async def of_all(call: Call) -> RuleList:
    return _listed(call, *await call.store.multipliers.get())


@rule_endpoints.put("/multipliers/rules/{name}", "Set a rule for all users", "multipliers.set", role="admin")
async def set_of_all(call: Call, name: RuleName, body: RuleNew) -> RuleList:
    """As for a user."""
    await call.store.multipliers.change_rule(_change(call, name, body))
    return await of_all(call)


@rule_endpoints.delete(
    "/multipliers/rules/{name}", "Remove a rule for all users", "multipliers.set", role="admin", missing="Unknown rule."
)
async def remove_of_all(call: Call, name: RuleName) -> None:
    existing(await call.store.multipliers.change_rule(_removal(call, name)), "rule")


def _change(call: Call, name: str, body: RuleNew) -> RuleChange:
    """Raises ClientError."""
    return rule_change(call.context.clock(), name, body.upload, body.download, body.until)


def _removal(call: Call, name: str) -> RuleChange:
    return RuleChange(int(call.context.clock()), name)


async def _registered(call: Call, info_hash: str) -> InfoHash:
    wanted = parse_info_hash(info_hash)
    existing(not await call.store.torrents.unregistered([wanted]), "torrent")
    return wanted


def _listed(call: Call, upload: Rules, download: Rules) -> RuleList:
    now = call.context.clock()
    rows = [
        RuleRow.from_record(rule, direction=direction, active=rule.is_active(now))
        for direction, rules in (("upload", upload), ("download", download))
        for rule in rules
    ]
    return RuleList(rules=rows)


group_endpoints = Endpoints("groups", "Groups of users: rules for all users of a group.")

GroupIdText = Annotated[
    str, Field(pattern="^[1-9][0-9]{0,8}$", description="Group ID, a decimal number.", examples=["20"])
]
_GROUP = ("group_id", *GROUP_FIELDS)


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


@group_endpoints.get("/groups", "List groups")
async def list_all(call: Call) -> GroupList:
    return GroupList(groups=[GroupRow(**shown(group, _GROUP)) for group in await call.store.groups.all()])


@group_endpoints.get("/groups/{group_id}", "Show a group")
async def groups_show(call: Call, group_id: GroupIdText) -> GroupRow:
    return GroupRow(**shown(existing(await call.store.groups.get(int(group_id)), "group"), _GROUP))


@group_endpoints.put("/groups/{group_id}", "Add or replace a group", "group.set", missing="Not found.")
async def groups_replace(call: Call, group_id: GroupIdText, body: GroupFields) -> GroupRow:
    """Omitted and null fields get their defaults. Applies from the next announce of all users of the group. There are
    at most 200 groups."""
    await call.store.groups.save(int(group_id), given(call, body), replace=True)
    return await groups_show(call, group_id)


@group_endpoints.patch("/groups/{group_id}", "Change a group", "group.set")
async def edit(call: Call, group_id: GroupIdText, body: GroupFields) -> GroupRow:
    """Omitted and null fields are unchanged."""
    await groups_show(call, group_id)
    await call.store.groups.save(int(group_id), given(call, body), replace=False)
    return await groups_show(call, group_id)


@group_endpoints.delete("/groups/{group_id}", "Delete a group", "group.delete")
async def delete(call: Call, group_id: GroupIdText) -> None:
    """Its users keep the number, without rules."""
    existing(await call.store.groups.delete(int(group_id)), "group")
