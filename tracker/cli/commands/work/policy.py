"""``tracker work policy``."""

from typing import Annotated

import typer

from tracker.cli.commands import Pages, lists
from tracker.cli.commands.work.group import Project, commands
from tracker.cli.terminal import Row
from tracker.operations.work import policy_preview
from tracker.store.store import Store
from tracker.store.work.policy import Change


def _check_dry_run(given: bool) -> None:
    if not given:
        raise typer.BadParameter("give --dry-run: the running tracker applies the policy every ten minutes")


@commands.command("policy")
@lists("info_hash:40 seeders>8 average>8 copies>6 to:20 reason")
async def preview_policy(
    store: Store,
    project: Project,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Required: this command only shows; the tracker applies the policy.",
            callback=_check_dry_run,
        ),
    ] = False,
) -> Pages:
    """Show what the policy of a project of kind `seeding` would change now, and why."""
    yield map(_row, await policy_preview(store, project))


def _row(change: Change) -> Row:
    return {
        "info_hash": change.info_hash.hex(),
        "to": change.queue or " ".join(change.asked),
        **{name: getattr(change, name) for name in ("seeders", "average", "copies", "copies_before", "reason")},
    }
