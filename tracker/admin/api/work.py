"""/work: the projects of work distribution, what the policy of one would enqueue now, claims, results, and who is
blocked. Items are in work_items.py."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tracker.admin.api.contract import Body, Call, Endpoints, Query, Reply
from tracker.admin.api.models import (
    Count,
    CursorPage,
    Hex,
    ItemList,
    Limit,
    Moment,
    NewestFirst,
    OptionalMoment,
    OptionalText,
    Page,
    Paged,
    Whole,
    changes_of,
    copy_of,
    number,
    reply_of,
)
from tracker.errors import ClientError, existing
from tracker.operations.work import create_project, policy_preview
from tracker.store.schema.record import shown
from tracker.store.work.blocks import BlockEvent
from tracker.store.work.log import FinishedClaim
from tracker.store.work.policy import Change
from tracker.store.work.records import PROJECT_FIELDS, Claim, Project
from tracker.store.work.statistics import ProjectStatistics, Rank
from tracker.store.work.verification import asks_for_probes

endpoints = Endpoints(
    "work", "Work distribution: projects whose items are given to claimants, each for a limited time."
)

ProjectText = Annotated[
    str, Field(pattern="^[-_0-9A-Za-z]{1,30}$", description="Name of a project.", examples=["archive"])
]
ItemText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=255,
        description="An info hash in a project of kind `seeding`, else a text of one line, at most 255 bytes.",
        examples=["c12fe1c06bba254a9dc9f519b335aa7c1367a88a"],
    ),
]
ClaimantText = Annotated[
    str,
    Field(
        pattern="^[-_0-9A-Za-z]{1,30}$",
        description="A claimant: the user ID in a project of kind `seeding`, else a name of 3 to 30 characters.",
        examples=["volunteer_1"],
    ),
]
Address = Annotated[OptionalText, Field(description="Null if unknown, and for role `read`.")]
EntryId = Annotated[
    str, Field(pattern="^[0-9]{1,15}-[0-9]{1,15}$", description="ID of an entry.", examples=["1800000000000-0"])
]
Cursor = Annotated[str, Field(max_length=400, description="`next_cursor` of the previous page; empty for the first.")]
Number = Annotated[int, Field(ge=0, le=10**15)]
KindName = Literal["items", "seeding"]


@changes_of(Project)
class ProjectPatch(Body):
    """Settings of a project. Missing and null fields stay unchanged."""


class ProjectNew(ProjectPatch):
    """A new project. The kind decides the defaults of the other fields, and cannot be changed later."""

    name: ProjectText
    kind: KindName = "items"


class ItemCounts(Reply):
    """Items and claims of a project, by state."""

    todo: int = Field(description="Items in the queue `todo`.")
    secondary: int
    redo: int
    asked: int = Field(description="Items that only certain claimants are asked for.")
    out: int = Field(description="Claims.")
    done: int = Field(description="Finished items that are kept.")


class Totals(Reply):
    """Totals of a project since its creation."""

    added: int = Field(description="Copies of items wanted so far.")
    claimed: int
    done: int = Field(description="Finished claims.")
    lapsed: int
    released: int
    bytes: int = Field(description="Bytes reported by claimants.")
    seconds: int = Field(description="Verified seed time.")


@reply_of(Project)
class ProjectRow(Reply):
    """A project."""

    name: str
    claimants: int = Field(description="Claimants who ever finished an item.")
    items: ItemCounts
    totals: Totals


class ProjectDetails(ProjectRow):
    """A project with its bytes by domain."""

    location = "/work/projects/{reply.name}"

    domain_bytes: dict[str, int]
    probes_missing: bool = Field(
        description="`verify` asks for connections to claimants' seeders, but `TRACKER_PROBE__ENABLED` is off: claims "
        "are verified by announces alone."
    )


@endpoints.get("/work/projects", "List projects", schema="ProjectList: All projects by name.")
async def list_all(call: Call) -> ItemList[ProjectRow]:
    projects = await call.store.work.projects.all()
    found = await call.store.work.statistics.read([project.name for project in projects])
    return ItemList(items=[ProjectRow(**_row(project, each)) for project, each in zip(projects, found, strict=True)])


@endpoints.post("/work/projects", "Create a project", "project.create", status=201, conflict="The name is taken.")
async def create(call: Call, body: ProjectNew) -> ProjectDetails:
    return await _details(call, await create_project(call.store, body.name, body.kind, _given(body)))


@endpoints.get("/work/projects/{project}", "Show a project")
async def show(call: Call, project: ProjectText) -> ProjectDetails:
    return await _details(call, await call.store.work.projects.get(project))


@endpoints.patch("/work/projects/{project}", "Edit a project", "project.edit")
async def edit(call: Call, project: ProjectText, body: ProjectPatch) -> ProjectDetails:
    """Applies from the next call of a claimant on. The kind cannot be changed."""
    return await _details(call, await call.store.work.projects.edit(project, _given(body)))


@endpoints.delete("/work/projects/{project}", "Delete a project", "project.delete", role="admin")
async def delete(call: Call, project: ProjectText) -> None:
    """Deletes its items, claims, log and leaderboards. Other projects are unchanged."""
    await call.store.work.projects.delete(project)


def _given(body: ProjectPatch) -> dict[str, Any]:
    """The settings that are not null."""
    given = body.model_dump(exclude_none=True, exclude={"name", "kind"})
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


async def _details(call: Call, project: Project) -> ProjectDetails:
    work = call.store.work
    (found,) = await work.statistics.read([project.name])
    return ProjectDetails(
        **_row(project, found),
        domain_bytes=await work.statistics.domain_bytes(project.name),
        probes_missing=asks_for_probes(project) and not call.context.settings.probe.enabled,
    )


def _row(project: Project, found: ProjectStatistics) -> dict[str, Any]:
    fields = shown(project, ("name", *PROJECT_FIELDS))
    items = ItemCounts(**{name: getattr(found, name) for name in ItemCounts.model_fields})
    totals = Totals(**{name: found.totals.get(name, 0) for name in Totals.model_fields})
    return {**fields, "claimants": found.claimants, "items": items, "totals": totals}


policy_endpoints = Endpoints("work-policy", "The policy of projects of kind `seeding`: which torrents need seeders.")


class PolicyQuery(Query):
    max_torrents: Annotated[int, Field(ge=1, le=2000), BeforeValidator(number)] = Field(
        500, description="How many torrents are looked at, those with the fewest seeders first."
    )


@copy_of(Change, info_hash=Hex, reason=None)
class PolicyRow(Reply):
    """A torrent whose demand the policy would change."""

    reason: str = Field(
        description="Such as `weak`, `below target`, `reseed request` (only users who completed it are asked), "
        "`no seeder`, `enough`, `denied`, `nowork` (a label)."
    )


@policy_endpoints.get(
    "/work/projects/{project}/policy", "Preview the policy", schema="PolicyPreview: What the policy would change."
)
async def preview(call: Call, project: ProjectText, query: PolicyQuery) -> ItemList[PolicyRow]:
    """Changes nothing. The tracker runs the policy every ten minutes."""
    found = await policy_preview(call.store, project, max_torrents=query.max_torrents)
    return ItemList(items=[PolicyRow.from_record(each) for each in found])


claim_endpoints = Endpoints(
    "work-claims", "Claims of work distribution: items that claimants have, for a limited time."
)


@reply_of(Claim, address=Address, claimed_at=Moment, lease_ends=Moment, checked_at=OptionalMoment)
class ClaimRow(Reply):
    """A claim."""

    item: str
    claimant: str


class ClaimQuery(Query):
    claimant: ClaimantText | None = None
    item: ItemText | None = None
    min_age: Whole = Field(0, description="Only claims at least this old (s).")
    cursor: Cursor = ""
    limit: Limit = Field(100, description="How many claims are read per page; fewer may match.")


class ReleaseFilter(Body):
    """Which claims to release: those that match all fields. At least one is needed."""

    claimant: ClaimantText | None = None
    item: ItemText | None = None
    item_prefix: ItemText | None = Field(None, description="Items that begin with this text.")
    min_age: Count | None = Field(None, description="Claims at least this old (s); 0: all.")


class Released(Reply):
    """Number of released claims."""

    released: int


@claim_endpoints.get(
    "/work/projects/{project}/claims",
    "List claims",
    schema="ClaimPage: A page of claims; those whose lease ends first come first.",
)
async def work_claims_list_all(call: Call, project: ProjectText, query: ClaimQuery) -> CursorPage[ClaimRow]:
    """With a filter, a page may have fewer claims than `limit`, or none, before the end."""
    work = call.store.work
    await work.projects.get(project)
    found = await work.claims.page(
        project,
        cursor=query.cursor,
        count=query.limit,
        claimant=query.claimant,
        item=query.item,
        older_than=query.min_age or None,
    )
    items = [ClaimRow.from_record(each, **call.hidden_address) for each in found.entries]
    return CursorPage(items=items, next_cursor=found.cursor or None)


@claim_endpoints.post("/work/projects/{project}/claims/release", "Release claims", "claims.release")
async def release(call: Call, project: ProjectText, body: ReleaseFilter) -> Released:
    """Their items are wanted again, in the queues that they came from."""
    if body == ReleaseFilter():
        raise ClientError("choose the claims to release: min_age 0 selects all")
    work = call.store.work
    await work.projects.get(project)
    released = await work.claims.release_all(
        project, claimant=body.claimant, item=body.item, prefix=body.item_prefix or "", older_than=body.min_age or None
    )
    return Released(released=released)


result_endpoints = Endpoints("work-results", "Results of work distribution: finished claims, and leaderboards.")


@copy_of(FinishedClaim, at=Moment, address=Address, claimed_at=OptionalMoment)
class LogRow(Reply):
    """A finished claim."""


class LogQuery(Query):
    before: EntryId | None = Field(None, description="Only older entries: `next_before` of the previous page.")
    limit: Limit = Field(100, description="Max entries per page.")


@copy_of(Rank)
class RankRow(Reply):
    """A claimant's results in the period."""


Span = Annotated[
    str,
    Field(
        pattern="^(all|[0-9]{4}-(0[1-9]|1[0-2])|[0-9]{4}-W(0[1-9]|[1-4][0-9]|5[0-3]))$",
        description="`all`, a month such as `2026-11`, or an ISO week such as `2026-W47` (UTC).",
        examples=["all", "2026-11", "2026-W47"],
    ),
]


class RankQuery(Paged):
    by: Literal["count", "bytes", "seconds"] = Field("count", description="`count`: finished items.")
    period: Span = "all"


@result_endpoints.get(
    "/work/projects/{project}/log", "List finished claims", schema="LogPage: A page of the log, newest first."
)
async def log(call: Call, project: ProjectText, query: LogQuery) -> NewestFirst[LogRow]:
    work = call.store.work
    await work.projects.get(project)
    found = await work.log.newest(project, query.limit, query.before or "")
    more = found[-1].id if len(found) == query.limit else None
    items = [LogRow.from_record(each, **call.hidden_address) for each in found]
    return NewestFirst(items=items, next_before=more)


@result_endpoints.get(
    "/work/projects/{project}/leaderboard",
    "List claimants by results",
    schema="RankPage: A page of the leaderboard, highest first.",
)
async def leaderboard(call: Call, project: ProjectText, query: RankQuery) -> Page[RankRow]:
    """Months are kept for 13 months, weeks for 13 weeks."""
    span = None if query.period == "all" else query.period
    work = call.store.work
    await work.projects.get(project)
    found, total = await work.leaderboard.table(project, query.by, span, query.limit, query.offset)
    return Page.of(query, [RankRow.from_record(each) for each in found], total)


blocked_endpoints = Endpoints("work-blocked", "Claimants and addresses that get no work.")

WhoText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=64,
        description="A claimant's name or user ID, an IP address, or the /64 of IPv6 addresses.",
        examples=["volunteer_1", "192.0.2.1"],
    ),
]


class BlockedList(ItemList[str]):
    """Blocked claimants, addresses and networks."""


class Block(Body):
    """Whom to block."""

    who: WhoText


class BlockedOne(Reply):
    """A blocked claimant, address or network."""

    who: str
    new: bool = Field(description="false: it was blocked before.")


class UnblockQuery(Query):
    who: WhoText


@copy_of(BlockEvent, at=Moment, address=OptionalText, item=OptionalText, reported=OptionalText)
class BlockRow(Reply):
    """A change of the list, or a report with wrong domains."""


@blocked_endpoints.get("/work/blocked", "List who is blocked in all projects", role="operate")
async def list_everywhere(call: Call) -> BlockedList:
    return BlockedList(items=await call.store.work.blocks.all())


@blocked_endpoints.post("/work/blocked", "Block in all projects", "block.add")
async def block_everywhere(call: Call, body: Block) -> BlockedOne:
    """Applies from the next request on. Claims stay until they end."""
    return BlockedOne(who=body.who, new=await call.store.work.blocks.block(body.who))


@blocked_endpoints.delete("/work/blocked", "Unblock in all projects", "block.remove")
async def unblock_everywhere(call: Call, query: UnblockQuery) -> None:
    """Blocks of single projects stay."""
    await call.store.work.blocks.unblock(query.who)


@blocked_endpoints.get("/work/projects/{project}/blocked", "List who is blocked in a project", role="operate")
async def work_blocked_list_all(call: Call, project: ProjectText) -> BlockedList:
    await call.store.work.projects.get(project)
    return BlockedList(items=await call.store.work.blocks.all(project))


@blocked_endpoints.post("/work/projects/{project}/blocked", "Block in a project", "block.add")
async def block(call: Call, project: ProjectText, body: Block) -> BlockedOne:
    """Applies from the next request on. Claims stay until they end."""
    return BlockedOne(who=body.who, new=await call.store.work.blocks.block(body.who, project))


@blocked_endpoints.delete(
    "/work/projects/{project}/blocked",
    "Unblock in a project",
    "block.remove",
    missing="Unknown project, or not blocked.",
)
async def unblock(call: Call, project: ProjectText, query: UnblockQuery) -> None:
    """A block in all projects stays."""
    existing(await call.store.work.blocks.unblock(query.who, project), "block")


@blocked_endpoints.get(
    "/work/projects/{project}/blocked-log",
    "List changes of blocks",
    role="operate",
    schema="BlockLog: A page of the log, newest first.",
)
async def work_blocked_log(call: Call, project: ProjectText, query: LogQuery) -> NewestFirst[BlockRow]:
    """And reports with wrong domains. About the last 1,000 entries are kept."""
    await call.store.work.projects.get(project)
    events = await call.store.work.blocks.log(project, query.limit, query.before or "")
    more = events[-1].id if len(events) == query.limit else None
    return NewestFirst(items=[BlockRow.from_record(each) for each in events], next_before=more)
