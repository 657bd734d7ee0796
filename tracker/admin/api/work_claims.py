"""/work/projects/{project}/claims: who has what."""

from pydantic import Field

from tracker.admin.api.contract import Body, Call, Endpoints, Query, Reply
from tracker.admin.api.models import Count, CursorPage, Limit, Moment, OptionalMoment, Whole, reply_of
from tracker.admin.api.work import Address, ClaimantText, Cursor, ItemText, ProjectText
from tracker.errors import ClientError
from tracker.store.work.records import Claim

endpoints = Endpoints("work-claims", "Claims of work distribution: items that claimants have, for a limited time.")


@reply_of(Claim, address=Address, claimed_at=Moment, lease_ends=Moment, checked_at=OptionalMoment)
class ClaimRow(Reply):
    """A claim."""

    item: str
    claimant: str


class ClaimPage(CursorPage[ClaimRow]):
    """A page of claims; those whose lease ends first come first."""


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


@endpoints.get("/work/projects/{project}/claims", "List claims")
async def list_all(call: Call, project: ProjectText, query: ClaimQuery) -> ClaimPage:
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
    return ClaimPage(items=items, next_cursor=found.cursor or None)


@endpoints.post("/work/projects/{project}/claims/release", "Release claims", "claims.release")
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
