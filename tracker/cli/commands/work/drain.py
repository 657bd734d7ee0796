"""``tracker work drain``: finished claims as files.

A line is on the disk before its entry is acknowledged. So a command that is killed loses no line; the next one repeats
some, which their ids show.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import IO, Annotated

from typer import Argument

from tracker.cli.commands import with_store
from tracker.cli.commands.work.group import Project, commands
from tracker.cli.progress import progress
from tracker.cli.terminal import say
from tracker.errors import ClientError
from tracker.store.store import Store
from tracker.store.work.log import FinishedClaim, finished_claim
from tracker.system.private_file import open_private, sync_directory

BATCH = 500


@commands.command("drain")
def drain_log(
    project: Project,
    directory: Annotated[Path, Argument(metavar="DIR", help="Directory for PROJECT-DATE.jsonl; created if missing.")],
) -> None:
    """Append new finished claims to files, one JSON object a line. After that the store may delete them.

    There is one file per UTC day, by the end of the claims. Each claim is written at least once: after a crash a line
    may be repeated, or incomplete and then repeated. A claim's `id` is unique.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def work(store: Store) -> None:
        written = 0
        with locked(directory), progress("written") as shown:
            await store.work.log.open_drain(project)
            while entries := await store.work.log.read_drain(project, BATCH):
                write(directory, project, [finished_claim(entry) for entry in entries if entry.fields])
                await store.work.log.acknowledge(project, entries)
                written += len(entries)
                shown.advance(len(entries))
        say(f"written {written}")

    with_store(work)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Two commands at once would read the same entries. Raises ClientError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ClientError("another command writes to this directory") from error
    finally:
        os.close(descriptor)


def write(directory: Path, project: str, entries: Sequence[FinishedClaim]) -> None:
    """Appends the entries to the files of their days, and waits until they are on the disk. Raises OSError."""
    for day, rows in groupby(entries, _day):
        with open(str(directory / f"{project}-{day}.jsonl"), "ab+", opener=open_private) as file:
            _end_last_line(file)
            for entry in rows:
                file.write(json.dumps({"project": project, **asdict(entry)}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    sync_directory(directory)


def _day(entry: FinishedClaim) -> str:
    """The UTC day of the entry's id, which the server's clock gave: ids do not run backwards."""
    return time.strftime("%Y-%m-%d", time.gmtime(int(entry.id.partition("-")[0]) / 1000))


def _end_last_line(file: IO[bytes]) -> None:
    """A line that was cut off by a crash must not swallow the next one."""
    if file.seek(0, os.SEEK_END):
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
