"""``tracker work projects``, ``create``, ``edit`` and ``delete``."""

from collections.abc import Mapping
from typing import Annotated, Any, cast, get_args

import typer

from tracker.cli.commands import AsJson, Config, Yes, change_store, with_store
from tracker.cli.commands.work.group import Project, check_choice, commands
from tracker.cli.terminal import Column, Listing, Row, say
from tracker.operations import work as work_operations
from tracker.operations.audit import Change
from tracker.store.store import Store
from tracker.store.work.records import PROJECT_FIELDS, Kind, Order, Verify

Title = Annotated[str | None, typer.Option(help="Title of the project's page.")]
ItemType = Annotated[str | None, typer.Option(help="What the items are; shown on the project's page.")]
Domains = Annotated[
    str | None,
    typer.Option(help="Names under which finished items report bytes, separated by commas; empty: any."),
]
MinVersion = Annotated[str | None, typer.Option(help="Oldest version of a claimant's program; empty: any.")]
PerMinute = Annotated[int | None, typer.Option(help="Max claims in any 60 s, by all claimants; 0: no limit.")]
StartBudget = Annotated[int | None, typer.Option(help="Max claims at once of a new claimant.")]
Budget = Annotated[int | None, typer.Option(help="Max claims at once of any claimant.")]
LeaseSeconds = Annotated[int | None, typer.Option(help="How long a new claim lasts.")]
VerifyBy = Annotated[
    str | None,
    typer.Option("--verify", help=f"How claims are verified, one of {', '.join(get_args(Verify))}."),
]
Passkeys = Annotated[
    bool | None, typer.Option("--passkeys/--no-passkeys", help="Claimants identify by passkey.")
]
OrderBy = Annotated[
    str | None,
    typer.Option(
        "--order", help=f"Which items of a queue are given first, one of {', '.join(get_args(Order))}."
    ),
]
LapsedToRedo = Annotated[
    bool | None,
    typer.Option(
        "--lapsed-to-redo/--lapsed-to-own",
        help="Whether items of lapsed claims go to the queue `redo` or their own.",
    ),
]
BlockWrongDomains = Annotated[
    bool | None,
    typer.Option(
        "--block-wrong-domains/--ignore-wrong-domains",
        help="Whether an address that reports wrong domains is blocked.",
    ),
]
KeepDoneDays = Annotated[int | None, typer.Option(help="How long finished items are kept; 0: for ever.")]
Public = Annotated[
    bool | None, typer.Option("--public/--hidden", help="Serve the list of needed torrents to everyone.")
]
Target = Annotated[int | None, typer.Option(help="Seeders that each torrent should have.")]
SeedHours = Annotated[int | None, typer.Option(help="Verified seed time that finishes a claim, in hours.")]
ClaimDays = Annotated[int | None, typer.Option(help="A claim ends after these days at the latest.")]
MinSize = Annotated[int | None, typer.Option(help="Smaller torrents (bytes) are not wanted.")]
MaxSize = Annotated[int | None, typer.Option(help="Larger torrents (bytes) are not wanted; 0: no limit.")]


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
def create_project(
    name: Project,
    kind: Annotated[str, typer.Option(help=f"One of {', '.join(get_args(Kind))}.")] = "items",
    title: Title = None,
    item_type: ItemType = None,
    domains: Domains = None,
    min_version: MinVersion = None,
    per_minute: PerMinute = None,
    start_budget: StartBudget = None,
    budget: Budget = None,
    lease_seconds: LeaseSeconds = None,
    verify: VerifyBy = None,
    passkeys: Passkeys = None,
    order: OrderBy = None,
    lapsed_to_redo: LapsedToRedo = None,
    block_wrong_domains: BlockWrongDomains = None,
    keep_done_days: KeepDoneDays = None,
    public: Public = None,
    target: Target = None,
    seed_hours: SeedHours = None,
    claim_days: ClaimDays = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    config: Config = None,
) -> None:
    """Create a project. In kind `seeding` an item is a registered torrent, in kind `items` any text."""
    settings = _settings(locals())
    check_choice("--kind", kind, get_args(Kind))

    async def work(store: Store, change: Change) -> None:
        await change.touch("project", name)
        await work_operations.create_project(store, name, cast("Kind", kind), settings)
        say(f"created {name}")

    change_store(config, "project.create", work)


@commands.command("edit")
def edit_project(
    name: Project,
    title: Title = None,
    item_type: ItemType = None,
    domains: Domains = None,
    min_version: MinVersion = None,
    per_minute: PerMinute = None,
    start_budget: StartBudget = None,
    budget: Budget = None,
    lease_seconds: LeaseSeconds = None,
    verify: VerifyBy = None,
    passkeys: Passkeys = None,
    order: OrderBy = None,
    lapsed_to_redo: LapsedToRedo = None,
    block_wrong_domains: BlockWrongDomains = None,
    keep_done_days: KeepDoneDays = None,
    public: Public = None,
    target: Target = None,
    seed_hours: SeedHours = None,
    claim_days: ClaimDays = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    config: Config = None,
) -> None:
    """Change settings of a project; others are unchanged. They apply from the next call of a claimant on."""
    settings = _settings(locals())
    if not settings:
        raise typer.BadParameter("nothing to change: give an option such as --title")

    async def work(store: Store, change: Change) -> None:
        await change.touch("project", name)
        await store.work.projects.edit(name, settings)
        say(f"changed {name}")

    change_store(config, "project.edit", work)


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were given, from the arguments of a command."""
    given = {
        name: value
        for name, value in options.items()
        if name in PROJECT_FIELDS and name != "kind" and value is not None
    }
    if "domains" in given:
        given["domains"] = tuple(filter(None, (each.strip() for each in given["domains"].split(","))))
    return given


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
