"""``tracker work policy``, ``projects``, ``create``, ``edit`` and ``delete``."""

from typing import Annotated

from typer import BadParameter, Option

from tracker.cli.commands import Pages, Yes, audited, checks, confirm, lists
from tracker.cli.commands.options import Given, options_of
from tracker.cli.commands.work.group import Project, commands
from tracker.cli.terminal import Row, say
from tracker.operations import work as operations
from tracker.operations.audit import Change
from tracker.store.store import Store
from tracker.store.work.policy import Change as PolicyChange
from tracker.store.work.records import Kind
from tracker.store.work.records import Project as ProjectRecord


def _check_dry_run(dry_run: bool) -> None:
    if not dry_run:
        raise BadParameter("give --dry-run: the running tracker applies the policy every ten minutes")


@commands.command("policy")
@checks(_check_dry_run)
@lists("info_hash:40 seeders>8 average>8 copies>6 to:20 reason")
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


@commands.command("projects")
@lists("name:30 kind:7 todo>10 out>10 done>10 claimants>10 title")
async def list_projects(store: Store) -> Pages:
    """List projects: their items by state, claims, and totals."""
    projects = await store.work.projects.all()
    found = await store.work.statistics.read([project.name for project in projects])
    for project, numbers in zip(projects, found, strict=True):
        row: Row = {
            "name": project.name,
            "kind": project.kind,
            "todo": numbers.wanted,
            "out": numbers.out,
            "done": numbers.done,
            "claimants": numbers.claimants,
            "title": project.title,
        }
        yield [row | {**numbers.totals}]


@commands.command("create")
@options_of(ProjectRecord)
@audited("project.create")
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


@commands.command("edit")
@options_of(ProjectRecord)
@checks(_check_given)
@audited("project.edit")
async def edit_project(store: Store, change: Change, name: Project, given: Given = None) -> None:
    """Change settings of a project; others are unchanged. They apply to each claimant's next request."""
    await change.touch("project", name)
    await store.work.projects.edit(name, given or {})
    say(f"changed {name}")


@commands.command("delete")
@audited("project.delete")
async def delete_project(store: Store, change: Change, name: Project, yes: Yes = False) -> None:
    """Delete a project with its items, claims, log and leaderboards. Other projects are unchanged."""
    await change.touch("project", name)
    await store.work.projects.get(name)
    confirm(f"Delete the project {name} and everything in it?", yes=yes)
    await store.work.projects.delete(name)
    say(f"deleted {name}")
