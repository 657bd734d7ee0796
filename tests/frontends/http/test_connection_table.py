"""Clients are served however many connections stay open, and one address cannot take all of them."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from fuzz.memory_transport import MemoryTransport
from tests.frontends.http.harness import ANNOUNCE, INFO_HASH, RecordingTracker, on_loops, serving, talking
from tests.raw_http import Client, connect, request
from tests.waiting import eventually, loop_turns
from tracker.frontends.http.aiohttp_protocol import Connection, Server
from tracker.frontends.http.connection_table import ConnectionTable
from tracker.frontends.http.fast_protocol import FastHttpProtocol, FastHttpServer
from tracker.frontends.http.handler import HttpHandler
from tracker.refusals import TOO_MANY_CONNECTIONS, TOO_MUCH_HELD, Refusal
from tracker.settings.model import LiveSettings, Settings
from tracker.settings.public import HttpSettings

SCRAPE = "/scrape?" + "&".join("info_hash=" + "".join(f"%{byte:02x}" for byte in INFO_HASH) for _ in range(50))


async def _all_closed(clients: list[Client]) -> bool:
    return all([await client.is_closed() for client in clients])


@on_loops()
async def test_an_address_at_its_limit_loses_its_oldest_idle_connection() -> None:
    tracker = RecordingTracker()
    async with serving(tracker, max_connections_per_address=2) as address, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(address)) for _ in range(2)]
        for client in clients:
            await client.get(ANNOUNCE)
        await clients[1].get("/health")  # handed over to aiohttp
        async with connect(address) as third:
            assert (await third.get(ANNOUNCE)).reply[b"peers"] == b""
            assert await clients[0].is_closed()
            assert (await clients[1].get(ANNOUNCE)).reply[b"peers"] == b""
        assert tracker.labels == [TOO_MANY_CONNECTIONS]


@on_loops()
async def test_an_address_whose_connections_all_await_answers_gets_no_more() -> None:
    tracker = RecordingTracker()
    async with serving(tracker, max_connections_per_address=2) as address, contextlib.AsyncExitStack() as stack:
        tracker.may_answer.clear()
        clients = [await stack.enter_async_context(connect(address)) for _ in range(2)]
        for client in clients:
            client.send(request(ANNOUNCE))
        await eventually(lambda: len(tracker.announces) == 2)
        async with connect(address) as third:
            assert await third.is_closed()
        assert tracker.labels == [TOO_MANY_CONNECTIONS]
        tracker.may_answer.set()
        for client in clients:
            assert (await client.receive()).reply[b"peers"] == b""


async def _all_answered(tracker: RecordingTracker) -> None:
    """Waits until the server, which shares the event loop, answers no more requests."""
    before = -1
    while before != len(tracker.scrapes):
        before = len(tracker.scrapes)
        await loop_turns(100)


@on_loops("uvloop")
@pytest.mark.parametrize("held", ["nothing", "half a head", pytest.param("unread answers", marks=pytest.mark.slow)])
async def test_a_client_behind_an_address_at_its_limit_is_served(held: str) -> None:
    """20 of 20, while other clients of the address keep connections open and open new ones."""
    tracker = RecordingTracker()
    sent = {"nothing": b"", "half a head": request(ANNOUNCE)[:-2], "unread answers": request(SCRAPE) * 100}
    async with serving(tracker, max_connections_per_address=50) as address, contextlib.AsyncExitStack() as stack:

        async def open_one() -> None:
            client = await stack.enter_async_context(connect(address))
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            client.send(sent[held])

        for _ in range(60):
            await open_one()
        await _all_answered(tracker)  # then all wait for clients that do not read
        for _ in range(20):
            async with connect(address) as neighbour:
                await open_one()
                assert (await neighbour.get(ANNOUNCE)).reply[b"peers"] == b""


@on_loops("uvloop")
async def test_a_trusted_proxy_may_have_any_number() -> None:
    tracker = RecordingTracker()
    http: dict[str, Any] = {"max_connections_per_address": 1, "trusted_proxies": ["127.0.0.1/32"]}
    async with serving(tracker, **http) as address, contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            client = await stack.enter_async_context(connect(address))
            assert (await client.get(ANNOUNCE, "X-Forwarded-For: 1.2.3.4")).reply[b"peers"] == b""


@on_loops()
@pytest.mark.parametrize("begun", [b"", request(ANNOUNCE)[:-2], b"GET /x HTTP/1.1\r\nContent-Length: 1\r\nA"])
async def test_the_oldest_connection_without_a_request_is_closed_at_the_limit(begun: bytes) -> None:
    """A connection that sent nothing, or an unfinished request."""
    tracker = RecordingTracker()
    at_once = {} if begun else {"system.listeners.Listener.defer_accept": lambda *_: False}
    async with serving(tracker, max_connections=16, constants=at_once) as address, contextlib.AsyncExitStack() as stack:
        tracker.may_answer.clear()
        asking = await stack.enter_async_context(connect(address))
        asking.send(request(ANNOUNCE))
        await eventually(lambda: bool(tracker.announces))
        silent = [await stack.enter_async_context(connect(address)) for _ in range(15)]
        for client in silent:
            client.send(begun)
        await loop_turns(20)
        new_clients = [await stack.enter_async_context(connect(address)) for _ in range(3)]
        for client in new_clients:
            client.send(request(ANNOUNCE))
        assert await _all_closed(silent[:3])
        tracker.may_answer.set()
        for client in (asking, *new_clients):
            assert (await client.receive()).reply[b"peers"] == b""
        if not begun:
            assert (await silent[3].get(ANNOUNCE)).reply[b"peers"] == b""
    assert not tracker.labels


@on_loops()
async def test_a_new_connection_is_closed_when_all_others_await_answers() -> None:
    tracker = RecordingTracker()
    async with serving(tracker, max_connections=16) as address, contextlib.AsyncExitStack() as stack:
        tracker.may_answer.clear()
        asking = [await stack.enter_async_context(connect(address)) for _ in range(16)]
        for client in asking:
            client.send(request(ANNOUNCE))
        await eventually(lambda: len(tracker.announces) == 16)
        async with connect(address) as last:
            assert await last.is_closed()
        tracker.may_answer.set()
        for client in asking:
            assert (await client.receive()).reply[b"peers"] == b""
    assert tracker.labels == [TOO_MANY_CONNECTIONS]


async def _send_slowly(client: Client, head: bytes) -> None:
    with contextlib.suppress(ConnectionError, RuntimeError):  # uvloop raises it on a closed transport
        for byte in head:
            client.send(bytes([byte]))
            await client.writer.drain()
            await loop_turns(20)


@on_loops("uvloop")
@pytest.mark.parametrize(
    "head",
    [
        b"GET /announce?" + b"x" * 5000,
        b"GET / HTTP/1.1\nHost: t\n" + b"X-A: b\r\n" * 500,
        b"POST /x HTTP/1.1\r\nHost: t\r\n" + b"X-A: b\r\n" * 500,
    ],
    ids=["fast", "aiohttp", "post"],
)
async def test_an_endless_head_times_out(head: bytes) -> None:
    """New bytes do not extend the deadline of the whole head."""
    tracker = RecordingTracker()
    async with serving(tracker, header_seconds=0.6, keepalive_seconds=60) as address, connect(address) as known:
        await known.get("/health")
        async with connect(address) as fresh, connect(address) as silent_client:
            async with asyncio.TaskGroup() as group:
                for client in (fresh, known):
                    group.create_task(_send_slowly(client, head))
            assert await silent_client.is_closed()


@on_loops()
@pytest.mark.parametrize("before", [b"", request(ANNOUNCE), request(ANNOUNCE, "Content-Length: 5") + b"hello"])
async def test_the_size_of_a_head_is_limited(before: bytes) -> None:
    """Thousands of heads with 64 lines of 8 kB would take gigabytes."""
    tracker = RecordingTracker()
    async with talking(tracker, header_seconds=60, max_request_line_bytes=4096) as client:
        if before:
            client.send(before)
            await client.receive()
        client.send(request(ANNOUNCE)[:-2])
        sent = 0
        while sent < 60 and not client.reader.at_eof():
            sent += 1
            with contextlib.suppress(ConnectionError, RuntimeError):  # uvloop raises it on a closed transport
                client.send(b"X-A: %b\r\n" % (b"a" * 1000))
                await client.writer.drain()
                await loop_turns(5)
        assert await client.is_closed() and 10 <= sent < 60
        assert len(tracker.announces) == bool(before) and tracker.labels


@on_loops("asyncio")
async def test_the_hand_over_does_not_extend_the_deadline_of_a_head() -> None:
    tracker, http = RecordingTracker(), HttpSettings()
    front = HttpHandler(tracker, LiveSettings(Settings(http=http)))
    server = Server(front, ConnectionTable(http, tracker.refused), access_log=None)
    fast = FastHttpProtocol(FastHttpServer(front, server))
    wire = MemoryTransport(asyncio.get_running_loop(), "11.0.0.1")
    wire.open(fast)
    until = fast.until
    fast.data_received(request(ANNOUNCE)[:-2])
    server.table.now += 3
    fast.data_received(b"X: " + b"y" * 8000)  # more than the fast protocol waits for
    connection = wire.get_protocol()
    assert isinstance(connection, Connection) and connection.until == until
    wire.abort()


@on_loops()
async def test_bodies_and_pipelined_requests_do_not_count_as_heads() -> None:
    """Of any length, and in any pieces."""
    settings: dict[str, Any] = {"max_request_line_bytes": 1024, "max_header_bytes": 256}
    async with serving(RecordingTracker(), **settings) as address:
        async with connect(address) as client:
            for _ in range(2):
                client.send(request(ANNOUNCE, "Content-Length: 5000"))
                for _ in range(10):
                    client.send(b"a" * 500)
                    await loop_turns(5)
                assert (await client.receive()).reply[b"peers"] == b""
        async with connect(address) as client:
            for _ in range(10):
                client.send(request(ANNOUNCE) * 10 + request(ANNOUNCE)[:20])
                await loop_turns(5)
                client.send(request(ANNOUNCE)[20:])
            for _ in range(110):
                assert (await client.receive()).reply[b"peers"] == b""


@on_loops("uvloop")
async def test_an_idle_connection_outlives_the_deadline_of_a_head() -> None:
    for first in (ANNOUNCE, "/health"):
        async with serving(RecordingTracker(), header_seconds=0.1, keepalive_seconds=60) as address:
            async with connect(address) as client:
                await client.get(first)
                async with connect(address) as silent_client:
                    assert await silent_client.is_closed()  # the time for a head is over
                assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""


@on_loops("uvloop")
@pytest.mark.parametrize("begun", [request(ANNOUNCE)[:-2], b"POST /x HTTP/1.1\r\nHost: t\r\n"])
async def test_unfinished_heads_hold_bounded_memory(begun: bytes) -> None:
    """Beyond the bound the oldest connections are closed; a client with a complete request is answered."""
    tracker = RecordingTracker()
    lines = b"".join(b"X-%d: %b\r\n" % (n, b"x" * 7000) for n in range(4))
    async with (
        serving(tracker, constants={"frontends.http.connection_table.MAX_PENDING_REQUEST_BYTES": 2**20}) as address,
        contextlib.AsyncExitStack() as stack,
    ):
        half = [await stack.enter_async_context(connect(address)) for _ in range(60)]
        for client in half:
            client.send(begun + lines)
            await client.writer.drain()
        async with connect(address) as other:
            for _ in range(20):
                assert (await other.get(ANNOUNCE)).reply[b"peers"] == b""
        assert await _all_closed(half[:20])
        assert set(tracker.labels) == {TOO_MUCH_HELD}
        half[-1].send(b"\r\n")
        assert (await half[-1].receive()).body


@on_loops("uvloop")
async def test_unread_answers_hold_bounded_memory() -> None:
    tracker = RecordingTracker()
    tracker.error = Refusal("denied", "x" * 60_000)
    async with (
        serving(tracker, constants={"frontends.http.connection_table.MAX_UNREAD_ANSWER_BYTES": 2**20}) as address,
        contextlib.AsyncExitStack() as stack,
    ):
        unread = [await stack.enter_async_context(connect(address)) for _ in range(30)]
        for client in unread:
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(20):
                client.send(request(ANNOUNCE))
                await loop_turns(5)
        await eventually(lambda: TOO_MUCH_HELD in tracker.labels)
        async with connect(address) as other:
            assert len((await other.get(ANNOUNCE)).failure) == 60_000


class FakeConnection:
    until = 0
    idle = True
    fresh = False
    aborted = False

    def close_gracefully(self) -> None: ...

    def on_overdue(self) -> None: ...

    def abort(self) -> None:
        self.aborted = True


class FakeTransport(asyncio.Transport):
    """The transport of a client at ``address``."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 6881, 0, 0) if ":" in address else (address, 6881)})


def test_connections_are_limited_per_network_and_leave_no_entry() -> None:
    refused: list[str] = []
    table = ConnectionTable(HttpSettings(max_connections_per_address=2), refused.append)
    connections = [FakeConnection() for _ in range(4)]
    for number, connection in enumerate(connections[:3]):
        assert table.add(connection, FakeTransport(f"2001:db8:0:1::{number}"))
    assert refused == [TOO_MANY_CONNECTIONS]
    assert connections[0].aborted and len(table) == 2
    assert table.add(connections[3], FakeTransport("2001:db8:0:2::"))
    for connection in connections:
        table.remove(connection)
    assert len(table) == 0 and not table._networks


def test_a_disconnected_client_is_not_trusted_as_a_unix_socket() -> None:
    """It has no peername either; a trusted client could forge an address."""
    table = ConnectionTable(HttpSettings(trusted_proxies=["127.0.0.1/32"]), lambda label: None)
    assert table.add(FakeConnection(), asyncio.Transport()) == (b"", False)
    assert table.add(FakeConnection(), FakeTransport("127.0.0.1")) == (b"\x7f\0\0\x01", True)
    assert table.add(FakeConnection(), FakeTransport("127.0.0.2")) == (b"\x7f\0\0\x02", False)


@on_loops()
async def test_closing_thousands_of_overdue_connections_does_not_block_the_loop() -> None:
    aborted: list[FakeConnection] = []

    class Overdue(FakeConnection):
        def on_overdue(self) -> None:
            aborted.append(self)
            table.remove(self)

    table = ConnectionTable(HttpSettings(header_seconds=0.01, keepalive_seconds=0.01), lambda label: None)
    for _ in range(1000):
        table.add(Overdue(), asyncio.Transport())
    table.sweep()
    assert len(aborted) < 200
    await eventually(lambda: len(aborted) == 1000)
    table.stop()
