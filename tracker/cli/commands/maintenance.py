"""``tracker cleanup``, ``tracker reindex``, ``tracker wipe-stats``, ``tracker backup`` and ``tracker restore``."""

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, BadParameter, Option, echo

from tracker.cli.commands import (
    AsJson,
    Yes,
    audited,
    change_of,
    change_store,
    checks,
    confirm,
    load_settings,
    run_with_store,
    torrent_files,
    with_store,
)
from tracker.cli.progress import progress
from tracker.cli.terminal import Row, describe, say, show
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.operations.torrents import stale_files
from tracker.runtime.store import build_store
from tracker.settings.model import Settings
from tracker.store.client.connection import Connection
from tracker.store.maintenance.maintenance import Finding, Maintenance
from tracker.store.store import Store
from tracker.valkey.backup import copy_store, restore_store


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


_NOT_PRIVATE = (
    "the store is an external server (TRACKER_REDIS__URL): back it up with `redis-cli --rdb FILE` or "
    "`valkey-cli --rdb FILE`, each node of a cluster by itself (docs/cluster.md); "
    "`tracker export --what all FILE` writes torrents, users and lists"
)
_RESTORED = (
    "Tokens, passkeys and users are those of the backup: repeat what was revoked or changed since. "
    "All browsers are signed out."
)


def backup(
    target: Annotated[
        str,
        Argument(
            metavar="FILE|FOLDER/",
            help="FOLDER/ is created if missing; the file in it is named after the current time.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Back up the private store to one file; the tracker may be running. The file contains passkeys: keep it secret."""
    settings = _private()
    directory = settings.data.directory.absolute()
    if not (directory / "tracker.lock").exists():
        raise ClientError(f"no tracker has used {directory} yet: nothing to back up")
    path = Path(target)
    if target.endswith("/"):  # Path drops the slash, and every backup would replace the last one
        path.mkdir(mode=0o700, exist_ok=True)
    if path.is_dir():
        path /= f"swarmkeeper-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.rdb"

    async def work(store: Store) -> None:
        size = await copy_store(store.connection, directory, path)
        describe({"file": str(path), "bytes": size}, as_json=as_json)

    run_with_store(settings, work)


def restore(
    source: Annotated[Path, Argument(metavar="FILE", help="File written by `tracker backup`.")],
    replace: Annotated[
        bool, Option("--replace", help="Move an existing store aside, and print its new location.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into the data directory of a stopped tracker. All browsers are signed out of the dashboard."""
    settings = _private()
    directory = settings.data.directory.absolute()
    counted: Row = {}

    async def prepare(connection: Connection) -> None:
        store = build_store(connection, settings)
        counted["sessions_ended"] = await store.tokens.end_all_sessions()
        await change_of(store, "restore").record()
        counted["keys"] = await Maintenance(store).key_count()

    before = asyncio.run(restore_store(source, directory, prepare, replace=replace))
    describe({"directory": str(directory), **counted, "before": str(before) if before else None}, as_json=as_json)
    echo(_RESTORED, err=True)


def _private() -> Settings:
    settings = load_settings()
    if settings.redis.url is not None:
        raise ClientError(_NOT_PRIVATE)
    return settings
