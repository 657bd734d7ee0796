"""Opens the server of the store: an external one, or the private one, which is started unless it is running. This
module knows nothing of the store's contents, so a tracker can start its server before it imports the rest."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tracker.errors import StartupError
from tracker.settings.model import Settings
from tracker.system.logger import Logger
from tracker.valkey.data_directory import try_lock, usable
from tracker.valkey.server import EmbeddedValkey

LOCK_SECONDS = 15.0
"""How long a start may wait for commands that use the private store, and a command for others."""

log = Logger("tracker")


@dataclass(frozen=True, slots=True)
class StoreServer:
    url: str
    data: str
    """The location of the data, as text for operators."""
    private: EmbeddedValkey | None


@asynccontextmanager
async def open_server(settings: Settings, meanwhile: Callable[[], object]) -> AsyncIterator[StoreServer]:
    """Opens the store for `tracker serve`. ``meanwhile`` is called once, while a private server loads its data."""
    if settings.redis.url is not None:
        meanwhile()
        yield StoreServer(settings.redis.url.get_secret_value(), "in that server", None)
        return
    directory = settings.data.directory
    server = EmbeddedValkey(directory, log, max_memory_mb=settings.data.max_memory_mb)
    async with _start_lock(directory):
        await server.start(meanwhile)
    async with server:
        yield StoreServer(server.url, str(directory.absolute()), server)


@asynccontextmanager
async def command_server(settings: Settings) -> AsyncIterator[str]:
    """The URL of the running tracker's server, or of a private server that runs for the duration of a command."""
    if settings.redis.url is not None:
        yield settings.redis.url.get_secret_value()
        return
    server = EmbeddedValkey(settings.data.directory, log, max_memory_mb=settings.data.max_memory_mb)
    async with _start_lock(settings.data.directory):
        # No other command holds the lock, so a running server belongs to a tracker and stays.
        if not await server.is_running():
            async with server:
                yield server.url
            return
    yield server.url


@asynccontextmanager
async def _start_lock(directory: Path) -> AsyncIterator[None]:
    """The lock for starting the private store, held during a tracker's start or a command. Commands wait for each other
    instead of failing, and none uses a server that another is about to stop. The lock is the kernel's, on the directory
    itself. On a file system without such locks (NFS) there is none."""
    handle = _open_directory(directory)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        with suppress(OSError):  # there are no locks
            while not try_lock(handle):
                if time.monotonic() > deadline:
                    raise StartupError(f"data directory {directory} is in use by another command: try again later")
                await asyncio.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _open_directory(directory: Path) -> int:
    with usable(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
