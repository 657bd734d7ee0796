"""Round trips to the store that one request of an admin takes.

A relay stands for a network between both. It forwards the commands of a turn together when the tracker has no more to
send, and their replies together when all have arrived, so the speed of the machine does not matter.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import hiredis
import pytest

from loadtest.servers import Server
from tests.admin.api.api_client import program, swarms_of
from tests.admin.conftest import Admin
from tests.store.harness import ALICE, update

MAX_ROUND_TRIPS = {"PATCH /api/v1/users/7": 7, "GET /users/7": 5, "GET /torrents": 3}
TURNS = 30
"""Turns of the event loop without another command after which the tracker waits for replies."""


class Relay:
    """``round_trips`` counts those of all connections."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.round_trips = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replies, to_server = await asyncio.open_unix_connection(str(self._server.socket_path))
        commands = Counted(reader)
        try:
            while await commands.until_idle():
                self.round_trips += 1
                data, number = commands.take()
                to_server.write(data)
                writer.write(await Counted(replies).read(number))
        finally:
            to_server.close()
            writer.close()


class Counted:
    """Reads whole commands or replies of RESP2, and counts them."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream, self._parser = stream, hiredis.Reader(notEnoughData=self)
        self._data, self._number = bytearray(), 0

    async def _read_more(self) -> bool:
        data = await self._stream.read(1 << 20)
        self._data += data
        self._parser.feed(data)
        while self._parser.gets() is not self:
            self._number += 1
        return bool(data)

    async def read(self, number: int) -> bytes:
        while self._number < number and await self._read_more():
            pass
        return bytes(self._data)

    async def until_idle(self) -> bool:
        """False when the peer has closed the connection."""
        waiting = True
        while waiting or not self._number:
            if not await self._read_more():
                return False
            for _ in range(TURNS):
                await asyncio.sleep(0)
            waiting = bool(self._stream._buffer)  # type: ignore[attr-defined]  # what arrived meanwhile
        return True

    def take(self) -> tuple[bytes, int]:
        taken = bytes(self._data), self._number
        self._data, self._number = bytearray(), 0
        return taken


@pytest.fixture
async def relay(valkey: Server) -> Relay:
    return Relay(valkey)


@pytest.fixture
async def redis_url(relay: Relay, short_directory: Path) -> AsyncIterator[str]:
    path = short_directory / "relay"
    async with await asyncio.start_unix_server(relay.serve, path):
        yield f"unix://{path}?db=0"


@pytest.fixture
async def user(admin: Admin, valkey: Server) -> None:
    """A user with a peer, and more torrents in the list than on a page."""
    await admin.store.users.add("7", ALICE, name="alice")
    async with swarms_of(admin, valkey.url, accounts="optional") as swarms:
        for torrent in range(1, 61):
            await swarms.announce(update(torrent, "s", torrent, passkey=ALICE if torrent == 1 else ""))
            if torrent == 1:
                await swarms.announce(update(1, "c", passkey=ALICE, bytes_left=0))


@pytest.mark.usefixtures("user")
async def test_a_request_takes_few_round_trips(admin: Admin, relay: Relay) -> None:
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
            before = relay.round_trips
            await request()
            taken[name] = relay.round_trips - before
    assert all(taken[name] <= most for name, most in MAX_ROUND_TRIPS.items()), taken
