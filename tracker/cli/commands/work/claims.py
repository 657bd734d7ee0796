"""``tracker work release``, ``block``, ``unblock``, ``blocked``, ``top`` and ``log``."""

import re
from typing import Annotated, cast, get_args

import typer

from tracker.cli.commands import AsJson, Config, Month, change_store, check_month, with_store
from tracker.cli.commands.paging import PAGE, in_order
from tracker.cli.commands.work.group import OlderThan, Project, check_choice, commands
from tracker.cli.terminal import MOMENT, Column, Listing, Moment, Row, complain, say
from tracker.operations.audit import Change
from tracker.store.store import Store
from tracker.store.work.finished import finished_claim
from tracker.store.work.leaderboard import Board, Rank
from tracker.store.work.log import LogEntry

Who = Annotated[
    list[str],
    typer.Argument(metavar="[PROJECT] WHO…", help="Claimants, addresses, or the /64 of IPv6 addresses."),
]
Everywhere = Annotated[bool, typer.Option("--everywhere", help="In all projects; give no PROJECT.")]


@commands.command("release")
def release_claims(
    project: Project,
    older_than: OlderThan = None,
    claimant: Annotated[str | None, typer.Option(help="Only claims of this claimant.")] = None,
    item: Annotated[str | None, typer.Option(help="Only claims of this item.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Only claims of items that begin with this.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All claims.")] = False,
    config: Config = None,
) -> None:
    """End claims that match all options. Their items return to the queues that they came from."""
    if not every and (older_than, claimant, item, prefix) == (None, None, None, None):
        raise typer.BadParameter("give --older-than, --claimant, --item, --prefix or --all")

    async def work(store: Store, change: Change) -> None:
        await change.touch("project", project)
        await store.work.projects.get(project)
        released = await store.work.claims.release_all(
            project,
            claimant=claimant,
            item=item,
            prefix=prefix or "",
            older_than=None if older_than is None else older_than * 3600,
        )
        change.note(claimant=claimant, item=item, item_prefix=prefix, older_than_hours=older_than)
        change.count(released=released)
        say(f"released {released}")

    change_store(config, "claims.release", work)


@commands.command("block")
def block(who: Who, everywhere: Everywhere = False, config: Config = None) -> None:
    """Give claimants or addresses no more work, in a project or in all. Claims stay until they end."""
    project, names = _split(who, everywhere)

    async def work(store: Store, change: Change) -> None:
        for name in names:
            await change.touch("block", f"{project or ''}/{name}")
        for name in names:
            new = await store.work.blocks.block(name, project)
            say(f"blocked {name}" if new else f"{name} was blocked already")

    change_store(config, "block.add", work)


@commands.command("unblock")
def unblock(who: Who, everywhere: Everywhere = False, config: Config = None) -> None:
    """Undo `tracker work block`."""
    project, names = _split(who, everywhere)

    async def work(store: Store, change: Change) -> None:
        for name in names:
            await change.touch("block", f"{project or ''}/{name}")
        failed = False
        for name in names:
            if await store.work.blocks.unblock(name, project):
                say(f"unblocked {name}")
            else:
                failed = True
                complain(f"{name}: is not blocked")
        if failed:
            raise typer.Exit(1)

    change_store(config, "block.remove", work)


def _split(words: list[str], everywhere: bool) -> tuple[str | None, list[str]]:
    """The project, None for all, and who is meant."""
    if everywhere:
        return None, words
    if len(words) < 2:
        raise typer.BadParameter("give a project and whom to block, or --everywhere")
    return words[0], words[1:]


@commands.command("blocked")
def list_blocked(
    project: Annotated[
        str | None,
        typer.Argument(metavar="[PROJECT]", help="Default: the list that applies to all projects."),
    ] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List blocked claimants and addresses."""
    listing = Listing([Column("who", 45)], as_json=as_json)

    async def work(store: Store) -> None:
        if project is not None:
            await store.work.projects.get(project)
        listing.page({"who": who} for who in await store.work.blocks.all(project))

    with_store(config, work)


@commands.command("top")
def show_top(
    project: Project,
    by: Annotated[str, typer.Option(help=f"One of {', '.join(get_args(Board))}; count: items.")] = "count",
    month: Month = None,
    week: Annotated[
        str | None, typer.Option(metavar="YYYY-Www", help="Only this ISO week (UTC). Not with --month.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lines.")] = 20,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List claimants by finished items, reported bytes or verified seconds, highest first."""
    check_choice("--by", by, get_args(Board))
    check_month(month)
    _check_week(week, month)
    numbers = [
        Column("items", 10, right=True),
        Column("bytes", 20, right=True),
        Column("seconds", 12, right=True),
    ]
    listing = Listing([Column("claimant", 30), *numbers], as_json=as_json)

    def row(rank: Rank) -> Row:
        return {
            "claimant": rank.claimant,
            "items": rank.items,
            "bytes": rank.bytes,
            "seconds": rank.seconds,
        }

    async def work(store: Store) -> None:
        await store.work.projects.get(project)

        async def read(offset: int, count: int) -> list[Rank]:
            board = cast("Board", by)
            return (await store.work.leaderboard.table(project, board, month or week, count, offset))[0]

        async for page in in_order(limit, read):
            listing.page(map(row, page))

    with_store(config, work)


def _check_week(week: str | None, month: str | None) -> None:
    """Raises BadParameter."""
    if week is not None and month is not None:
        raise typer.BadParameter("give --month or --week")
    if week is not None and not re.fullmatch(r"[0-9]{4}-W(0[1-9]|[1-4][0-9]|5[0-3])", week, re.ASCII):
        raise typer.BadParameter("--week must be a year and an ISO week, such as 2026-W47")


@commands.command("log")
def show_log(
    project: Project,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lines.")] = 20,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List finished claims, newest first. `tracker work drain` writes them to files."""
    columns = [Column("at", MOMENT), Column("claimant", 30), Column("bytes", 20, right=True)]
    listing = Listing([*columns, Column("seconds", 10, right=True), Column("item")], as_json=as_json)

    def row(logged: LogEntry) -> Row:
        entry = finished_claim(logged)
        return {
            "id": entry.id,
            "at": Moment(entry.at),
            "claimant": entry.claimant,
            "address": entry.address,
            "bytes": entry.total_bytes,
            "seconds": entry.seconds,
            "item": entry.item,
        }

    async def work(store: Store) -> None:
        await store.work.projects.get(project)
        left, before = limit, ""
        while left:
            found = await store.work.log.newest(project, min(PAGE, left), before)
            listing.page(map(row, found))
            if not found:
                return
            left, before = left - len(found), found[-1].id

    with_store(config, work)
