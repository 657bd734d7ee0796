"""``tracker cleanup``, ``tracker reindex`` and ``tracker wipe-stats``."""

from typing import Annotated

import typer

from tracker.commands import AsJson, Config, Yes, with_stores
from tracker.progress import progress
from tracker.store.maintenance import Finding
from tracker.stores import Stores
from tracker.terminal import Row, say, say_json


def cleanup(
    delete: Annotated[bool, typer.Option("--delete", help="Delete what was found.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Find what no longer belongs into the store. It is left there, unless --delete is given.

    Safe beside a running tracker: each thing is looked at again at the moment of its deletion.
    """
    if delete and not yes:
        typer.confirm("Delete everything in the store that no longer belongs?", abort=True)

    async def work(stores: Stores) -> None:
        found = 0
        with progress("keys looked at") as shown:
            async for finding in stores.maintenance.cleanup(
                dry_run=not delete, progress=lambda done, _: shown.reach(done)
            ):
                found += finding.count
                _show(finding, "deleted", as_json=as_json)
        if not as_json and not found:
            say("nothing is there that does not belong")
        elif not as_json and not delete:
            say("this was a dry run: give --delete to delete them")

    with_stores(config, work)


def reindex(as_json: AsJson = False, config: Config = None) -> None:
    """List what is not listed as it should: torrents and denials that a site wrote by itself, or of an older store."""

    async def work(stores: Stores) -> None:
        found = 0
        with progress("keys looked at") as shown:
            async for finding in stores.maintenance.reindex(progress=lambda done, _: shown.reach(done)):
                found += finding.count
                _show(finding, "put right", as_json=as_json)
        if not as_json and not found:
            say("everything is listed")

    with_stores(config, work)


def wipe_stats(
    uniques: Annotated[bool, typer.Option("--uniques", help="Unique users, too.")] = False,
    yes: Yes = False,
    config: Config = None,
) -> None:
    """Begin statistics anew: counters, distributions, histories, global figures, client programs seen.

    Torrents, users with their totals, swarms, scores and jobs stay.
    """
    if not yes:
        too = " and all unique users" if uniques else ""
        typer.confirm(f"Delete all counters, distributions, histories and global figures{too}?", abort=True)

    async def work(stores: Stores) -> None:
        total = 0
        with progress("deleted") as shown:
            async for total in stores.maintenance.wipe_statistics(uniques=uniques):
                shown.reach(total)
        say(f"deleted {total} keys")

    with_stores(config, work)


def _show(finding: Finding, done: str, *, as_json: bool) -> None:
    if as_json:
        row: Row = {"kind": finding.kind, "count": finding.count, "changed": finding.changed}
        say_json({**row, "examples": ", ".join(finding.examples)})
        return
    changed = f", {finding.changed} {done}" if finding.changed else ""
    say(f"{finding.count} {finding.kind}{changed}: {', '.join(finding.examples)}")
