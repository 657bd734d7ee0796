"""``tracker backup`` and ``tracker restore``."""

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer

from tracker.backup import copy_store, restore_store
from tracker.commands import AsJson, Config, load_settings, run_with_stores
from tracker.errors import ClientError
from tracker.settings import Settings
from tracker.stores import Stores
from tracker.terminal import Row, describe

_ELSEWHERE = (
    "the store is a server of its own (TRACKER_REDIS__URL), and is copied with its tools: `redis-cli --rdb FILE` or "
    "`valkey-cli --rdb FILE` writes a snapshot; `tracker export --what all FILE` writes torrents, users and lists"
)


def backup(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|FOLDER/", help="In a folder, made where it is missing, it is named after the time."
        ),
    ],
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Copy the whole private store into one file, also while the tracker runs. The file holds secrets: passkeys."""
    settings = _private(config)
    directory = settings.data.directory.absolute()
    if not (directory / "tracker.lock").exists():
        raise ClientError(f"no tracker has run on {directory} yet: there is nothing to copy")
    path = Path(target)
    if target.endswith("/"):  # a Path forgets it, and the copies of all nights would be one file
        path.mkdir(mode=0o700, exist_ok=True)
    if path.is_dir():
        path /= f"swarmkeeper-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.rdb"

    async def work(stores: Stores) -> None:
        size = await copy_store(stores.connection, directory, path)
        describe({"file": str(path), "bytes": size}, as_json=as_json)

    run_with_stores(settings, work)


def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What `tracker backup` wrote.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Put a store that is there aside, and say where it lies.")
    ] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Put a copy into the data directory of a tracker that does not run."""
    settings = _private(config)
    directory = settings.data.directory.absolute()
    keys, before = asyncio.run(restore_store(source, directory, replace=replace))
    row: Row = {"directory": str(directory), "keys": keys, "before": str(before) if before else None}
    describe(row, as_json=as_json)


def _private(config: Path | None) -> Settings:
    settings = load_settings(config)
    if settings.redis.url is not None:
        raise ClientError(_ELSEWHERE)
    return settings
