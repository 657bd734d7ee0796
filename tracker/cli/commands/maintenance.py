"""``tracker cleanup``, ``tracker reindex`` and ``tracker wipe-stats``."""

from dataclasses import asdict
from typing import Annotated

from typer import BadParameter, Option

from tracker.cli.commands import (
    AsJson,
    Yes,
    audited,
    change_store,
    checks,
    confirm,
    load_settings,
    torrent_files,
    with_store,
)
from tracker.cli.progress import progress
from tracker.cli.terminal import say, show
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.operations.torrents import stale_files
from tracker.store.maintenance.maintenance import Finding, Maintenance
from tracker.store.store import Store


def cleanup(
    delete: Annotated[bool, Option("--delete", help="Delete the stale keys.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Find stale keys in the store, functions of other versions, and kept .torrent files without a torrent.

    They are deleted only with --delete.

    Safe while a tracker is running: each key is checked again at the moment of its deletion.
    """
    confirm("Delete all stale keys?", yes=yes or not delete)
    files = torrent_files(load_settings())

    async def work(store: Store, change: Change | None = None) -> None:
        with progress("keys checked") as shown:
            found = await Maintenance(store).cleanup(dry_run=not delete, progress=shown.reach)
        found += await Maintenance(store).cleanup_libraries(dry_run=not delete)
        stale = [each.hex() async for each in stale_files(store.torrents, files, delete=delete)]
        if stale:
            changed = len(stale) if delete else 0
            found.append(Finding(".torrent files without a torrent", len(stale), tuple(stale[:3]), changed))
        _show(found, "deleted", "no stale keys", as_json=as_json)
        if found and not delete and not as_json:
            say("dry run: use --delete to delete them")
        if change is not None:
            change.count(deleted=sum(each.changed for each in found))

    if delete:
        change_store("cleanup", work)
    else:
        with_store(work)


@audited("reindex")
async def reindex(store: Store, change: Change, as_json: AsJson = False) -> None:
    """Rebuild the lists of torrents, denials, users and clients: for data written by a site."""
    with progress("keys checked") as shown:
        found = await Maintenance(store).reindex(progress=shown.reach)
        users = await store.user_listing.rank(all_of_them=True)
        torrents = await store.torrent_listing.rank(all_of_them=True)
    change.count(repaired=sum(each.changed for each in found))
    if found or (users and torrents):
        _show(found, "repaired", "all lists are complete", as_json=as_json)
    if not (users and torrents):
        raise ClientError("the store is out of memory: some lists are incomplete")


def _check_wipe(uniques: bool, repairs: bool, yes: bool) -> None:
    if uniques and repairs:
        raise BadParameter("give --uniques or --repairs")
    too = " and all unique users" if uniques else ""
    confirm(f"Delete all counters, latencies, histories and totals of the tracker{too}?", yes=yes or repairs)


@checks(_check_wipe)
@audited("wipe_stats")
async def wipe_stats(
    store: Store,
    change: Change,
    uniques: Annotated[bool, Option("--uniques", help="Delete unique users too.")] = False,
    repairs: Annotated[
        bool, Option("--repairs", help="Reset only the count of repairs, which `tracker doctor` reports.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Reset all statistics: counters, latencies, histories, totals of the tracker, client programs.

    Torrents, users with their totals, swarms, scores and jobs stay.
    """
    if repairs:
        change.count(repairs=await Maintenance(store).reset_repairs())
        return
    with progress("deleted") as shown:
        async for total in Maintenance(store).wipe_statistics(uniques=uniques):
            shown.reach(total)
    change.note(unique_users=uniques)
    change.count(deleted=shown.done)
    say(f"deleted {shown.done} keys")


def _show(findings: list[Finding], done: str, nothing: str, *, as_json: bool) -> None:
    for finding in findings:
        examples = ", ".join(finding.examples)
        changed = f", {finding.changed} {done}" if finding.changed else ""
        text = f"{finding.count} {finding.kind}{changed}: {examples}"
        show({**asdict(finding), "examples": examples}, text, as_json=as_json)
    if not findings and not as_json:
        say(nothing)
