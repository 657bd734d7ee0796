"""The store, opened: for a tracker that serves, or for the length of one command.

It is the operator's own server, or a private one in the data directory that is started when nobody else runs it.
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
from tracker.settings import JobSettings, RedisSettings, Settings
from tracker.settings_page import mask_url
from tracker.store.clients import Clients
from tracker.store.connection import Connection, Heard, check_server, connect
from tracker.store.counters import Counters
from tracker.store.job import JobLimits
from tracker.store.jobs import Jobs
from tracker.store.keys import Keys
from tracker.store.maintenance import Maintenance
from tracker.store.scores import Scores
from tracker.store.scripts import Scripts
from tracker.store.software import Software
from tracker.store.tokens import Tokens
from tracker.store.torrents import Torrents
from tracker.store.uniques import Uniques
from tracker.store.users import Users
from tracker.valkey import EmbeddedValkey

TURN_SECONDS = 15.0
"""How long a start may wait for commands that use the private store just now, and they for it."""
_COMMAND_TIMEOUT_SECONDS = 10.0

log = structlog.get_logger("tracker")


@dataclass(frozen=True, slots=True)
class Stores:
    """The store as the command line uses it."""

    connection: Connection
    keys: Keys
    torrents: Torrents
    users: Users
    clients: Clients
    counters: Counters
    jobs: Jobs
    uniques: Uniques
    scores: Scores
    tokens: Tokens
    software: Software
    maintenance: Maintenance


def job_limits(jobs: JobSettings) -> JobLimits:
    return JobLimits(max_retries=jobs.max_retries, keep_seconds=jobs.keep_seconds)


@asynccontextmanager
async def open_server(settings: Settings) -> AsyncIterator[tuple[str, str, EmbeddedValkey | None]]:
    """(URL, where the data lies, the private server if there is one)."""
    if settings.redis.url is not None:
        yield settings.redis.url.get_secret_value(), "in that server", None
        return
    directory = settings.data.directory
    server = EmbeddedValkey(directory, log)
    async with _turn(directory):
        await server.start()
    async with server:
        yield server.url, str(directory.absolute()), server


@asynccontextmanager
async def open_connection(
    url: str, redis: RedisSettings, timeout: float, heard: Heard | None = None
) -> AsyncIterator[tuple[Connection, str]]:
    """(the line to the store, its name and version); raises StartupError when it is no use. ``heard`` as in Connection."""
    ca_file = str(redis.tls_ca_file) if redis.tls_ca_file else None
    client = connect(url, connect_timeout=redis.connect_timeout_seconds, tls_ca_file=ca_file)
    connection = Connection(client, timeout=timeout, heard=heard)
    try:
        version = await check_server(client, mask_url(url))
        yield connection, version
    finally:
        await connection.close()


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[Stores]:
    """The store for one command: the one a running tracker uses, or the private one started for the moment."""
    async with _command_server(settings) as url:
        async with open_connection(url, settings.redis, _COMMAND_TIMEOUT_SECONDS) as (connection, _):
            keys = Keys(settings.redis.prefix)
            scripts = Scripts(connection, keys.prefix)
            yield stores_on(
                connection, scripts, keys, settings, Counters(connection, scripts, keys, time.time)
            )


def stores_on(
    connection: Connection,
    scripts: Scripts,
    keys: Keys,
    settings: Settings,
    counters: Counters,
    clock: Callable[[], float] = time.time,
) -> Stores:
    """Everything of one store, over one line to it; ``counters`` are those of whoever asks."""
    users, uniques = Users(connection, keys), Uniques(connection, scripts, keys)
    return Stores(
        connection,
        keys,
        Torrents(connection, scripts, keys, clock),
        users,
        Clients(connection, keys),
        counters,
        Jobs(connection, scripts, keys, clock, job_limits(settings.jobs)),
        uniques=uniques,
        scores=Scores(
            connection,
            scripts,
            keys,
            clock,
            interval_seconds=settings.scoring.interval_seconds,
            history=settings.scoring.history,
        ),
        tokens=Tokens(connection, scripts, keys, clock),
        software=Software(connection, scripts, keys),
        maintenance=Maintenance(
            connection,
            scripts,
            keys,
            clock,
            reindex_hit_and_runs=users.reindex_hit_and_runs,
            flush_uniques=uniques.flush,
        ),
    )


@asynccontextmanager
async def _command_server(settings: Settings) -> AsyncIterator[str]:
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
