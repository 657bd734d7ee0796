"""Backup and restore of the private store.

A backup is a snapshot that the server writes while it keeps answering (BGSAVE). A restore makes it the base of the
append-only file: a server with an append-only file ignores a snapshot beside it.
"""

import asyncio
import os
import re
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from redis.exceptions import ResponseError

from tracker.errors import StartupError
from tracker.store.client.connection import Connection, connect
from tracker.store.client.server_info import read_info
from tracker.system.logger import Logger
from tracker.system.private_file import private_file, sync_directory
from tracker.valkey.data_directory import FILES, MANIFEST, NEW_FILES, STAGING, DataDirectory, try_lock
from tracker.valkey.server import EmbeddedValkey, server_binary

_BASE = "appendonly.aof.1.base.rdb"
_MAGIC = re.compile(rb"REDIS[0-9]{4}|VALKEY[0-9]{3}")
_POLL_SECONDS = 0.05
_FAILED_POLLS = 20
"""A save that is neither running nor done for this many polls has failed."""

Prepare = Callable[[Connection], Awaitable[None]]
"""Changes a backup before it is restored, over a connection to a server that has loaded it."""

log = Logger("tracker.backup")


async def copy_store(connection: Connection, directory: Path, target: Path) -> int:
    """Writes a checked backup of the private store in ``directory`` to ``target``; returns its size in bytes. Raises
    StartupError, OSError and errors of the store; then ``target`` is unchanged."""
    with _alone(directory):
        _, name = await connection.command("CONFIG", "GET", "dbfilename")
        snapshot = directory / Path(name.decode()).name
        _check_target(target, snapshot)
        try:
            await _save(connection)
            return await asyncio.to_thread(_copy_checked, snapshot, target)
        finally:
            snapshot.unlink(missing_ok=True)


def _check_target(target: Path, snapshot: Path) -> None:
    """Refuses the snapshot's own path, because the snapshot is deleted at the end."""
    if target.resolve() == snapshot.resolve():
        raise StartupError(f"{target} is the store's own snapshot file: choose another name")


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Allows one backup at a time: the snapshot has a fixed name."""
    lock = os.open(directory / "backup.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(lock):
            raise StartupError("another backup of this store is running")
        yield
    finally:
        os.close(lock)


async def _save(connection: Connection) -> None:
    before = int((await read_info(connection, "persistence"))["rdb_saves"])
    while True:
        try:
            await connection.command("BGSAVE", "SCHEDULE")  # after a running rewrite of the append-only file
            break
        except ResponseError as error:
            if "in progress" not in str(error):
                raise
        await asyncio.sleep(_POLL_SECONDS)
    idle = 0
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        state = await read_info(connection, "persistence")
        if int(state["rdb_bgsave_in_progress"]):  # rdb_saves counts it from its start
            continue
        if int(state["rdb_saves"]) > before and state["rdb_last_bgsave_status"] == "ok":
            return
        idle = 0 if int(state["aof_rewrite_in_progress"]) else idle + 1
        if idle > _FAILED_POLLS:
            raise StartupError("the store could not write its snapshot: check its log and the free disk space")


def _copy_checked(source: Path, target: Path) -> int:
    with private_file(target) as file, source.open("rb") as snapshot:
        shutil.copyfileobj(snapshot, file, 1 << 20)
        file.flush()
        check_copy(Path(file.name), shown=target.name)
        return file.tell()


def check_copy(path: Path, shown: str = "") -> None:
    """Raises StartupError unless the server's check accepts the file ``path``."""
    shown = shown or path.name
    with path.open("rb") as file:
        if not _MAGIC.match(file.read(9)):
            raise StartupError(f"{shown} is not a backup of a store")
    # Run under this name, the server binary checks the file.
    command = ["valkey-check-rdb", str(path)]
    done = subprocess.run(command, executable=server_binary(), capture_output=True, check=False)  # noqa: S603  # ours
    if done.returncode:
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        reason = next((line for line in reversed(lines) if "rror" in line and "return" not in line), "")
        raise StartupError(f"{shown} is damaged: {re.sub(r'^[^]]*] ', '', reason) or 'its check failed'}")


async def restore_store(source: Path, directory: Path, prepare: Prepare, *, replace: bool) -> Path | None:
    """Restores the backup ``source`` into ``directory``; returns the new location of previous data. The backup is
    loaded in a staging folder first, and changed by ``prepare``. Raises StartupError if a tracker uses the directory,
    if it holds data (unless ``replace``), or if the server cannot load the backup. Then the directory is unchanged."""
    await asyncio.to_thread(check_copy, source)
    data = DataDirectory(directory, log)
    await data.claim()
    try:
        server_lock = await data.lock_for_server()
        try:
            if (data.path / FILES).exists() and not replace:
                raise StartupError(f"{data.path} already holds a store: use --replace to move it aside")
            await _prepare(source, data.path / STAGING, prepare)
            return await asyncio.to_thread(_place, data.path)
        finally:
            shutil.rmtree(data.path / STAGING, ignore_errors=True)
            os.close(server_lock)
    finally:
        data.release()


async def _prepare(source: Path, staging: Path, prepare: Prepare) -> None:
    """Loads the backup in a staging folder and changes it there."""
    await asyncio.to_thread(_make_ready, source, staging)
    async with EmbeddedValkey(staging, log) as server:
        connection = Connection(connect(server.url, connect_timeout=5, timeout=10))
        try:
            await prepare(connection)
        finally:
            await connection.close()


def _place(directory: Path) -> Path | None:
    """Leaves the old or the new data if interrupted; after the first of the last two renames, the next start completes
    it."""
    files, new = directory / FILES, directory / NEW_FILES
    shutil.rmtree(new, ignore_errors=True)
    (directory / STAGING / FILES).rename(new)
    before = None
    if files.exists():
        before = directory / f"{FILES}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        files.rename(before)
    new.rename(files)
    sync_directory(directory)
    return before


def _make_ready(source: Path, staging: Path) -> None:
    shutil.rmtree(staging, ignore_errors=True)
    new = staging / FILES
    for folder in (staging, new):
        folder.mkdir(mode=0o700)
    with private_file(new / _BASE) as base, source.open("rb") as copy:
        shutil.copyfileobj(copy, base, 1 << 20)
    with private_file(new / MANIFEST) as manifest:
        manifest.write(f"file {_BASE} seq 1 type b\n".encode())
