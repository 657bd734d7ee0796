"""Whoever would wait too long is turned away; a graceful stop lets in who has come."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import pytest

from tests.frontends.conftest import Logs
from tests.frontends.harness import ANNOUNCE, PATIENCE, RecordingTracker, connect, on_loops, request, serving
from tracker import listeners
from tracker.errors import Busy
from tracker.frontends import gate
from tracker.frontends.gate import TURNED_AWAY
from tracker.listeners import Listener, open_listeners

NEWCOMERS, BACKLOG = 40, 40
CROWDED, CUT = int(gate.CROWDED * BACKLOG), int(gate.CUT * BACKLOG)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "BACKLOG", BACKLOG)
    monkeypatch.setattr(gate, "_GLANCE_SECONDS", 0.0)
    monkeypatch.setattr(gate, "_PAUSES", 0)


def _newcomers(address: str, number: int = NEWCOMERS) -> list[socket.socket]:
    """Connections that have all come before the tracker could look: nothing here gives way to its loop."""
    host, port = address.rsplit(":", 1)
    came = [socket.create_connection((host, int(port))) for _ in range(number)]
    for sock in came:
        sock.sendall(request(ANNOUNCE))
    return came


async def _fate(sock: socket.socket) -> bytes:
    """The beginning of its answer; nothing where it was closed."""
    sock.setblocking(False)
    async with asyncio.timeout(PATIENCE):
        try:
            return await asyncio.get_running_loop().sock_recv(sock, 15)
        except ConnectionError:
            return b""
        finally:
            sock.close()


@on_loops("uvloop")  # asyncio's own takes in all who have come, so its queue is never long
async def test_a_queue_that_is_too_long_is_cut_and_those_left_are_served(logs: Logs) -> None:
    tracker = RecordingTracker()
    async with serving(tracker) as address:
        for _ in range(2):  # it is told of once
            fates = [await _fate(sock) for sock in _newcomers(address)]
            assert fates.count(b"HTTP/1.1 200 OK") + fates.count(b"") == NEWCOMERS
            assert CUT <= fates.count(b"HTTP/1.1 200 OK") <= CROWDED
        assert tracker.labels == [TURNED_AWAY] * (2 * NEWCOMERS - len(tracker.announces))
        assert all(await asyncio.gather(*[_fate(sock) for sock in _newcomers(address, CROWDED)]))
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "more connections than can be served: some are turned away"
    ]


@on_loops("uvloop")
async def test_turning_away_leaves_time_for_those_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come: for a while after a cut nobody is turned away, and whoever has come is served in turn."""
    monkeypatch.setattr(gate, "_PAUSES", 1_000_000)
    tracker = RecordingTracker()
    async with serving(tracker) as address:
        first = [await _fate(sock) for sock in _newcomers(address)]
        assert first.count(b"")
        assert all([await _fate(sock) for sock in _newcomers(address)])


@on_loops("uvloop")
async def test_processes_that_cut_one_queue_cut_no_more_than_one_would() -> None:
    told, others = list[int](), list[socket.socket]()

    def another_cuts_too(end: object) -> bool:
        with contextlib.suppress(BlockingIOError):
            others.append(listener.socket.accept()[0])
        return False

    (listener,) = await open_listeners(["127.0.0.1:0"])
    opening = gate.Gate([listener], asyncio.Protocol, told.append, another_cuts_too)
    await opening.open()
    came = _newcomers(listener.address)
    opening.entered()
    length, _ = listener.queue
    for sock in came + others:
        sock.close()
    await opening.shut()
    assert CUT - 1 <= length <= CUT and sum(told) + len(others) == NEWCOMERS - length


@on_loops("uvloop")
async def test_a_proxy_is_not_turned_away(logs: Logs) -> None:
    """It would take a connection that is closed for a server that is down. What it asks is refused with words."""
    tracker = RecordingTracker()
    async with serving(tracker, trusted_proxies=["127.0.0.1/32"]) as address:
        assert [await _fate(sock) for sock in _newcomers(address)] == [b"HTTP/1.1 200 OK"] * NEWCOMERS
    assert TURNED_AWAY not in tracker.labels
    assert not [line for line in logs if line["log_level"] == "warning"]


@on_loops()
async def test_who_is_told_that_it_is_busy_has_to_go_unless_it_is_a_proxy() -> None:
    tracker = RecordingTracker()
    tracker.error = Busy("busy", retry_in=5)
    async with serving(tracker) as address, connect(address) as client:
        told = await client.get(ANNOUNCE)
        assert (told.failure, told.reply[b"retry in"], told.headers["connection"]) == ("busy", 5, "close")
        assert await client.is_closed()
    async with serving(tracker, trusted_proxies=["127.0.0.1/32"]) as address, connect(address) as proxy:
        for _ in range(2):
            assert (await proxy.get(ANNOUNCE, "X-Forwarded-For: 11.0.0.1")).failure == "busy"


@on_loops()
async def test_a_stop_in_a_rush_is_graceful() -> None:
    tracker = RecordingTracker()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tracker) as address:
            inside = await stack.enter_async_context(connect(address))
            await inside.get(ANNOUNCE)
            came = _newcomers(address, CROWDED)
        assert [await _fate(sock) for sock in came] == [b"HTTP/1.1 200 OK"] * CROWDED
        assert await inside.is_closed()


@on_loops()
async def test_stopped_between_two_listeners_it_closes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, stuck = Listener.accept, asyncio.Event()
    opened: list[asyncio.Server] = []

    async def second_waits(self: Listener, server: Callable[[], asyncio.Protocol]) -> asyncio.Server:
        if opened:
            stuck.set()
            await asyncio.Event().wait()
        opened.append(await accept(self, server))
        return opened[0]

    monkeypatch.setattr(Listener, "accept", second_waits)
    opened_listeners = await open_listeners(["127.0.0.1:0", "127.0.0.1:0"])
    opening = gate.Gate(opened_listeners, asyncio.Protocol, lambda number: None, lambda end: False)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(opening.open())
        await stuck.wait()
        task.cancel()
    assert task.cancelled() and not opened[0].is_serving()
    for listener in opened_listeners:
        listener.close()
