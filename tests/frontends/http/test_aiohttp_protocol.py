"""Connections that are half-closed, idle, slow or stalled, or that the tracker's stop closes."""

import asyncio
import contextlib
import socket

import pytest
from aiohttp.web_protocol import RequestHandler

from fuzz.memory_transport import MemoryTransport
from tests.frontends.http.conftest import Logs
from tests.frontends.http.harness import ANNOUNCE, RecordingTracker, on_loops, serving, talking
from tests.raw_http import PATIENCE, connect, request
from tests.waiting import eventually, loop_turns
from tracker.bittorrent import Address, Announce, AnnounceReply
from tracker.frontends.http import handler as front_end
from tracker.frontends.http.aiohttp_protocol import Connection, Server
from tracker.frontends.http.connection_table import ConnectionTable
from tracker.frontends.http.fast_protocol import FastHttpProtocol, FastHttpServer
from tracker.frontends.http.handler import HttpHandler
from tracker.settings.model import LiveSettings, Settings
from tracker.settings.public import HttpSettings
from tracker.system.aiohttp_connection import MAX_HEADERS


async def arrived(tracker: RecordingTracker, count: int) -> None:
    """Waits until the tracker has ``count`` announces."""
    async with asyncio.timeout(PATIENCE):
        while len(tracker.announces) < count:
            await asyncio.sleep(0)


@on_loops()
async def test_half_closed_clients_get_their_answer() -> None:
    """During the decision, and when the request and the end arrive together."""
    tracker = RecordingTracker()
    async with serving(tracker) as address:
        async with connect(address) as client:
            tracker.may_answer.clear()
            client.send(request(ANNOUNCE))
            await arrived(tracker, 1)
            client.half_close()
            await loop_turns(20)
            tracker.may_answer.set()
            assert (await client.receive()).reply[b"peers"] == b""
            assert await client.is_closed()
        async with connect(address) as client:
            client.send(request(ANNOUNCE))
            client.half_close()
            assert (await client.receive()).reply[b"peers"] == b""
            assert await client.is_closed()


@on_loops()
async def test_half_closed_clients_get_all_pipelined_answers() -> None:
    """More than aiohttp queues at once, some of them answered before the end is seen."""
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        ports = range(1, 81)
        client.send(b"".join(request(ANNOUNCE.replace("6881", str(port))) for port in ports))
        client.half_close()
        assert [(await client.receive()).reply[b"complete"] for _ in ports] == list(ports)
        assert await client.is_closed()


@on_loops("asyncio")
@pytest.mark.parametrize("body", [b"", b"5\r\nhello\r\n0\r\n\r\n"], ids=["no body", "a body"])
async def test_one_request_is_parsed_at_a_time_wherever_the_bytes_are_split(body: bytes) -> None:
    """A trusted proxy's next request may have no Host, so it must be parsed from its first byte."""
    tracker = RecordingTracker()
    bare = f"GET {ANNOUNCE} HTTP/1.1\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n".encode()
    of_client = "X-Forwarded-For: 1.2.3.4"
    usual = request(ANNOUNCE, of_client)
    first = request(ANNOUNCE, of_client, "Transfer-Encoding: chunked") + body if body else usual
    several = [first, usual, usual] if body else [first, bare]
    sent = b"".join(several)
    settings = HttpSettings(trusted_proxies=("127.0.0.1/32",))
    front = HttpHandler(tracker, LiveSettings(Settings(http=settings)))
    server = Server(front, ConnectionTable(settings, tracker.refused), access_log=None)
    for cut in range(1, len(sent) if body else len(first) + 1):
        wire = MemoryTransport(asyncio.get_running_loop(), "127.0.0.1")
        wire.open(FastHttpProtocol(FastHttpServer(front, server, fast_path=False)))
        connection = wire.get_protocol()
        assert isinstance(connection, Connection)
        await asyncio.sleep(0)
        for piece in (sent[:cut], sent[cut:]):
            connection.data_received(piece)
            assert len(connection._messages) <= 1, cut
        async with asyncio.timeout(PATIENCE):
            while wire.sent.count(b"HTTP/1.1 200") < len(several):
                await asyncio.sleep(0)
        assert b"failure" not in wire.sent, cut
        wire.abort()


@on_loops()
async def test_half_closed_clients_read_why_a_request_was_malformed() -> None:
    async with talking(RecordingTracker()) as client:
        client.send(request(ANNOUNCE))
        assert (await client.receive()).reply[b"peers"] == b""
        client.send(b"nonsense\r\n\r\n")
        client.half_close()
        assert "not an HTTP request" in (await client.receive()).failure
        assert await client.is_closed()


@on_loops()
@pytest.mark.parametrize("sent", [b"", request(ANNOUNCE)[:-2]])
async def test_half_closing_without_a_request_closes_the_connection(sent: bytes) -> None:
    async with talking(RecordingTracker()) as client:
        client.send(sent)
        client.half_close()
        assert await client.is_closed()


@on_loops()
async def test_half_closing_an_idle_connection_closes_it() -> None:
    async with talking(RecordingTracker()) as client:
        await client.get(ANNOUNCE)
        client.half_close()
        assert await client.is_closed()


@on_loops()
async def test_a_half_closed_client_waits_for_a_bounded_time() -> None:
    tracker = RecordingTracker()
    tracker.may_answer.clear()
    async with talking(tracker, constants={"frontends.http.connection_table.HALF_CLOSE_SECONDS": 0.05}) as client:
        client.send(request(ANNOUNCE) * 3)
        await arrived(tracker, 1)
        client.half_close()
        assert await client.is_closed()
        tracker.may_answer.set()


@on_loops()
@pytest.mark.parametrize("sent", [b"", b"GET /announce HT", request(ANNOUNCE)[:-2]])
async def test_idle_and_unfinished_requests_time_out(sent: bytes) -> None:
    async with talking(RecordingTracker(), keepalive_seconds=0.05) as client:
        client.send(sent)
        assert await client.is_closed()


@on_loops()
async def test_slow_headers_do_not_extend_the_deadline() -> None:
    """The deadline starts with the connection or the last answer, not with the last byte."""
    async with talking(RecordingTracker(), keepalive_seconds=0.1) as client:
        await client.get(ANNOUNCE)
        client.send(request(ANNOUNCE)[:-2])
        lines = 0
        with contextlib.suppress(ConnectionError):
            while not client.reader.at_eof():
                client.send(b"a: b\r\n")
                lines += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await client.reader.read(1)
        assert lines < MAX_HEADERS - 4  # each takes a hundredth of a second


@on_loops()
async def test_idle_connections_stay_open_for_the_configured_time() -> None:
    async with talking(RecordingTracker(), keepalive_seconds=30) as client:
        for _ in range(3):
            assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""


@on_loops()
async def test_clients_that_do_not_read_are_disconnected() -> None:
    """The answers of long scrapes fill every buffer; then the time of an idle connection applies."""
    tracker = RecordingTracker()
    scrape = "/scrape?" + "&".join(f"info_hash={f'%{n >> 8:02x}%{n & 255:02x}' * 10}" for n in range(400))
    async with talking(tracker, keepalive_seconds=0.1) as client:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 3000:
                client.send(request(scrape))
                sent += 1
                async with asyncio.timeout(PATIENCE):
                    await client.writer.drain()
        assert len(tracker.scrapes) < sent


@on_loops()
@pytest.mark.parametrize("kind", ["get", "with a body", "chunked", "upgrade"])
async def test_a_second_request_is_parsed_after_the_first_is_answered(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hundred that arrive together, one is parsed; the others stay bytes."""
    first = {
        "get": request(ANNOUNCE),
        "with a body": request(ANNOUNCE, "Content-Length: 5") + b"hello",
        "chunked": request(ANNOUNCE, "Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n",
        "upgrade": request(ANNOUNCE, "Connection: upgrade", "Upgrade: websocket"),
    }[kind]
    parsed: list[int] = []
    receive = RequestHandler.data_received

    def data_received(connection: RequestHandler, data: bytes) -> None:
        receive(connection, data)
        parsed.append(connection._request_count)

    monkeypatch.setattr(RequestHandler, "data_received", data_received)
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        for answered in range(0, 300, 100):
            tracker.may_answer.clear()
            client.send(first * 50)
            await arrived(tracker, answered + 1)
            client.send(first * 50)
            await loop_turns(20)
            assert max(parsed) <= answered + 1 and len(tracker.announces) == answered + 1
            tracker.may_answer.set()
            for _ in range(100):
                assert (await client.receive()).reply[b"peers"] == b""


@pytest.mark.slow
@on_loops("uvloop")
async def test_reading_pauses_when_a_client_does_not_read() -> None:
    """What it sends stays in its own buffers and the system's, which are bounded too."""
    tracker = RecordingTracker()
    tracker.may_answer.clear()
    async with talking(tracker) as client:
        client.writer.transport.set_write_buffer_limits(high=0)
        client.send(request(ANNOUNCE))
        await arrived(tracker, 1)
        taken, max_taken = 0, 16_000_000  # the system alone buffers up to 10 MB: 4 MB to send, 6 MB received
        with contextlib.suppress(TimeoutError):
            while taken < max_taken:
                client.send(request(ANNOUNCE) * 40)
                async with asyncio.timeout(0.5):
                    await client.writer.drain()
                taken += len(request(ANNOUNCE)) * 40
        assert taken < max_taken and len(tracker.announces) == 1


@on_loops()
async def test_stop_answers_requests_in_flight_and_closes_idle_connections(logs: Logs) -> None:
    tracker = RecordingTracker()
    tracker.may_answer.clear()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tracker) as address:
            idle, started, busy = [await stack.enter_async_context(connect(address)) for _ in range(3)]
            await idle.get("/")
            started.send(request(ANNOUNCE)[:-2])
            busy.send(request(ANNOUNCE) * 3)
            await arrived(tracker, 1)
            asyncio.get_running_loop().call_later(0.05, tracker.may_answer.set)
        for _ in range(3):
            assert (await busy.receive()).reply[b"peers"] == b""
        for client in (busy, idle, started):
            assert await client.is_closed()
        with pytest.raises(ConnectionRefusedError):
            async with connect(address):
                pass
    assert not [line for line in logs if line["log_level"] == "warning"]


@on_loops()
async def test_stop_waits_for_a_bounded_time(logs: Logs) -> None:
    tracker = RecordingTracker()
    tracker.may_answer.clear()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tracker, constants={"frontends.http.server.DRAIN_SECONDS": 0.02}) as address:
            client = await stack.enter_async_context(connect(address))
            client.send(request(ANNOUNCE))
            await arrived(tracker, 1)
        assert await client.is_closed()
    assert [line["connections"] for line in logs if line["log_level"] == "warning"] == [1]


@on_loops()
async def test_connections_accepted_while_stopping_are_closed() -> None:
    """The listener is closed by then, but a connection may have been accepted just before."""
    tracker = RecordingTracker()
    front = front_end.HttpHandler(tracker, LiveSettings(Settings()))
    server = Server(front, ConnectionTable(HttpSettings(), tracker.refused), access_log=None)
    fast_server = FastHttpServer(front, server)
    await server.table.drain(1)
    ours, theirs = socket.socketpair()
    with ours:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: FastHttpProtocol(fast_server), theirs)
        ours.setblocking(False)
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.get_running_loop().sock_recv(ours, 1) == b""


@on_loops()
async def test_clients_may_disconnect_at_any_time() -> None:
    tracker = RecordingTracker()
    tracker.may_answer.clear()
    async with serving(tracker) as address:
        async with connect(address) as client:
            client.send(request(ANNOUNCE) * 3)
            await arrived(tracker, 1)
        async with connect(address) as client:
            client.send(request(ANNOUNCE, "Content-Length: 10"))
            await arrived(tracker, 2)
        tracker.may_answer.set()
        async with connect(address) as client:
            assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""


@on_loops()
async def test_a_client_that_disconnects_cancels_nothing() -> None:
    """A cancelled call of the store would close the connection that all requests share."""
    ends: list[str] = []

    class Slow(RecordingTracker):
        async def announce(self, announce: Announce, passkey: str | None, address: Address) -> AnnounceReply:
            try:
                return await super().announce(announce, passkey, address)
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise
            finally:
                ends.append("ended")

    tracker = Slow()
    tracker.reads_store_first = True
    tracker.may_answer.clear()
    async with serving(tracker) as address:
        for number in range(3):
            async with connect(address) as client:
                client.send(request(ANNOUNCE) * (number + 1))
                await arrived(tracker, number + 1)
        async with connect(address) as other:
            assert (await other.get("/health")).body == b"alive\n"
        assert not ends
        tracker.may_answer.set()
        await eventually(lambda: ends.count("ended") >= 3)
    assert "cancelled" not in ends
