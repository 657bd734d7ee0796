"""Stores under test, on the wheel's server and the system's: `store` in public mode, `make_store` for any rules."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from loadtest.servers import Server
from tests.store.harness import ALICE, BOB, Store, running
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules


@pytest.fixture(params=["valkey", "debian_redis"])
def any_server(request: pytest.FixtureRequest) -> Server:
    """The test runs on the server of the wheel and on the system's redis-server."""
    server = request.getfixturevalue(request.param)
    assert isinstance(server, Server)
    return server


MakeStore = Callable[..., Awaitable[Store]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test file that has NUMBERS_OF_SHARDS runs with each of them."""
    numbers = getattr(metafunc.module, "NUMBERS_OF_SHARDS", ())
    if numbers and "shards" in metafunc.fixturenames:
        metafunc.parametrize("shards", numbers, ids=[f"shards-{number}" for number in numbers])


@pytest.fixture
def shards() -> int:
    return 1


@pytest.fixture
async def make_store(any_server: Server, prefix: str, shards: int) -> AsyncIterator[MakeStore]:
    async with AsyncExitStack() as stack:

        async def make(**rules: Any) -> Store:
            return await stack.enter_async_context(
                running(Store(any_server.url, Keys(prefix), SwarmRules(**rules), shards=shards))
            )

        yield make


@pytest.fixture
async def store(make_store: MakeStore) -> Store:
    """Public mode, open: the defaults."""
    return await make_store()


@pytest.fixture
async def private(make_store: MakeStore) -> Store:
    """Private mode with users 7 and 8, whose passkeys are ALICE and BOB of tests.store.harness."""
    store = await make_store(accounts="required", peer_memory=3600, hnr_min_bytes=100, hnr_threshold=1000, max_gap=7200)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    return store
