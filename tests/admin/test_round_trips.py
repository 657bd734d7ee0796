"""Round trips to the store: how often the server reads from a socket for one request."""

from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from loadtest.servers import Server
from tests.admin.api.api_client import program, swarms_of
from tests.admin.conftest import Admin
from tests.store.harness import ALICE, update

MAX_ROUND_TRIPS = {"PATCH /api/v1/users/7": 7, "GET /users/7": 5, "GET /torrents": 3}


@pytest.fixture
async def user(admin: Admin, redis_url: str) -> None:
    """A user with a peer, and more torrents in the list than on a page."""
    await admin.store.users.add("7", ALICE, name="alice")
    async with swarms_of(admin, redis_url, accounts="optional") as swarms:
        for torrent in range(1, 61):
            await swarms.announce(update(torrent, "s", torrent, passkey=ALICE if torrent == 1 else ""))
            if torrent == 1:
                await swarms.announce(update(1, "c", passkey=ALICE, bytes_left=0))


async def reads(server: Server, request: Callable[[], Awaitable[object]]) -> int:
    with server.client() as client:
        before = int(client.info("stats")["total_reads_processed"])
        await request()
        return int(client.info("stats")["total_reads_processed"]) - before - 1  # 1: INFO


@pytest.mark.usefixtures("user")
async def test_a_request_takes_few_round_trips(admin: Admin, any_server: Server) -> None:
    """Counted the second time, when the scripts are loaded."""

    async def shown(browser: aiohttp.ClientSession, path: str) -> None:
        async with browser.get(path) as response:
            assert response.status == 200, await response.text()

    taken: dict[str, int] = {}
    async with program(admin) as api, admin.browser() as browser:
        requests: dict[str, Callable[[], Awaitable[object]]] = {
            "PATCH /api/v1/users/7": lambda: api.ask("PATCH", "/users/7", json={"name": "bob"}),
            "GET /users/7": lambda: shown(browser, "/users/7"),
            "GET /torrents": lambda: shown(browser, "/torrents"),
        }
        for name, request in requests.items():
            await request()
            taken[name] = await reads(any_server, request)
    assert all(taken[name] <= most for name, most in MAX_ROUND_TRIPS.items()), taken
