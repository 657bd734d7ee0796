"""How a front end takes its leave, so that a rolling restart loses nothing: docs/operations.md says how to have one."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from tests.frontends.harness import ANNOUNCE, PATIENCE, RecordingTracker, connect, on_loops, request, serving

LONG_SECONDS = 600.0


@contextlib.asynccontextmanager
async def leaving(tracker: RecordingTracker, **http: Any) -> Any:
    """A front end; called, what is given begins to stop it, for as long as the block lasts."""
    async with contextlib.AsyncExitStack() as stack:
        address = await stack.enter_async_context(serving(tracker, stop_delay_seconds=LONG_SECONDS, **http))
        stopping: list[asyncio.Task[None]] = []
        inner = stack.pop_all()

        async def leave() -> None:
            stopping.append(asyncio.get_running_loop().create_task(inner.aclose()))
            await asyncio.sleep(0)

        yield address, leave
        for task in stopping:
            task.cancel()
        await asyncio.gather(*stopping, return_exceptions=True)


@on_loops()
async def test_everybody_is_served_and_asked_to_go() -> None:
    """Who is connected and who comes; on plain announces and on what aiohttp answers."""
    async with (
        leaving(RecordingTracker()) as (address, leave),
        connect(address) as idle,
        connect(address) as other,
    ):
        assert "connection" not in (await idle.get(ANNOUNCE)).headers
        await other.get("/")
        await leave()
        for client, target in ((idle, ANNOUNCE), (other, "/")):
            assert (await client.get(target)).headers["connection"] == "close"
            assert await client.is_closed()
        for target in (ANNOUNCE, "/"):
            async with connect(address) as new:
                assert (await new.get(target)).headers["connection"] == "close"
                assert await new.is_closed()


@on_loops()
async def test_what_was_asked_at_once_is_answered_to_the_last() -> None:
    tracker = RecordingTracker()
    async with leaving(tracker) as (address, leave), connect(address) as client:
        await leave()
        client.send(request(ANNOUNCE) * 3)
        for _ in range(3):
            assert b"peers" in (await client.receive()).reply
        assert await client.is_closed()


@on_loops()
@pytest.mark.parametrize("late", [False, True])
async def test_who_has_connected_is_answered(late: bool) -> None:
    """Also who was not let in yet when the stop began, and whose request is still on its way."""
    async with contextlib.AsyncExitStack() as stack:
        async with serving(RecordingTracker()) as address:
            host, _, port = address.rpartition(":")
            # The loop has no time to accept any of them before the stop.
            waiting = [socket.create_connection((host, int(port))) for _ in range(20)]
            for sock in waiting:
                stack.callback(sock.close)
                sock.setblocking(False)
                if late:
                    asyncio.get_running_loop().call_later(0.05, sock.sendall, request(ANNOUNCE))
                else:
                    sock.sendall(request(ANNOUNCE))
        for sock in waiting:
            async with asyncio.timeout(PATIENCE):
                assert b" 200 OK" in await asyncio.get_running_loop().sock_recv(sock, 65536)
        with pytest.raises(ConnectionRefusedError):
            async with connect(address):
                pass
