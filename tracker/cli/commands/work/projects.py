"""``tracker work projects``, ``create``, ``edit`` and ``delete``."""

from typing import Annotated, cast, get_args

import typer

from tracker.cli.commands import AsJson, Config, Yes, change_store, with_store
from tracker.cli.commands.options import Given, options_of
from tracker.cli.commands.work.group import Project, check_choice, commands
from tracker.cli.terminal import Column, Listing, Row, say
from tracker.operations import work as work_operations
from tracker.operations.audit import Change
from tracker.store.store import Store
from tracker.store.work.records import Kind
from tracker.store.work.records import Project as ProjectRecord


@commands.command("projects")
def list_projects(as_json: AsJson = False, config: Config = None) -> None:
    """List projects: their items by state, claims, and totals."""
    counts = [Column(name, 10, right=True) for name in ("todo", "out", "done", "claimants")]
    listing = Listing([Column("name", 30), Column("kind", 7), *counts, Column("title")], as_json=as_json)

    async def work(store: Store) -> None:
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
            listing.page([row | ({**numbers.totals} if as_json else {})])

    with_store(config, work)


@commands.command("create")
@options_of(ProjectRecord)
def create_project(
    name: Project,
    kind: Annotated[str, typer.Option(help=f"One of {', '.join(get_args(Kind))}.")] = "items",
    given: Given = None,
    config: Config = None,
) -> None:
    """Create a project. In kind `seeding` an item is a registered torrent, in kind `items` any text."""
    check_choice("--kind", kind, get_args(Kind))

    async def work(store: Store, change: Change) -> None:
        await change.touch("project", name)
        await work_operations.create_project(store, name, cast("Kind", kind), given or {})
        say(f"created {name}")

    change_store(config, "project.create", work)


@commands.command("edit")
@options_of(ProjectRecord)
def edit_project(name: Project, given: Given = None, config: Config = None) -> None:
    """Change settings of a project; others are unchanged. They apply to each claimant's next request."""
    if not given:
        raise typer.BadParameter("nothing to change: give an option such as --title")

    async def work(store: Store, change: Change) -> None:
        await change.touch("project", name)
        await store.work.projects.edit(name, given)
        say(f"changed {name}")

    change_store(config, "project.edit", work)


@commands.command("delete")
def delete_project(name: Project, yes: Yes = False, config: Config = None) -> None:
    """Delete a project with its items, claims, log and leaderboards. Other projects are unchanged."""

    async def work(store: Store, change: Change) -> None:
        await change.touch("project", name)
        await store.work.projects.get(name)
        if not yes:
            typer.confirm(f"Delete the project {name} and everything in it?", abort=True)
        await store.work.projects.delete(name)
        say(f"deleted {name}")

    change_store(config, "project.delete", work)
