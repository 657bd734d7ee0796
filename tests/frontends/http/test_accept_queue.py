"""Load shedding closes waiting connections; a graceful stop accepts them."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from functools import partial

import pytest

from tests.frontends.http import harness
from tests.frontends.http.conftest import Logs
from tests.frontends.http.harness import ANNOUNCE, RecordingTracker, on_loops
from tests.raw_http import PATIENCE, connect, request
from tracker.frontends.http import accept_queue
from tracker.refusals import SHED, Busy
from tracker.system.listeners import Listener, open_listeners

CONNECTIONS, BACKLOG = 40, 40
MAX_LENGTH, SHED_LENGTH = int(accept_queue.MAX_FILL * BACKLOG), int(accept_queue.SHED_FILL * BACKLOG)


EAGER = {"frontends.http.accept_queue.CHECK_SECONDS": 0, "frontends.http.accept_queue.PAUSE_FACTOR": 0}
serving = partial(harness.serving, constants=EAGER, backlog=BACKLOG)


def _open_connections(address: str, number: int = CONNECTIONS) -> list[socket.socket]:
    """Connections that all wait in the queue: this function does not yield to the tracker's loop."""
    host, port = address.rsplit(":", 1)
    opened = [socket.create_connection((host, int(port))) for _ in range(number)]
    for sock in opened:
        sock.sendall(request(ANNOUNCE))
    return opened


async def _first_bytes(sock: socket.socket) -> bytes:
    """The first bytes of the answer; empty when the connection was closed."""
    sock.setblocking(False)
    async with asyncio.timeout(PATIENCE):
        try:
            return await asyncio.get_running_loop().sock_recv(sock, 15)
        except ConnectionError:
            return b""
        finally:
            sock.close()


@on_loops("uvloop")  # asyncio accepts all waiting connections in one turn, so its queue is never long
async def test_a_long_accept_queue_is_shed_and_the_rest_is_served(logs: Logs) -> None:
    tracker = RecordingTracker()
    async with serving(tracker) as address:
        for _ in range(2):  # the log has one line for both
            received = [await _first_bytes(sock) for sock in _open_connections(address)]
            assert received.count(b"HTTP/1.1 200 OK") + received.count(b"") == CONNECTIONS
            assert SHED_LENGTH <= received.count(b"HTTP/1.1 200 OK") <= MAX_LENGTH
        assert tracker.labels == [SHED] * (2 * CONNECTIONS - len(tracker.announces))
        assert all(await asyncio.gather(*[_first_bytes(sock) for sock in _open_connections(address, MAX_LENGTH)]))
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "overload: closing waiting connections"
    ]


@on_loops("uvloop")
async def test_shedding_pauses_so_that_accepted_connections_are_served() -> None:
    """For a while after shedding no connection is closed, and the accepted ones are served."""
    tracker = RecordingTracker()
    patient = {**EAGER, "frontends.http.accept_queue.PAUSE_FACTOR": 1_000_000}
    async with serving(tracker, constants=patient) as address:
        first = [await _first_bytes(sock) for sock in _open_connections(address)]
        assert first.count(b"")
        assert all([await _first_bytes(sock) for sock in _open_connections(address)])


def _ignoring(received: bytes) -> asyncio.Protocol:
    return asyncio.Protocol()


@on_loops("uvloop")
async def test_several_processes_shed_no_more_than_one_would() -> None:
    shed, others = list[int](), list[socket.socket]()

    def accept_one_elsewhere(end: object) -> bool:
        with contextlib.suppress(BlockingIOError):
            others.append(listener.socket.accept()[0])
        return False

    (listener,) = await open_listeners(["127.0.0.1:0"], BACKLOG)
    queue = accept_queue.AcceptQueue([listener], _ignoring, shed.append, accept_one_elsewhere)
    await queue.open()
    opened = _open_connections(listener.address)
    queue.on_accept()
    length, _ = listener.queue
    for sock in opened + others:
        sock.close()
    await queue.shut()
    assert SHED_LENGTH - 1 <= length <= SHED_LENGTH and sum(shed) + len(others) == CONNECTIONS - length


@on_loops("uvloop")
async def test_connections_of_a_trusted_proxy_are_never_shed(logs: Logs) -> None:
    """It would treat a closed connection as a server that is down."""
    tracker = RecordingTracker()
    async with serving(tracker, trusted_proxies=["127.0.0.1/32"]) as address:
        assert [await _first_bytes(sock) for sock in _open_connections(address)] == [b"HTTP/1.1 200 OK"] * CONNECTIONS
    assert SHED not in tracker.labels
    assert not [line for line in logs if line["log_level"] == "warning"]


@on_loops()
async def test_a_busy_answer_closes_the_connection_except_for_a_proxy() -> None:
    tracker = RecordingTracker()
    tracker.error = Busy()
    async with serving(tracker) as address, connect(address) as client:
        response = await client.get(ANNOUNCE)
        assert (response.failure, response.headers["connection"]) == (tracker.error.text, "close")
        assert response.reply[b"retry in"] == tracker.error.retry_in
        assert await client.is_closed()
    async with serving(tracker, trusted_proxies=["127.0.0.1/32"]) as address, connect(address) as proxy:
        for _ in range(2):
            assert (await proxy.get(ANNOUNCE, "X-Forwarded-For: 11.0.0.1")).failure == tracker.error.text


@on_loops()
async def test_a_stop_under_load_is_graceful() -> None:
    tracker = RecordingTracker()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tracker) as address:
            client = await stack.enter_async_context(connect(address))
            await client.get(ANNOUNCE)
            opened = _open_connections(address, MAX_LENGTH)
        assert [await _first_bytes(sock) for sock in opened] == [b"HTTP/1.1 200 OK"] * MAX_LENGTH
        assert await client.is_closed()


@on_loops()
async def test_a_cancelled_start_closes_its_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, stuck = Listener.accept, asyncio.Event()
    servers: list[asyncio.Server] = []

    async def second_waits(self: Listener, server: Callable[[], asyncio.Protocol]) -> asyncio.Server:
        if servers:
            stuck.set()
            await asyncio.Event().wait()
        servers.append(await accept(self, server))
        return servers[0]

    monkeypatch.setattr(Listener, "accept", second_waits)
    listeners_opened = await open_listeners(["127.0.0.1:0", "127.0.0.1:0"])
    queue = accept_queue.AcceptQueue(listeners_opened, _ignoring, lambda number: None, lambda end: False)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(queue.open())
        await stuck.wait()
        task.cancel()
    assert task.cancelled() and not servers[0].is_serving()
    for listener in listeners_opened:
        listener.close()
