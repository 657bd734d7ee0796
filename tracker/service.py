"""The composition root: opens the parts in order, runs their loops, closes in reverse; sockets open last and close first."""

import asyncio
import fcntl
import gc
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from redis.exceptions import RedisError

from tracker.announce import Tracker, swarm_rules
from tracker.errors import StartupError, StoreAway
from tracker.frontends.http import serve_http
from tracker.settings import JobSettings, RedisSettings, Settings
from tracker.settings_page import mask_url
from tracker.store.clients import AllowList, Clients
from tracker.store.connection import Connection, check_server, connect
from tracker.store.counters import Counters
from tracker.store.job import JobLimits
from tracker.store.jobs import Jobs
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts
from tracker.store.swarms import Swarms
from tracker.store.torrents import Torrents
from tracker.store.uniques import Uniques
from tracker.store.users import Users
from tracker.valkey import EmbeddedValkey
from tracker.workers.changes import follow_changes
from tracker.workers.reaper import Reaper

STOP_SECONDS = 10
TURN_SECONDS = 15.0
"""How long a start may wait for commands that use the private store just now, and they for it."""
_COMMAND_TIMEOUT_SECONDS = 10.0
_CANCEL_AGAIN_SECONDS = 0.25

Loop = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger("tracker")


@dataclass(frozen=True, slots=True)
class Banner:
    """What a person wants to know once the tracker serves."""

    addresses: tuple[str, ...]
    store: str
    data: str


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


def job_limits(jobs: JobSettings) -> JobLimits:
    return JobLimits(max_retries=jobs.max_retries, keep_seconds=jobs.keep_seconds)


@asynccontextmanager
async def _server(settings: Settings) -> AsyncIterator[tuple[str, str, EmbeddedValkey | None]]:
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
async def _connection(
    url: str, redis: RedisSettings, timeout: float
) -> AsyncIterator[tuple[Connection, str]]:
    """(the line to the store, its name and version); raises StartupError when it is no use."""
    ca_file = str(redis.tls_ca_file) if redis.tls_ca_file else None
    client = connect(url, connect_timeout=redis.connect_timeout_seconds, tls_ca_file=ca_file)
    connection = Connection(client, timeout=timeout)
    try:
        version = await check_server(client, mask_url(url))
        yield connection, version
    finally:
        await connection.close()


async def serve(settings: Settings, ready: Callable[[Banner], None]) -> None:
    """Serves until SIGTERM or SIGINT; raises StartupError when it cannot start."""
    stop = asyncio.Event()
    _stop_on_signals(stop)
    redis = settings.redis
    async with _server(settings) as (url, data, embedded):
        async with _connection(url, redis, redis.timeout_seconds) as (connection, version):
            parts = await _assemble(settings, connection)
            supervise = [embedded.supervise] if embedded else []
            async with (
                _loops(*parts.loops, *supervise),
                _counters_flushed(parts.counters),
                serve_http(
                    parts.tracker,
                    settings.http,
                    settings.announce,
                    max_scrape=settings.torrents.max_scrape,
                ) as addresses,
            ):
                _spare_the_collector()
                store = f"{version} at {'a private socket' if embedded else mask_url(url)}"
                ready(Banner(addresses, store, data))
                log.info("serving", addresses=addresses, store=version, mode=settings.torrents.mode)
                await stop.wait()
                log.info("stopping")
    log.info("stopped")


def _spare_the_collector() -> None:
    """Nearly all that an announce makes is freed by reference counts; what the start made stays for ever.

    With Python's defaults the cycle collector runs every few announces, and walks through all of that now and then.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@asynccontextmanager
async def _counters_flushed(counters: Counters) -> AsyncIterator[None]:
    """What the last requests counted is written when the sockets are closed."""
    yield
    await counters.flush()


@dataclass(frozen=True, slots=True)
class _Parts:
    tracker: Tracker
    counters: Counters
    loops: tuple[Loop, ...]


async def _assemble(settings: Settings, connection: Connection) -> _Parts:
    keys = Keys(settings.redis.prefix)
    scripts = Scripts(connection, keys.prefix)
    rules = swarm_rules(settings.announce, settings.torrents, settings.users, settings.reaper)
    swarms = Swarms(connection, scripts, keys, rules, time.time, settings.redis.max_waiting)
    counters = Counters(connection, scripts, keys, time.time)
    allow_list = AllowList(Clients(connection, keys), time.monotonic)
    reaper = Reaper(swarms, connection, keys, counters, settings.reaper.interval_seconds, time.time)
    try:
        secret = await swarms.secret()
        await swarms.heartbeat()
    except StoreAway as error:
        raise StartupError(f"the store stopped answering: {error}") from error
    except RedisError as error:
        raise StartupError(f"the store refuses what the tracker needs: {error}") from error
    connection.on_return(reaper.note_return)
    tracker = Tracker(
        swarms,
        counters,
        allow_list,
        lambda info_hash, address: None,
        announce=settings.announce,
        torrents=settings.torrents,
        users=settings.users,
        clients=settings.clients,
        reaper=settings.reaper,
        secret=secret,
        clock=time.time,
    )
    return _Parts(
        tracker,
        counters,
        (
            connection.watch,
            swarms.run,
            counters.run,
            reaper.run,
            lambda: follow_changes(connection, keys, allow_list),
        ),
    )


@asynccontextmanager
async def _loops(*loops: Loop) -> AsyncIterator[None]:
    """Runs coroutines until the block is left.

    One that fails takes everything down: half a tracker is worse than none. An error that is alone comes
    out as itself, not in a group.
    """
    others = asyncio.all_tasks()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {group.create_task(loop()) for loop in loops}
            try:
                yield
            finally:
                await _end(tasks, others)
    except BaseExceptionGroup as errors:
        raise (errors.exceptions[0] if len(errors.exceptions) == 1 else errors) from None


async def _end(tasks: set[asyncio.Task[None]], others: set[asyncio.Task[Any]]) -> None:
    """Cancels ``tasks`` until they end, the second time with all that began after ``others``.

    Once is not enough: redis-py sends through asyncio.wait_for, which before Python 3.12 forgets a
    cancellation that comes at the moment of its success, and a TaskGroup cancels what is in it only once.
    """
    for task in tasks:
        task.cancel()
    while tasks and (await asyncio.wait(tasks, timeout=_CANCEL_AGAIN_SECONDS))[1]:
        for task in asyncio.all_tasks() - others:
            task.cancel()


def _stop_on_signals(stop: asyncio.Event) -> None:
    """The first SIGTERM or SIGINT stops gracefully, for at most STOP_SECONDS; the second at once."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()
        loop.call_later(STOP_SECONDS, lambda: os._exit(1))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[Stores]:
    """The store for one command: the one a running tracker uses, or the private one started for the moment."""
    async with _command_server(settings) as url:
        async with _connection(url, settings.redis, _COMMAND_TIMEOUT_SECONDS) as (connection, _):
            keys = Keys(settings.redis.prefix)
            scripts = Scripts(connection, keys.prefix)
            yield Stores(
                connection,
                keys,
                Torrents(connection, scripts, keys),
                Users(connection, keys),
                Clients(connection, keys),
                Counters(connection, scripts, keys, time.time),
                Jobs(connection, scripts, keys, time.time, job_limits(settings.jobs)),
                uniques=Uniques(connection, scripts, keys),
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
