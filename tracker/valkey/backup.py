"""Copies of the private store, taken beside a running tracker, and put back into a data directory.

A copy is a snapshot of everything at one moment, which the server itself writes (BGSAVE: it forks, and goes on
answering). It is put back as the base of the append-only files, for the server ignores a snapshot that lies beside them.
"""

import asyncio
import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from redis.exceptions import ResponseError

from tracker.data_directory import FILES, MANIFEST, NEW_FILES, DataDirectory
from tracker.errors import StartupError
from tracker.private_file import private_file, sync_directory
from tracker.store.connection import Connection, connect
from tracker.valkey import EmbeddedValkey, server_binary

_BASE = "appendonly.aof.1.base.rdb"
_MAGIC = re.compile(rb"REDIS[0-9]{4}|VALKEY[0-9]{3}")
_POLL_SECONDS = 0.05
_FAILED_POLLS = 20
"""A save that was asked for and is neither under way nor done for so many looks has failed."""

log = structlog.get_logger("tracker.backup")


class BackupError(StartupError):
    """The text is the one line the operator reads."""


async def copy_store(connection: Connection, directory: Path, target: Path) -> int:
    """Writes a checked copy of the private store in ``directory`` to ``target``; its size in bytes.

    Raises BackupError, OSError, and what the store raises; then there is no new ``target``.
    """
    with _alone(directory):
        snapshot = directory / await _snapshot_name(connection)
        _check_target(target, snapshot)
        try:
            await _save(connection)
            return await asyncio.to_thread(_copy_checked, snapshot, target)
        finally:
            snapshot.unlink(missing_ok=True)


def _check_target(target: Path, snapshot: Path) -> None:
    """The snapshot is removed in the end."""
    if target.resolve() == snapshot.resolve():
        raise BackupError(f"{target} is where the store itself writes: choose another name")


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One copy at a time: the snapshot has one name."""
    lock = os.open(directory / "backup.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise BackupError("another backup of this store is under way") from None
    finally:
        os.close(lock)


async def _save(connection: Connection) -> None:
    before = int((await _persistence(connection))["rdb_saves"])
    while True:
        try:
            await connection.command(
                "BGSAVE", "SCHEDULE"
            )  # behind a rewrite of the append-only file, if one runs
            break
        except ResponseError as error:
            if "in progress" not in str(error):
                raise
        await asyncio.sleep(_POLL_SECONDS)
    idle = 0
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        state = await _persistence(connection)
        if int(state["rdb_bgsave_in_progress"]):  # it is among the saves from its beginning
            continue
        if int(state["rdb_saves"]) > before and state["rdb_last_bgsave_status"] == "ok":
            return
        idle = 0 if int(state["aof_rewrite_in_progress"]) else idle + 1
        if idle > _FAILED_POLLS:
            raise BackupError(
                "the store could not write its snapshot: see its log, and the space on the disk"
            )


async def _persistence(connection: Connection) -> dict[str, Any]:
    return dict(await connection.command("INFO", "persistence"))


async def _snapshot_name(connection: Connection) -> str:
    answer = await connection.command("CONFIG", "GET", "dbfilename")
    name = next(iter(answer.values())) if isinstance(answer, dict) else answer[1]
    return Path(name.decode() if isinstance(name, bytes) else name).name


def _copy_checked(source: Path, target: Path) -> int:
    with private_file(target) as file, source.open("rb") as snapshot:
        shutil.copyfileobj(snapshot, file, 1 << 20)
        file.flush()
        check_copy(Path(file.name), shown=target.name)
        return file.tell()


def check_copy(path: Path, shown: str = "") -> None:
    """Raises BackupError unless the server's own check finds ``path`` whole, and of a version it can read."""
    shown = shown or path.name
    with path.open("rb") as file:
        if not _MAGIC.match(file.read(9)):
            raise BackupError(f"{shown} is no copy of a store")
    # The server is its own checker, when called by that name.
    command = ["valkey-check-rdb", str(path)]
    done = subprocess.run(command, executable=server_binary(), capture_output=True, check=False)  # noqa: S603  # ours
    if done.returncode:
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        reason = next((line for line in reversed(lines) if "rror" in line and "return" not in line), "")
        raise BackupError(f"{shown} is damaged: {re.sub(r'^[^]]*] ', '', reason) or 'its check failed'}")


async def restore_store(source: Path, directory: Path, *, replace: bool) -> tuple[int, Path | None]:
    """Makes ``directory`` hold the copy ``source``: (how many keys, where what was there before lies now).

    Raises StartupError while a tracker uses the directory, where it holds data already (unless ``replace``), and for a
    copy that the server cannot load; then the directory is as it was.
    """
    await asyncio.to_thread(check_copy, source)
    data = DataDirectory(directory, log)
    await data.claim()
    try:
        server_lock = await data.lock_for_server()
        try:
            before = await asyncio.to_thread(_place, source, data.path, replace=replace)
        finally:
            os.close(server_lock)
    finally:
        data.release()
    try:
        return await _count_keys(directory), before
    except BaseException:
        _put_back(data.path, before)
        raise


def _place(source: Path, directory: Path, *, replace: bool) -> Path | None:
    """An end at any moment leaves the old data or the new: between the two renames the next start does the second."""
    files = directory / FILES
    if files.exists() and not replace:
        raise BackupError(f"{directory} holds a store already: give --replace to put it aside")
    new = directory / NEW_FILES
    try:
        _make_ready(source, new)
        before = None
        if files.exists():
            before = directory / f"{FILES}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
            files.rename(before)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    new.rename(files)
    sync_directory(directory)
    return before


def _make_ready(source: Path, new: Path) -> None:
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    with private_file(new / _BASE) as base, source.open("rb") as copy:
        shutil.copyfileobj(copy, base, 1 << 20)
    with private_file(new / MANIFEST) as manifest:
        manifest.write(f"file {_BASE} seq 1 type b\n".encode())


def _put_back(directory: Path, before: Path | None) -> None:
    shutil.rmtree(directory / FILES, ignore_errors=True)
    if before is not None:
        before.rename(directory / FILES)


async def _count_keys(directory: Path) -> int:
    async with EmbeddedValkey(directory, log) as server:
        connection = Connection(connect(server.url, connect_timeout=5), timeout=10)
        try:
            return int(await connection.command("DBSIZE"))
        finally:
            await connection.close()
