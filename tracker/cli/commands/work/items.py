"""Items: ``tracker work add``, ``list``, ``show``, ``remove`` and ``purge``. Projects: ``policy``, ``projects``,
``create``, ``edit`` and ``delete``."""

import sys
import time
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, BadParameter, Option

from tracker.cli.commands import EVERYTHING, PAGE, AsJson, LimitOrAll, Pages, Yes, change_store, confirm
from tracker.cli.commands.options import Given, OptionsOf
from tracker.cli.commands.work.claims import OlderThan, Project, commands
from tracker.cli.terminal import Moment, Row, say, show
from tracker.errors import ClientError, existing
from tracker.operations import work as operations
from tracker.operations.audit import Change
from tracker.store.store import Store
from tracker.store.work.policy import Change as PolicyChange
from tracker.store.work.records import Claim, Kind, NewItem, Place, Status
from tracker.store.work.records import Project as ProjectRecord
from tracker.store.work.records import Queue as QueueName

Queue = Annotated[QueueName, Option()]


@commands.command("add")
def add_items(
    project: Project,
    file: Annotated[
        Path | None, Argument(metavar="[FILE]", help="Text file with an item a line; `-` or none: standard input.")
    ] = None,
    queue: Queue = "todo",
    claimants: Annotated[
        list[str] | None, Option("--for", metavar="CLAIMANT", help="Only this claimant may have the items; repeatable.")
    ] = None,
    copies: Annotated[int, Option(min=1, max=1000, help="How many claimants get each item.")] = 1,
    again: Annotated[bool, Option("--again", help="Also add items that are done.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add items. Those that are wanted, claimed or done already are skipped."""
    data = sys.stdin.buffer.read() if file is None or str(file) == "-" else file.read_bytes()
    try:
        names = operations.items_of(data.decode())
    except UnicodeDecodeError as error:
        raise ClientError("the items are not UTF-8 text") from error
    new = [NewItem(name, queue, tuple(claimants or ()), copies) for name in names]

    async def work(store: Store, change: Change) -> None:
        await change.touch("project", project)
        done = await operations.add_items(store, project, new, again=again)
        change.note(queue=queue, claimants=" ".join(claimants or ()), again=again)
        change.count(processed=done.processed, added=done.added)
        counted: Row = {"processed": done.processed, "added": done.added}
        show(counted, f"processed {done.processed}, added {done.added}", as_json=as_json)

    change_store("items.add", work)


_COLUMNS = {
    "todo": "item place>12",
    "out": "item claimant:30 state:8 claimed:20 lease_ends:20 address:39",
    "done": "item done:20",
}


@commands.command("list", lists=lambda status, **_: _COLUMNS[status])
async def list_items(
    store: Store,
    project: Project,
    status: Annotated[Status, Option()] = "todo",
    queue: Queue = "todo",
    claimant: Annotated[
        str | None, Option("--for", metavar="CLAIMANT", help="Items that this claimant is asked for.")
    ] = None,
    limit: LimitOrAll = EVERYTHING,
) -> Pages:
    """List a queue in order, claims by lease end, or finished items (oldest first)."""
    place: Place = queue if status == "todo" else "done"

    await store.work.projects.get(project)
    left, cursor = limit, ""
    while left:
        count = min(PAGE, left)
        if status == "out":
            page = await store.work.claims.page(project, cursor=cursor, count=count)
            yield map(_claim_row, page.entries)
        else:
            page = await store.work.items.page(project, place, claimant=claimant or "", cursor=cursor, count=count)
            key, typed = ("place", float) if status == "todo" else ("done", Moment)
            yield ({"item": item, key: typed(score)} for item, score in page.entries)
        left -= len(page.entries)
        cursor = page.cursor
        if not cursor:
            return


def _claim_row(claim: Claim) -> Row:
    return {
        **{name: getattr(claim, name) for name in ("item", "claimant", "state", "address", "queue", "version")},
        "claimed": Moment(claim.claimed_at),
        "lease_ends": Moment(claim.lease_ends),
    }


@commands.command("show")
async def show_item(store: Store, project: Project, item: Annotated[str, Argument(metavar="ITEM")]) -> Row:
    """Show where an item is, and who has it."""
    await store.work.projects.get(project)
    found = await store.work.items.status(project, item)
    status = existing(found.status, "item")
    return {"item": found.name, "status": status, "copies": found.copies, "claimants": " ".join(found.claimants)}


@commands.command("remove", audited="items.remove")
async def remove_items(
    store: Store,
    change: Change,
    project: Project,
    items: Annotated[list[str], Argument(metavar="ITEM…", help="Info hashes or texts.")],
) -> None:
    """Remove items from their queues, or forget that they are done. Claims stay."""
    await change.touch("project", project)
    removed = await store.work.items.purge(project, items)
    change.note(items=" ".join(items))
    change.count(removed=removed)
    say(f"removed {removed}")


def _check_purge(project: str, status: str, queue: str, older_than: float | None, yes: bool) -> None:
    if older_than is not None and status != "done":
        raise BadParameter("--older-than needs --status done")
    which = "finished items" if status == "done" else f"items of the queue {queue}"
    which += "" if older_than is None else f" of more than {older_than:g} hours ago"
    confirm(f"Remove the {which} of {project}?", yes=yes)


@commands.command("purge", audited="items.purge", checks=_check_purge)
async def purge_items(
    store: Store,
    change: Change,
    project: Project,
    status: Annotated[Literal["todo", "done"], Option()] = "done",
    queue: Queue = "todo",
    older_than: OlderThan = None,
    yes: Yes = False,
) -> None:
    """Empty a queue, or the list of finished items. Claims are kept."""
    before = None if older_than is None else time.time() - older_than * 3600
    place: Place = queue if status == "todo" else "done"
    await change.touch("project", project)
    removed = await operations.purge_items(store, project, place, before=before)
    change.note(list=place, before=before and int(before))
    change.count(removed=removed)
    say(f"removed {removed}")


def _check_dry_run(dry_run: bool) -> None:
    if not dry_run:
        raise BadParameter("give --dry-run: the running tracker applies the policy every ten minutes")


@commands.command("policy", lists="info_hash:40 seeders>8 average>8 copies>6 to:20 reason", checks=_check_dry_run)
async def preview_policy(
    store: Store,
    project: Project,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Required: this command only shows; the tracker applies the policy.")
    ] = False,
) -> Pages:
    """Show what the policy of a project of kind `seeding` would change now, and why."""
    yield map(_policy_row, await operations.policy_preview(store, project))


def _policy_row(change: PolicyChange) -> Row:
    return {
        "info_hash": change.info_hash.hex(),
        "to": change.queue or " ".join(change.asked),
        **{name: getattr(change, name) for name in ("seeders", "average", "copies", "copies_before", "reason")},
    }


@commands.command("projects", lists="name:30 kind:7 todo>10 out>10 done>10 claimants>10 title")
async def list_projects(store: Store) -> Pages:
    """List projects: their items by state, claims, and totals."""
    projects = await store.work.projects.all()
    found = await store.work.statistics.read([project.name for project in projects])
    for project, numbers in zip(projects, found, strict=True):
        counts = {"todo": numbers.wanted, "out": numbers.out, "done": numbers.done, "claimants": numbers.claimants}
        yield [{"name": project.name, "kind": project.kind, **counts, "title": project.title, **numbers.totals}]


@commands.command("create", audited="project.create", given=OptionsOf(ProjectRecord))
async def create_project(
    store: Store, change: Change, name: Project, kind: Annotated[Kind, Option()] = "items", given: Given = None
) -> None:
    """Create a project. In kind `seeding` an item is a registered torrent, in kind `items` any text."""
    await change.touch("project", name)
    await operations.create_project(store, name, kind, given or {})
    say(f"created {name}")


def _check_given(given: Given) -> None:
    if not given:
        raise BadParameter("nothing to change: give an option such as --title")


@commands.command("edit", audited="project.edit", checks=_check_given, given=OptionsOf(ProjectRecord))
async def edit_project(store: Store, change: Change, name: Project, given: Given = None) -> None:
    """Change settings of a project; others are unchanged. They apply to each claimant's next request."""
    await change.touch("project", name)
    await store.work.projects.edit(name, given or {})
    say(f"changed {name}")


@commands.command("delete", audited="project.delete")
async def delete_project(store: Store, change: Change, name: Project, yes: Yes = False) -> None:
    """Delete a project with its items, claims, log and leaderboards. Other projects are unchanged."""
    await change.touch("project", name)
    await store.work.projects.get(name)
    confirm(f"Delete the project {name} and everything in it?", yes=yes)
    await store.work.projects.delete(name)
    say(f"deleted {name}")
