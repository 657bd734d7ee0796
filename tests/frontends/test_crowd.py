"""However many connections are opened and left, whoever asks is served; and one address cannot take what there is."""

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable
from typing import Any

import pytest

from fuzz.wires import Wire
from tests.frontends.harness import (
    ANNOUNCE,
    PATIENCE,
    Client,
    RecordingTracker,
    connect,
    on_loops,
    request,
    serving,
    talking,
)
from tracker.bittorrent import Address
from tracker.frontends.connection import Connection, Server
from tracker.frontends.crowd import TOO_MANY, Crowd
from tracker.frontends.door import Door
from tracker.frontends.doors import Doors
from tracker.frontends.front import FrontEnd
from tracker.settings import AnnounceSettings, HttpSettings


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


async def _all_closed(clients: list[Client]) -> bool:
    return all([await client.is_closed() for client in clients])


@on_loops()
async def test_one_address_has_so_many_connections_and_gets_them_back() -> None:
    tracker = RecordingTracker()
    async with (
        serving(tracker, max_connections_per_address=2) as address,
        contextlib.AsyncExitStack() as stack,
    ):
        inside = [await stack.enter_async_context(connect(address)) for _ in range(2)]
        for client in inside:
            await client.get(ANNOUNCE)
        await inside[1].get("/health")  # now aiohttp's, which changes nothing
        async with connect(address) as third:
            assert await third.is_closed()
        assert tracker.labels == [TOO_MANY]
        inside[1].writer.transport.abort()
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                    async with connect(address) as third:
                        assert (await third.get(ANNOUNCE)).reply[b"peers"] == b""
                        break
        assert (await inside[0].get(ANNOUNCE)).reply[b"peers"] == b""


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
async def test_the_oldest_that_waits_for_nothing_makes_room(begun: bytes) -> None:
    """Whether it said nothing, or never ends what it says."""
    tracker = RecordingTracker()
    async with serving(tracker, max_connections=16) as address, contextlib.AsyncExitStack() as stack:
        tracker.gate.clear()
        asking = await stack.enter_async_context(connect(address))
        asking.send(request(ANNOUNCE))
        await until(lambda: bool(tracker.announces))
        silent = [await stack.enter_async_context(connect(address)) for _ in range(15)]
        for client in silent:
            client.send(begun)
        await asyncio.sleep(0.01)
        newcomers = [await stack.enter_async_context(connect(address)) for _ in range(3)]
        for client in newcomers:
            client.send(request(ANNOUNCE))
        assert await _all_closed(silent[:3])
        tracker.gate.set()
        for client in (asking, *newcomers):
            assert (await client.receive()).reply[b"peers"] == b""
        if not begun:
            assert (await silent[3].get(ANNOUNCE)).reply[b"peers"] == b""
    assert not tracker.labels


@on_loops()
async def test_where_everybody_waits_for_an_answer_nobody_else_is_let_in() -> None:
    tracker = RecordingTracker()
    async with serving(tracker, max_connections=16) as address, contextlib.AsyncExitStack() as stack:
        tracker.gate.clear()
        asking = [await stack.enter_async_context(connect(address)) for _ in range(16)]
        for client in asking:
            client.send(request(ANNOUNCE))
        await until(lambda: len(tracker.announces) == 16)
        async with connect(address) as last:
            assert await last.is_closed()
        tracker.gate.set()
        for client in asking:
            assert (await client.receive()).reply[b"peers"] == b""
    assert tracker.labels == [TOO_MANY]


async def _dribbles(client: Client, head: bytes) -> None:
    with contextlib.suppress(ConnectionError, RuntimeError):  # which uvloop raises on what is closed
        for byte in head:
            client.send(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0.02)


@on_loops("uvloop")
@pytest.mark.parametrize(
    "head",
    [
        b"GET /announce?" + b"x" * 5000,
        b"GET / HTTP/1.1\nHost: t\n" + b"X-A: b\r\n" * 500,
        b"POST /x HTTP/1.1\r\nHost: t\r\n" + b"X-A: b\r\n" * 500,
    ],
    ids=["the door's", "aiohttp's", "a post"],
)
async def test_a_head_that_does_not_end_is_given_up_however_it_comes(head: bytes) -> None:
    """Each byte is a sign of life; the whole head counts."""
    tracker = RecordingTracker()
    async with (
        serving(tracker, header_seconds=0.6, keepalive_seconds=60) as address,
        connect(address) as known,
    ):
        await known.get("/health")
        async with connect(address) as fresh, connect(address) as mute:
            async with asyncio.TaskGroup() as group:
                for client in (fresh, known):
                    group.create_task(_dribbles(client, head))
            assert await mute.is_closed()


@on_loops()
@pytest.mark.parametrize(
    "before", [b"", request(ANNOUNCE), request(ANNOUNCE, "Content-Length: 5") + b"hello"]
)
async def test_a_head_is_only_so_long_in_all(before: bytes) -> None:
    """Thousands of connections with 64 lines of 8 kB would take gigabytes."""
    tracker = RecordingTracker()
    async with talking(tracker, header_seconds=60, max_request_line_bytes=4096) as client:
        if before:
            client.send(before)
            await client.receive()
        client.send(request(ANNOUNCE)[:-2])
        sent = 0
        while sent < 60 and not client.reader.at_eof():
            sent += 1
            with contextlib.suppress(ConnectionError, RuntimeError):  # which uvloop raises on what is closed
                client.send(b"X-A: %b\r\n" % (b"a" * 1000))
                await client.writer.drain()
                await asyncio.sleep(0.001)
        assert await client.is_closed() and 10 <= sent < 60
        assert len(tracker.announces) == bool(before) and tracker.labels


@on_loops("asyncio")
async def test_the_time_for_a_head_does_not_begin_again_behind_the_door() -> None:
    tracker, http = RecordingTracker(), HttpSettings()
    front = FrontEnd(tracker, http, AnnounceSettings(), max_scrape=1)
    server = Server(front.handle, front.rules, Crowd(http, tracker.refused), access_log=None)
    door = Door(Doors(front, server))
    wire = Wire(asyncio.get_running_loop(), "11.0.0.1")
    wire.open(door)
    until = door.until
    door.data_received(request(ANNOUNCE)[:-2])
    server.crowd.now += 3
    door.data_received(b"X: " + b"y" * 8000)  # more than a door waits for
    behind = wire.get_protocol()
    assert isinstance(behind, Connection) and behind.until == until
    wire.abort()


@on_loops()
async def test_bodies_and_pipelines_are_no_heads() -> None:
    """However long they are, and in whatever pieces they come."""
    settings: dict[str, Any] = {"max_request_line_bytes": 1024, "max_header_bytes": 256}
    async with serving(RecordingTracker(), **settings) as address:
        async with connect(address) as client:
            for _ in range(2):
                client.send(request(ANNOUNCE, "Content-Length: 5000"))
                for _ in range(10):
                    client.send(b"a" * 500)
                    await asyncio.sleep(0.001)
                assert (await client.receive()).reply[b"peers"] == b""
        async with connect(address) as client:
            for _ in range(10):
                client.send(request(ANNOUNCE) * 10 + request(ANNOUNCE)[:20])
                await asyncio.sleep(0.001)
                client.send(request(ANNOUNCE)[20:])
            for _ in range(110):
                assert (await client.receive()).reply[b"peers"] == b""


@on_loops("uvloop")
async def test_between_two_requests_there_is_more_time_than_for_a_head() -> None:
    for first in (ANNOUNCE, "/health"):
        async with serving(RecordingTracker(), header_seconds=0.1, keepalive_seconds=60) as address:
            async with connect(address) as client:
                await client.get(first)
                await asyncio.sleep(0.5)
                assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""


class _Guest:
    until = 0
    idle = True
    fresh = False

    def wind_up(self) -> None: ...

    def cut_off(self) -> None: ...


def test_it_remembers_nobody_who_left_and_takes_a_network_for_one() -> None:
    refused: list[str] = []
    crowd = Crowd(HttpSettings(max_connections_per_address=2), refused.append)
    network = ipaddress.ip_address("2001:db8:0:1::").packed
    guests = [_Guest() for _ in range(4)]
    entered = [
        crowd.enter(guest, Address(network[:8] + bytes([place] * 8)), trusted=False)
        for place, guest in enumerate(guests[:3])
    ]
    assert entered == [True, True, False] and refused == [TOO_MANY]
    assert crowd.enter(guests[3], Address(ipaddress.ip_address("2001:db8:0:2::").packed), trusted=False)
    for guest in guests:
        crowd.leave(guest)
    assert len(crowd) == 0 and not crowd._places


@on_loops()
async def test_thousands_that_are_overdue_do_not_stop_the_loop() -> None:
    """They go in portions, and all of them go."""
    cut: list[_Guest] = []

    class Overdue(_Guest):
        def cut_off(self) -> None:
            cut.append(self)
            crowd.leave(self)

    crowd = Crowd(HttpSettings(header_seconds=0.01, keepalive_seconds=0.01), lambda label: None)
    for _ in range(1000):
        crowd.enter(Overdue(), Address(b""), trusted=False)
    crowd.sweep()
    assert len(cut) < 200
    await until(lambda: len(cut) == 1000)
    crowd.stop()
