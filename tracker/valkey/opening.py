"""The server behind the store: the operator's own, or a private one in the data directory that is started when nobody
else runs it.

Knows nothing of what is in the store: so a tracker that starts has its server loading before the rest is imported.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from tracker.errors import StartupError
from tracker.settings import Settings
from tracker.valkey import EmbeddedValkey

TURN_SECONDS = 15.0
"""How long a start may wait for commands that use the private store just now, and they for it."""

log = structlog.get_logger("tracker")


@dataclass(frozen=True, slots=True)
class StoreServer:
    """What a tracker serves from."""

    url: str
    data: str
    """Where the data lies, for people."""
    private: EmbeddedValkey | None


@asynccontextmanager
async def open_server(settings: Settings, meanwhile: Callable[[], object]) -> AsyncIterator[StoreServer]:
    """For a tracker that serves. ``meanwhile`` is called once, while a private server loads its data."""
    if settings.redis.url is not None:
        meanwhile()
        yield StoreServer(settings.redis.url.get_secret_value(), "in that server", None)
        return
    directory = settings.data.directory
    server = EmbeddedValkey(directory, log)
    async with _turn(directory):
        await server.start(meanwhile)
    async with server:
        yield StoreServer(server.url, str(directory.absolute()), server)


@asynccontextmanager
async def command_server(settings: Settings) -> AsyncIterator[str]:
    """The URL, for the length of one command: of the server a running tracker uses, or one started for the moment."""
    if settings.redis.url is not None:
        yield settings.redis.url.get_secret_value()
        return
    server = EmbeddedValkey(settings.data.directory, log)
    async with _turn(settings.data.directory):
        # Nobody else is in the middle of a command: what runs now is a tracker's, and stays.
        if not await server.is_running():
            async with server:
                yield server.url
            return
    yield server.url


@asynccontextmanager
async def _turn(directory: Path) -> AsyncIterator[None]:
    """The right to start the private store: for a tracker's start, or for the length of a command.

    So commands wait for each other instead of being refused, and none uses a store that another is
    about to stop. The lock is the kernel's, on the directory itself; a file system that knows no such
    lock (NFS) goes without.
    """
    handle = _open_directory(directory)
    try:
        deadline = time.monotonic() + TURN_SECONDS
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise StartupError(
                    f"data directory {directory} is in use by another command: try again later"
                )
            await asyncio.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _open_directory(directory: Path) -> int:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise StartupError(f"cannot use data directory {directory}: {error.strerror or error}") from error


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
