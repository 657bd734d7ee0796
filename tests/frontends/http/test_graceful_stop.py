"""A graceful stop loses no request, so that a rolling restart loses none (docs/operations.md)."""

import asyncio
import contextlib
import gc
import socket
from typing import Any

import pytest

from tests.frontends.http.harness import ANNOUNCE, RecordingTracker, on_loops, serving
from tests.raw_http import PATIENCE, connect, request

LONG_SECONDS = 600.0


@contextlib.asynccontextmanager
async def stoppable(tracker: RecordingTracker, **http: Any) -> Any:
    """Yields the address of a front end, and a function that begins to stop it."""
    async with contextlib.AsyncExitStack() as stack:
        address = await stack.enter_async_context(serving(tracker, stop_delay_seconds=LONG_SECONDS, **http))
        stopping: list[asyncio.Task[None]] = []
        inner = stack.pop_all()

        async def stop() -> None:
            stopping.append(asyncio.get_running_loop().create_task(inner.aclose()))
            await asyncio.sleep(0)

        yield address, stop
        for task in stopping:
            task.cancel()
        await asyncio.gather(*stopping, return_exceptions=True)


@on_loops()
async def test_a_stopping_server_answers_and_closes_each_connection() -> None:
    """Open and new connections; plain announces and requests for aiohttp."""
    async with stoppable(RecordingTracker()) as (address, stop), connect(address) as idle, connect(address) as other:
        assert "connection" not in (await idle.get(ANNOUNCE)).headers
        await other.get("/")
        await stop()
        for client, target in ((idle, ANNOUNCE), (other, "/")):
            assert (await client.get(target)).headers["connection"] == "close"
            assert await client.is_closed()
        for target in (ANNOUNCE, "/"):
            async with connect(address) as new:
                assert (await new.get(target)).headers["connection"] == "close"
                assert await new.is_closed()


@on_loops()
async def test_pipelined_requests_are_all_answered_during_a_stop() -> None:
    tracker = RecordingTracker()
    async with stoppable(tracker) as (address, stop), connect(address) as client:
        await stop()
        client.send(request(ANNOUNCE) * 3)
        for _ in range(3):
            assert b"peers" in (await client.receive()).reply
        assert await client.is_closed()


@on_loops()
@pytest.mark.parametrize("late", [False, True])
async def test_connections_in_the_accept_queue_are_answered_during_a_stop(late: bool) -> None:
    """Also a connection that was not accepted when the stop began, or whose request arrives later."""
    async with contextlib.AsyncExitStack() as stack:
        gc.disable()  # a collection of all tests' objects takes longer than a stop waits for first requests
        stack.callback(gc.enable)
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
