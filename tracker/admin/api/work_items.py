"""/work/projects/{project}/items: what a project gives to claimants."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tracker.admin.api.contract import Body, Call, Endpoints, Lines, Query, Reply
from tracker.admin.api.models import CursorPage, Flag, Limit, Moment, Whole, number
from tracker.admin.api.work import ClaimantText, Cursor, ItemText, ProjectText
from tracker.errors import existing
from tracker.operations.work import add_items, items_of, purge_items
from tracker.store.work.items import MAX_BATCH
from tracker.store.work.records import NewItem

endpoints = Endpoints("work-items", "Items of work distribution: what a project gives to claimants.")

QueueName = Literal["todo", "secondary", "redo"]
ListName = Annotated[Literal["todo", "secondary", "redo", "done"], Field(description="A queue, or the finished items.")]
Copies = Annotated[int, Field(ge=1, le=1000, description="How many claimants get each item.")]


class ItemRow(Reply):
    """An item of a list."""

    item: str
    place: float | None = Field(description="In a queue: the lowest goes first. Null if done.")
    done_at: Moment | None


class ItemQuery(Query):
    list: ListName = "todo"
    claimant: ClaimantText | None = Field(None, description="Items that this claimant is asked for instead.")
    cursor: Cursor = ""
    limit: Limit = Field(100, description="Max items per page.")


class ItemDetails(Reply):
    """An item and its state."""

    item: str
    status: Literal["todo", "out", "done"]
    copies: int = Field(description="Copies still to give out.")
    claimants: list[str] = Field(description="Claimants who have it.")


class ItemsNew(Body):
    """Items to add."""

    items: list[ItemText] = Field(min_length=1, max_length=MAX_BATCH)
    queue: QueueName = "todo"
    claimants: list[ClaimantText] = Field(
        [], max_length=10, description="Only these may claim the items. Empty: everyone."
    )
    copies: Copies = 1
    place: Annotated[float | None, Field(ge=-1e15, le=1e15, allow_inf_nan=False)] = Field(
        None, description="Position in the queue, lowest first. Null, and in projects with random order: random."
    )
    again: bool = Field(False, description="Also add items that are done.")


class ListQuery(Query):
    queue: QueueName = "todo"
    claimant: ClaimantText | None = Field(None, description="Only this claimant may claim the items.")
    copies: Annotated[int, Field(ge=1, le=1000), BeforeValidator(number)] = Field(
        1, description="How many claimants get each item."
    )
    again: Flag = Field(False, description="Also add items that are done.")


class ItemsAdded(Reply):
    """How many items were processed and added."""

    processed: int
    added: int = Field(description="The others were wanted, claimed or done already.")


class PurgeQuery(Query):
    list: ListName
    before: Whole | None = Field(None, description="Only items done before this time (epoch s).")


class ItemsPurged(Reply):
    """Number of removed items."""

    removed: int


class ItemName(Query):
    name: ItemText


@endpoints.get(
    "/work/projects/{project}/items",
    "List items",
    schema="ItemPage: A page of items: queues in their order, finished items oldest first.",
)
async def list_all(call: Call, project: ProjectText, query: ItemQuery) -> CursorPage[ItemRow]:
    """Claimed items are listed under claims."""
    work = call.store.work
    await work.projects.get(project)
    page = await work.items.page(
        project, query.list, claimant=query.claimant or "", cursor=query.cursor, count=query.limit
    )
    is_done = query.list == "done" and query.claimant is None
    # The score of an item is when it was done (epoch s), or its place.
    rows = [
        ItemRow(item=item, place=None if is_done else score, done_at=int(score) if is_done else None)
        for item, score in page.entries
    ]
    return CursorPage(items=rows, next_cursor=page.cursor or None)


@endpoints.post("/work/projects/{project}/items", "Add items", "items.add")
async def add(call: Call, project: ProjectText, body: ItemsNew) -> ItemsAdded:
    """Items that are wanted, claimed or done already are skipped. In a project of kind `seeding` they must be
    registered torrents."""
    new = [NewItem(name, body.queue, tuple(body.claimants), body.copies, body.place) for name in body.items]
    return ItemsAdded.from_record(await add_items(call.store, project, new, again=body.again))


@endpoints.post("/work/projects/{project}/item-list", "Add items of a text", "items.add")
async def add_list(call: Call, project: ProjectText, query: ListQuery, body: Lines) -> ItemsAdded:
    """The body is text, one item a line. Empty lines are ignored. If one item is invalid, none is added."""
    asked = (query.claimant,) if query.claimant else ()
    new = [NewItem(name, query.queue, asked, query.copies) for name in items_of(body.root)]
    return ItemsAdded.from_record(await add_items(call.store, project, new, again=query.again))


@endpoints.delete("/work/projects/{project}/items", "Remove items of a list", "items.purge")
async def purge(call: Call, project: ProjectText, query: PurgeQuery) -> ItemsPurged:
    """Removes all items of a queue, or forgets finished ones. Claims stay."""
    return ItemsPurged(removed=await purge_items(call.store, project, query.list, before=query.before))


@endpoints.get("/work/projects/{project}/item", "Show an item", missing="Unknown project or item.")
async def show(call: Call, project: ProjectText, query: ItemName) -> ItemDetails:
    await call.store.work.projects.get(project)
    item = await call.store.work.items.status(project, query.name)
    status = existing(item.status, "item")
    return ItemDetails(item=item.name, status=status, copies=item.copies, claimants=list(item.claimants))


@endpoints.delete("/work/projects/{project}/item", "Remove an item", "items.remove", missing="Unknown project or item.")
async def remove(call: Call, project: ProjectText, query: ItemName) -> None:
    """Its copies in queues are removed; if it is done, that is forgotten. Claims stay."""
    existing(await call.store.work.items.purge(project, [query.name]), "item")
