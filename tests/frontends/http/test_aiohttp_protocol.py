"""The life of a connection: half-closed, idle, slow, stalled, and cut short by the tracker's stop."""

import asyncio
import contextlib
import socket

import pytest

from tests.frontends.conftest import Logs
from tests.frontends.harness import (
    ANNOUNCE,
    PATIENCE,
    RecordingTracker,
    connect,
    on_loops,
    request,
    serving,
    talking,
)
from tracker.bittorrent import Address, Announce, AnnounceReply
from tracker.frontends import front as front_end
from tracker.frontends import http
from tracker.frontends.connection import Server
from tracker.frontends.crowd import Crowd
from tracker.frontends.door import Door
from tracker.frontends.doors import Doors
from tracker.settings import AnnounceSettings, HttpSettings


async def arrived(tracker: RecordingTracker, count: int) -> None:
    """Wait until the tracker was asked ``count`` times."""
    async with asyncio.timeout(PATIENCE):
        while len(tracker.announces) < count:
            await asyncio.sleep(0)


@on_loops()
async def test_half_closed_clients_get_their_answer() -> None:
    """While it is being decided, and when request and end arrive together."""
    tracker = RecordingTracker()
    async with serving(tracker) as address:
        async with connect(address) as client:
            tracker.gate.clear()
            client.send(request(ANNOUNCE))
            await arrived(tracker, 1)
            client.half_close()
            await asyncio.sleep(0.01)
            tracker.gate.set()
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
async def test_half_closing_with_nothing_asked_closes(sent: bytes) -> None:
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
async def test_half_closed_clients_wait_no_longer_than_the_setting() -> None:
    tracker = RecordingTracker()
    tracker.gate.clear()
    async with talking(tracker, half_close_seconds=0.05) as client:
        client.send(request(ANNOUNCE) * 3)
        await arrived(tracker, 1)
        client.half_close()
        assert await client.is_closed()
        tracker.gate.set()


@on_loops()
@pytest.mark.parametrize("sent", [b"", b"GET /announce HT", request(ANNOUNCE)[:-2]])
async def test_idle_and_unfinished_requests_are_cut_off(sent: bytes) -> None:
    async with talking(RecordingTracker(), keepalive_seconds=0.05) as client:
        client.send(sent)
        assert await client.is_closed()


@on_loops()
async def test_dribbled_headers_do_not_win_time() -> None:
    """The clock runs from the connection's start (then from the last answer), not from the last byte."""
    async with talking(RecordingTracker(), keepalive_seconds=0.1, max_headers=1024) as client:
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
        assert lines < 100  # each takes a hundredth of a second, and more than a thousand may come


@on_loops()
async def test_idle_connections_live_until_the_setting_says() -> None:
    async with talking(RecordingTracker(), keepalive_seconds=30) as client:
        for _ in range(3):
            assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""


@on_loops()
async def test_clients_that_do_not_read_are_cut_off() -> None:
    """The answers of a long scrape fill every buffer; then the tracker waits as long as for an idle client."""
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
async def test_stop_answers_what_is_in_flight_and_closes_the_idle(logs: Logs) -> None:
    tracker = RecordingTracker()
    tracker.gate.clear()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tracker) as address:
            idle, started, busy = [await stack.enter_async_context(connect(address)) for _ in range(3)]
            await idle.get("/")
            started.send(request(ANNOUNCE)[:-2])
            busy.send(request(ANNOUNCE) * 3)
            await arrived(tracker, 1)
            asyncio.get_running_loop().call_later(0.05, tracker.gate.set)
        for _ in range(3):
            assert (await busy.receive()).reply[b"peers"] == b""
        for client in (busy, idle, started):
            assert await client.is_closed()
        with pytest.raises(ConnectionRefusedError):
            async with connect(address):
                pass
    assert not [line for line in logs if line["log_level"] == "warning"]


@on_loops()
async def test_stop_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, logs: Logs) -> None:
    monkeypatch.setattr(http, "DRAIN_SECONDS", 0.02)
    tracker = RecordingTracker()
    tracker.gate.clear()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tracker) as address:
            client = await stack.enter_async_context(connect(address))
            client.send(request(ANNOUNCE))
            await arrived(tracker, 1)
        assert await client.is_closed()
    assert [line["connections"] for line in logs if line["log_level"] == "warning"] == [1]


@on_loops()
async def test_connections_accepted_while_stopping_are_closed() -> None:
    """The listener is closed by then, but one may have been on its way in."""
    tracker = RecordingTracker()
    front = front_end.FrontEnd(tracker, HttpSettings(), AnnounceSettings(), max_scrape=1)
    server = Server(front.handle, front.rules, Crowd(HttpSettings(), tracker.refused), access_log=None)
    doors = Doors(front, server)
    await server.crowd.drain(1)
    ours, theirs = socket.socketpair()
    with ours:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: Door(doors), theirs)
        ours.setblocking(False)
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.get_running_loop().sock_recv(ours, 1) == b""


@on_loops()
async def test_clients_may_vanish_at_any_time() -> None:
    tracker = RecordingTracker()
    tracker.gate.clear()
    async with serving(tracker) as address:
        async with connect(address) as client:
            client.send(request(ANNOUNCE) * 3)
            await arrived(tracker, 1)
        async with connect(address) as client:
            client.send(request(ANNOUNCE, "Content-Length: 10"))
            await arrived(tracker, 2)
        tracker.gate.set()
        async with connect(address) as client:
            assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""


@on_loops()
async def test_a_client_that_vanishes_cancels_nothing() -> None:
    """A call to the store that is cancelled would close the line that all share."""
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
    tracker.asks_first = True
    tracker.gate.clear()
    async with serving(tracker) as address:
        for number in range(3):
            async with connect(address) as client:
                client.send(request(ANNOUNCE) * (number + 1))
                await arrived(tracker, number + 1)
        async with connect(address) as other:
            assert (await other.get("/health")).body == b"alive\n"
        assert not ends
        tracker.gate.set()
        async with asyncio.timeout(PATIENCE):
            while ends.count("ended") < 3:
                await asyncio.sleep(0.001)
    assert "cancelled" not in ends
