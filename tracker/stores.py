"""The store, opened: for a tracker that serves, or for the length of one command."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tracker.settings import JobSettings, RedisSettings, Settings
from tracker.settings_page import mask_url
from tracker.store.clients import Clients
from tracker.store.connection import Connection, Heard, connect
from tracker.store.counters import Counters
from tracker.store.job import JobLimits
from tracker.store.jobs import Jobs
from tracker.store.keys import Keys
from tracker.store.maintenance import Maintenance
from tracker.store.scores import Scores
from tracker.store.scripts import Scripts
from tracker.store.server_version import check_server
from tracker.store.software import Software
from tracker.store.tokens import Tokens
from tracker.store.torrents import Torrents
from tracker.store.uniques import Uniques
from tracker.store.users import Users
from tracker.store_server import command_server

_COMMAND_TIMEOUT_SECONDS = 10.0


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
async def open_connection(
    url: str, redis: RedisSettings, timeout: float, heard: Heard | None = None
) -> AsyncIterator[tuple[Connection, str]]:
    """(the line to the store, its name and version); raises StartupError when it is no use. ``heard`` as in Connection."""
    ca_file = str(redis.tls_ca_file) if redis.tls_ca_file else None
    password = redis.sentinel_password
    login = (redis.sentinel_user or None, password.get_secret_value() if password else None)
    client = connect(
        url, connect_timeout=redis.connect_timeout_seconds, tls_ca_file=ca_file, sentinel_login=login
    )
    connection = Connection(client, timeout=timeout, heard=heard)
    try:
        version = await check_server(client, mask_url(url))
        yield connection, version
    finally:
        await connection.close()


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[Stores]:
    """The store for one command: the one a running tracker uses, or the private one started for the moment."""
    async with command_server(settings) as url:
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
