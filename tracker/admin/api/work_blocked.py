"""/work/blocked and /work/projects/{project}/blocked: who gets nothing."""

from typing import Annotated

from pydantic import Field

from tracker.admin.api.contract import Body, Call, Endpoints, Query, Reply
from tracker.admin.api.models import Items, Moment, NewestFirst, OptionalText, copy_of
from tracker.admin.api.work import ProjectText
from tracker.admin.api.work_results import LogQuery
from tracker.errors import existing
from tracker.store.work.blocks import BlockEvent

endpoints = Endpoints("work-blocked", "Claimants and addresses that get no work.")

WhoText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=64,
        description="A claimant's name or user ID, an IP address, or the /64 of IPv6 addresses.",
        examples=["volunteer_1", "192.0.2.1"],
    ),
]


class BlockedList(Items[str]):
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


class BlockLog(NewestFirst[BlockRow]):
    """A page of the log, newest first."""


@endpoints.get("/work/blocked", "List who is blocked in all projects", role="operate")
async def list_everywhere(call: Call) -> BlockedList:
    return BlockedList(items=await call.store.work.blocks.all())


@endpoints.post("/work/blocked", "Block in all projects", "block.add")
async def block_everywhere(call: Call, body: Block) -> BlockedOne:
    """Applies from the next request on. Claims stay until they end."""
    new = await call.store.work.blocks.block(body.who)
    return BlockedOne(who=body.who, new=new)


@endpoints.delete("/work/blocked", "Unblock in all projects", "block.remove")
async def unblock_everywhere(call: Call, query: UnblockQuery) -> None:
    """Blocks of single projects stay."""
    await call.store.work.blocks.unblock(query.who)


@endpoints.get("/work/projects/{project}/blocked", "List who is blocked in a project", role="operate")
async def list_all(call: Call, project: ProjectText) -> BlockedList:
    await call.store.work.projects.get(project)
    return BlockedList(items=await call.store.work.blocks.all(project))


@endpoints.post("/work/projects/{project}/blocked", "Block in a project", "block.add")
async def block(call: Call, project: ProjectText, body: Block) -> BlockedOne:
    """Applies from the next request on. Claims stay until they end."""
    new = await call.store.work.blocks.block(body.who, project)
    return BlockedOne(who=body.who, new=new)


@endpoints.delete(
    "/work/projects/{project}/blocked",
    "Unblock in a project",
    "block.remove",
    missing="Unknown project, or not blocked.",
)
async def unblock(call: Call, project: ProjectText, query: UnblockQuery) -> None:
    """A block in all projects stays."""
    existing(await call.store.work.blocks.unblock(query.who, project), "block")


@endpoints.get("/work/projects/{project}/blocked-log", "List changes of blocks", role="operate")
async def log(call: Call, project: ProjectText, query: LogQuery) -> BlockLog:
    """And reports with wrong domains. About the last 1,000 entries are kept."""
    await call.store.work.projects.get(project)
    events = await call.store.work.blocks.log(project, query.limit, query.before or "")
    more = events[-1].id if len(events) == query.limit else None
    return BlockLog(items=[BlockRow.from_record(each) for each in events], next_before=more)
