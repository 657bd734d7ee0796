"""``tracker cleanup``, ``tracker reindex``, ``tracker wipe-stats``, ``tracker backup`` and ``tracker restore``.

``tracker reshard`` fills a new store from one with another number of shards, ``tracker torrent renumber`` gives
torrents the ids of the site. No tracker runs meanwhile."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import SecretStr, ValidationError
from typer import Argument, BadParameter, Option, echo

from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.cli.commands import (
    AsJson,
    Yes,
    change_of,
    change_store,
    confirm,
    load_settings,
    run_async,
    run_with_store,
    torrent_files,
    traits,
    with_store,
)
from tracker.cli.terminal import Row, describe, note, progress, say, show
from tracker.errors import ClientError, plain
from tracker.operations.audit import Change
from tracker.operations.torrents import stale_files
from tracker.runtime.store import build_store, open_connection
from tracker.settings.model import RedisSettings, Settings
from tracker.store.client.connection import Connection
from tracker.store.maintenance.maintenance import Finding, Maintenance
from tracker.store.resharding.parts import Parts
from tracker.store.resharding.renumber import Renumber
from tracker.store.resharding.reshard import Reshard, count
from tracker.store.store import Store
from tracker.store.torrents.torrents import is_torrent_id
from tracker.valkey.backup import copy_store, restore_store
from tracker.valkey.server import command_server


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


@traits(audited="reindex")
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


@traits(audited="wipe_stats", checks=_check_wipe)
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


def reshard(
    shards: Annotated[int, Option(metavar="N", help="Shards of the new store: 1, or a power of two.")],
    url: Annotated[str | None, Option(metavar="URL", help="Server of the new store. Default: the same server.")] = None,
    url_file: Annotated[
        Path | None, Option(metavar="FILE", help="File with that URL, for one with a password.")
    ] = None,
    private: Annotated[
        bool, Option("--private", help="The new store is the private one in the data directory.")
    ] = False,
    prefix: Annotated[
        str | None, Option(metavar="PREFIX", help="Prefix of the new store. Default: the same prefix.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Count and check only.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Copy the store into a new one with another number of shards, while no tracker runs on either.

    The settings name the old store, which is only read. If it is interrupted, run it again: it continues, or starts
    again.
    """
    settings = load_settings()
    if url is not None and url_file is not None:
        raise ClientError("choose --url or --url-file")
    if url_file is not None:
        url = url_file.read_text(encoding="utf-8").strip()
    target = _target(settings, shards, url, private=private, prefix=prefix)
    confirm("Has every tracker on this store been stopped?", yes=yes or dry_run)
    run_async(_run(settings, target, dry_run=dry_run, as_json=as_json))


def _target(settings: Settings, shards: int, url: str | None, *, private: bool, prefix: str | None) -> Settings:
    """The settings of the new store."""
    redis = settings.redis
    if private and url is not None:
        raise ClientError("choose --private or the URL of a server")
    old = redis.url.get_secret_value() if redis.url else None
    new = None if private else url or old
    changed = {
        "url": SecretStr(new) if new else None,
        "shards": shards,
        "prefix": redis.prefix if prefix is None else prefix,
        "tls_ca_file": redis.tls_ca_file if new and new.lower().startswith("rediss") else None,
    }
    try:
        made = RedisSettings.model_validate({**redis.model_dump(), **changed})
    except ValidationError as error:
        raise ClientError("; ".join(plain(each["msg"]) for each in error.errors())) from error
    if (new, made.shards, made.prefix) == (old, redis.shards, redis.prefix):
        raise ClientError("this is the old store: choose another number of shards, server or prefix")
    return settings.model_copy(update={"redis": made})


@asynccontextmanager
async def opened(settings: Settings, url: str, *, new: bool) -> AsyncIterator[Parts]:
    # A large key takes a server longer than an announce.
    async with open_connection(url, settings.redis, timeout=60.0) as (connection, _):
        store = build_store(connection, settings)
        if not new:
            await store.check_layout()
        yield Parts(store)


async def _run(settings: Settings, new: Settings, *, dry_run: bool, as_json: bool) -> None:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(command_server(settings))
        if new.redis.url == settings.redis.url:
            new_url = url
        else:
            new_url = await stack.enter_async_context(command_server(new))
        source = await stack.enter_async_context(opened(settings, url, new=False))
        target = await stack.enter_async_context(opened(new, new_url, new=True))
        run = Reshard(source, target)
        await run.check()
        with progress("keys counted", await source.size()) as shown:
            before = await count(source, shown.reach)
        if before.unknown:
            note(f"{before.unknown} keys that docs/keys.md does not name are not copied")
        if dry_run:
            describe({**before.figures}, as_json=as_json)
            return
        with progress("keys copied", await source.size()) as shown:
            async for read in run.copy():
                shown.reach(read)
        note("writing sums, rankings, the change feed and copies of users")
        await run.join()
        with progress("keys checked", await target.size()) as shown:
            after = await run.finish(before, shown.reach)
        change = change_of(target.store, "reshard")
        change.note(shards=len(target.shards), before=len(source.shards))
        change.count(keys=after.figures["keys"])
        await change.record()
        for name, number in before.figures.items():
            text = f"{name:<12}{number:>15,} before{after.figures[name]:>15,} after"
            show({"what": name, "before": number, "after": after.figures[name]}, text, as_json=as_json)
        if not as_json:
            say(f"the new store is complete: set TRACKER_REDIS__SHARDS={new.redis.shards} before the next start")


def renumber(file: Path) -> None:
    """Raises ClientError, StoreRefused and StoreUnavailable."""
    wanted, settings = _read_ids(file), load_settings()

    async def work() -> None:
        async with command_server(settings) as url, opened(settings, url, new=False) as parts:
            run = Renumber(parts)
            number = await run.begin(wanted)
            with progress("keys read", 2 * await parts.size()) as shown:
                async for read in run.run():
                    shown.reach(read)
            change = change_of(parts.store, "torrent.renumber")
            change.count(torrents=number)
            await change.record()
            say(f"renumbered {number} torrents")

    run_async(work())


def _read_ids(file: Path) -> dict[str | InfoHash, str]:
    """Raises ClientError."""
    wanted: dict[str | InfoHash, str] = {}
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ClientError(f"{file} is not UTF-8 text") from error
    for number, line in enumerate(lines, 1):
        words = re.split(r"[ \t,;]+", line.strip())
        if words == [""] or (number == 1 and not words[-1].isdigit()):
            continue
        if len(words) != 2 or not is_torrent_id(words[1]):
            raise ClientError(f"{file} line {number}: needs an info hash or an id, and a new id of at most 14 digits")
        try:
            old = parse_info_hash(words[0]) if len(words[0]) == 40 else words[0]
        except ClientError as error:
            raise ClientError(f"{file} line {number}: {error}") from None
        if wanted.setdefault(old, words[1]) != words[1]:
            raise ClientError(f"{file} line {number}: this torrent is in the file twice")
    return wanted
