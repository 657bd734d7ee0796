"""Connections of one request are answered without a transport of the event loop, and clients see no difference."""

import asyncio
import contextlib
import os
import resource
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.frontends.http.conftest import Logs
from tests.frontends.http.harness import ANNOUNCE, INFO_HASH, RecordingTracker, on_loops, serving
from tests.raw_http import Client, Response, connect, request
from tests.waiting import eventually
from tracker.frontends.http import accept_queue, connection_table, server
from tracker.frontends.http.direct_transport import DirectTransport
from tracker.refusals import TOO_MANY_CONNECTIONS, TOO_MUCH_HELD, Refusal, SilentlyDropped
from tracker.system import listeners

CLOSE = "Connection: close"
SCRAPE = "/scrape?info_hash=" + "".join(f"%{byte:02x}" for byte in INFO_HASH)
LONG = Refusal("denied", "x" * 60_000)
"""Its answer is longer than the send buffer of these tests."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds connections back")


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[DirectTransport]:
    """All direct transports that were made."""
    made: list[DirectTransport] = []

    class Listed(DirectTransport):
        __slots__ = ()

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(accept_queue, "DirectTransport", Listed)
    return made


@pytest.fixture(autouse=True)
def only_fast(protocol: str) -> None:
    if protocol == "aiohttp":
        pytest.skip("aiohttp needs a transport of the loop")


async def ask(address: str, target: str = ANNOUNCE, *lines: str) -> Response:
    """The answer to a request that ends its connection."""
    async with connect(address) as client:
        response = await client.get(target, CLOSE, *lines)
        assert await client.is_closed()
        return response


@contextlib.asynccontextmanager
async def waiting(address: str, tracker: RecordingTracker) -> Any:
    """A connection whose announce waits for its answer."""
    before = len(tracker.announces)
    async with connect(address) as client:
        client.send(request(ANNOUNCE, CLOSE))
        await eventually(lambda: len(tracker.announces) > before)
        yield client


@on_loops()
@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0"])
async def test_known_heads_that_ask_to_close_need_no_transport_of_the_loop(
    direct: list[DirectTransport], listen: str, logs: Logs
) -> None:
    tracker = RecordingTracker()
    async with serving(tracker, listen=(listen,), access_log=True) as address:
        first = await ask(address)
        assert not direct, "the head was not known"
        assert await ask(address) == first and len(direct) == 1
        assert tracker.address == listen.removesuffix(":0").strip("[]")
        assert (await ask(address, SCRAPE)).reply[b"files"] and len(direct) == 2
        for _ in range(2):
            async with connect(address) as client:
                for _ in range(2):
                    assert b"peers" in (await client.get(ANNOUNCE)).reply
    assert len(direct) == 2, "a connection that stays open needs a transport of the loop"
    lines = [(line["kind"], line["status"], line["client"]) for line in logs if line["event"] == "request"]
    assert lines[:3] == [(kind, 200, tracker.address) for kind in ("announce", "announce", "scrape")]


@on_loops()
async def test_other_requests_with_a_known_head_pass_on(direct: list[DirectTransport]) -> None:
    """The event loop reads them from the socket."""
    tracker = RecordingTracker()
    async with serving(tracker) as address:
        await ask(address)
        assert (await ask(address, "/health")).body == b"alive\n"
        assert (await ask(address, "/nothing")).status == 404
        tracker.reads_store_first = True
        assert b"peers" in (await ask(address)).reply
        assert len(direct) == 3 and len(tracker.announces) == 2
        async with connect(address) as client:  # two requests at once: the second is not answered
            client.send(request(ANNOUNCE, CLOSE) * 2)
            assert b"peers" in (await client.receive()).reply
            assert await client.is_closed()
        assert len(direct) == 3


@on_loops()
async def test_a_failure_and_a_dropped_request_end_the_connection(direct: list[DirectTransport]) -> None:
    tracker = RecordingTracker()
    async with serving(tracker) as address:
        await ask(address)
        tracker.error = Refusal("denied", "no such torrent")
        assert (await ask(address)).failure == "no such torrent"
        tracker.error = SilentlyDropped("too many requests")
        async with connect(address) as client:
            client.send(request(ANNOUNCE, CLOSE))
            assert await client.is_closed()
    assert len(direct) == 2


@on_loops()
async def test_they_count_for_the_limits_of_connections(direct: list[DirectTransport]) -> None:
    tracker = RecordingTracker()
    async with serving(tracker, max_connections_per_address=2) as address:
        await ask(address)
        tracker.may_answer.clear()
        async with waiting(address, tracker) as one, waiting(address, tracker) as two:
            async with connect(address) as third:
                third.send(request(ANNOUNCE, CLOSE))
                assert await third.is_closed()
            assert tracker.labels == [TOO_MANY_CONNECTIONS] and len(direct) == 3
            tracker.may_answer.set()
            for client in (one, two):
                assert b"peers" in (await client.receive()).reply
        for _ in range(3):
            assert b"peers" in (await ask(address)).reply
    assert tracker.labels == [TOO_MANY_CONNECTIONS]


@on_loops()
async def test_a_stop_answers_them(direct: list[DirectTransport]) -> None:
    tracker = RecordingTracker()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tracker) as address:
            await ask(address)
            tracker.may_answer.clear()
            client = await stack.enter_async_context(waiting(address, tracker))
            asyncio.get_running_loop().call_later(0.05, tracker.may_answer.set)
        assert b"peers" in (await client.receive()).reply
        assert await client.is_closed()
    assert len(direct) == 1


@on_loops()
async def test_the_proxy_protocol_is_read_by_aiohttp(direct: list[DirectTransport]) -> None:
    """Also before a head that other clients have made known."""
    tracker = RecordingTracker()
    line = b"PROXY TCP4 11.0.0.1 11.0.0.2 1 2\r\n"
    async with serving(tracker, trusted_proxies=["127.0.0.2/32"], proxy_protocol=True) as address:
        for _ in range(2):
            assert b"peers" in (await ask(address)).reply
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0))
        proxy = Client(reader, writer)
        proxy.send(line + request(ANNOUNCE, CLOSE))
        assert b"peers" in (await proxy.receive()).reply
        assert tracker.address == "11.0.0.1" and await proxy.is_closed()
        writer.close()
        assert len(direct) == 2, "the proxy's connection was passed on"
        async with connect(address) as client:  # not a proxy
            client.send(line + request(ANNOUNCE, CLOSE))
            assert b"does not expect the PROXY protocol" in (await client.receive()).body
    assert len(tracker.announces) == 3


@on_loops("uvloop")
async def test_without_the_option_the_loop_accepts(
    direct: list[DirectTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_TCP_DEFER_ACCEPT", None)
    async with serving(RecordingTracker()) as address:
        for _ in range(3):
            assert b"peers" in (await ask(address)).reply
    assert not direct


@contextlib.asynccontextmanager
async def not_reading(address: str) -> Any:
    """A client that has sent a request, and reads nothing by itself."""
    host, _, port = address.rpartition(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    sock.send(request(ANNOUNCE, CLOSE))
    with sock:
        yield sock


@on_loops()
async def test_an_answer_that_cannot_leave_at_once_is_sent_as_it_is_read(
    direct: list[DirectTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SEND_BYTES", 2048)
    tracker = RecordingTracker()
    async with serving(tracker) as address:
        await ask(address)
        tracker.error = LONG
        async with not_reading(address) as sock:
            await eventually(lambda: bool(direct) and direct[0].get_write_buffer_size() > 0)
            received = b""
            while chunk := await asyncio.get_running_loop().sock_recv(sock, 65536):
                received += chunk
    assert received.endswith(b"e") and received.count(b"x") >= 60_000 and len(direct) == 1


@on_loops()
@pytest.mark.parametrize("limit", ["time", "memory"])
async def test_a_client_that_does_not_read_is_closed(
    direct: list[DirectTransport], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(server, "_SEND_BYTES", 2048)
    tracker = RecordingTracker()
    seconds = 0.2 if limit == "time" else 60
    if limit == "memory":
        monkeypatch.setattr(connection_table, "MAX_UNREAD_ANSWER_BYTES", 20_000)
    async with serving(tracker, header_seconds=seconds, keepalive_seconds=seconds) as address:
        await ask(address)
        tracker.error = LONG
        async with not_reading(address):
            await eventually(lambda: bool(direct) and not direct[0].get_extra_info("socket").fileno() >= 0)
        assert tracker.labels == ([] if limit == "time" else [TOO_MUCH_HELD])
        tracker.error = None
        assert b"peers" in (await ask(address)).reply


@on_loops()
async def test_a_client_that_has_gone_fails_nothing(direct: list[DirectTransport]) -> None:
    tracker = RecordingTracker()
    async with serving(tracker) as address:
        await ask(address)
        tracker.may_answer.clear()
        async with waiting(address, tracker) as client:
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        tracker.may_answer.set()
        assert b"peers" in (await ask(address)).reply
    assert len(direct) == 2


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@on_loops()
async def test_when_files_run_out_nothing_is_accepted_for_a_moment(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accept_queue, "_REST_SECONDS", 0.05)
    async with serving(RecordingTracker()) as address, connect(address) as client:
        with no_more_files():
            client.send(request(ANNOUNCE, CLOSE))
            await eventually(lambda: any("ran out" in line["event"] for line in logs))
        assert b"peers" in (await client.receive()).reply
