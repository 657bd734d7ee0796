"""``tracker backup`` and ``tracker restore``."""

import asyncio
import time
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from tracker.cli.commands import AsJson, change_of, load_settings, run_with_store
from tracker.cli.terminal import Row, describe
from tracker.errors import ClientError
from tracker.runtime.store import build_store
from tracker.settings.model import Settings
from tracker.store.client.connection import Connection
from tracker.store.maintenance.maintenance import Maintenance
from tracker.store.store import Store
from tracker.valkey.backup import copy_store, restore_store

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
