"""A real MariaDB and a real PostgreSQL, one of each in a process; each test has a database of its own."""

from collections.abc import AsyncIterator, Iterator

import pytest

from loadtest.databases import MARIADB, POSTGRES, Database, PostgreSQL, Site, site_on
from loadtest.site_tables import OWN_POSTGRESQL, UNIT3D
from tests.conftest import temporary_directory
from tests.store.harness import Store, running
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

RULES = SwarmRules(accounts="required", peer_memory=3600, max_changes=100_000, note_updates=True)


@pytest.fixture(scope="session")
def mariadb(databases: list[Database]) -> Iterator[Database]:
    if MARIADB is None:
        pytest.skip("no mariadbd on this system")
    with temporary_directory() as directory:
        databases.append(server := Database(directory).start())
        yield server
        server.kill()


@pytest.fixture(scope="session")
def postgresql(databases: list[Database]) -> Iterator[Database]:
    if POSTGRES is None:
        pytest.skip("no PostgreSQL server on this system")
    with temporary_directory() as directory:
        databases.append(server := PostgreSQL(directory).start())
        yield server
        server.stop()


@pytest.fixture
def unit3d(mariadb: Database) -> Iterator[Site]:
    with site_on(mariadb, UNIT3D) as site:
        yield site


@pytest.fixture
def own(postgresql: Database) -> Iterator[Site]:
    with site_on(postgresql, OWN_POSTGRESQL) as site:
        yield site


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(redis_url, Keys(prefix), RULES)) as store:
        yield store
