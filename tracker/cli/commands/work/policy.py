"""``tracker work policy``."""

from typing import Annotated

import typer

from tracker.cli.commands import AsJson, Config, with_store
from tracker.cli.commands.work.group import Project, commands
from tracker.cli.terminal import Column, Listing, Row
from tracker.operations.work import policy_preview
from tracker.store.store import Store
from tracker.store.work.policy import Change


@commands.command("policy")
def preview_policy(
    project: Project,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Required: this command only shows; the tracker applies the policy."),
    ] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show what the policy of a project of kind `seeding` would change now, and why."""
    if not dry_run:
        raise typer.BadParameter("give --dry-run: the running tracker applies the policy every ten minutes")
    numbers = [
        Column("seeders", 8, right=True),
        Column("average", 8, right=True),
        Column("copies", 6, right=True),
    ]
    listing = Listing(
        [Column("info_hash", 40), *numbers, Column("to", 20), Column("reason")], as_json=as_json
    )

    def row(change: Change) -> Row:
        return {
            "info_hash": change.info_hash.hex(),
            "seeders": change.seeders,
            "average": change.average,
            "copies": change.copies,
            "copies_before": change.copies_before,
            "to": change.queue or " ".join(change.asked),
            "reason": change.reason,
        }

    async def work(store: Store) -> None:
        listing.page(map(row, await policy_preview(store, project)))

    with_store(config, work)
