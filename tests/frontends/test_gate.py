"""Nobody is let in while too many wait, everybody before and after."""

import asyncio
import contextlib
import errno
from collections.abc import Callable

import pytest

from tests.frontends.conftest import Logs
from tests.frontends.harness import ANNOUNCE, PATIENCE, RecordingTracker, connect, on_loops, request, serving
from tracker.errors import Busy
from tracker.frontends import gate
from tracker.frontends.gate import CALM, RUSH, TURNED_AWAY
from tracker.listeners import Listener, open_listeners


async def _until_let_in(address: str) -> None:
    """Whoever is turned away tries again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with connect(address) as client:
                    assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""
                    return


@on_loops()
async def test_in_a_rush_those_inside_are_answered_and_others_turned_away(logs: Logs) -> None:
    tracker = RecordingTracker()
    async with serving(tracker) as address, contextlib.AsyncExitStack() as stack:
        inside = await stack.enter_async_context(connect(address))
        await inside.get(ANNOUNCE)
        tracker.load = RUSH
        last = await stack.enter_async_context(connect(address))  # whose coming closes the gate
        assert (await last.get(ANNOUNCE)).reply[b"peers"] == b""
        for number in range(1, 4):
            async with connect(address) as outside:
                outside.send(request(ANNOUNCE))
                assert await outside.is_closed()
            assert tracker.labels == [TURNED_AWAY] * number
            assert (await inside.get(ANNOUNCE)).reply[b"peers"] == b""
            assert (await last.get(ANNOUNCE)).reply[b"peers"] == b""
            tracker.load -= 0.01
        assert len(tracker.announces) == 8
        tracker.load = CALM
        await _until_let_in(address)
        for _ in range(20):  # a second rush is told of a minute later at the soonest
            tracker.load = RUSH
            with contextlib.suppress(OSError):
                await stack.enter_async_context(connect(address))
            await asyncio.sleep(0)
            tracker.load = 0
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "more connections than can be served: some are turned away"
    ]


@on_loops()
async def test_a_proxy_is_let_in_always() -> None:
    """It would take one connection that is closed for a server that is down. What it asks is refused with words."""
    tracker = RecordingTracker()
    async with (
        serving(tracker, trusted_proxies=["127.0.0.1/32"]) as address,
        contextlib.AsyncExitStack() as stack,
    ):
        tracker.load = RUSH
        for _ in range(5):
            proxy = await stack.enter_async_context(connect(address))
            assert (await proxy.get(ANNOUNCE, "X-Forwarded-For: 11.0.0.1")).reply[b"peers"] == b""
    assert not tracker.labels


@on_loops()
async def test_who_is_told_that_it_is_busy_is_asked_to_go_unless_it_is_a_proxy() -> None:
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
async def test_those_inside_cannot_keep_the_others_out_for_good() -> None:
    tracker = RecordingTracker()
    async with serving(tracker) as address, contextlib.AsyncExitStack() as stack:
        tracker.load = RUSH
        await stack.enter_async_context(connect(address))
        await _until_let_in(address)


@on_loops()
async def test_a_stop_in_a_rush_is_graceful() -> None:
    tracker = RecordingTracker()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tracker) as address:
            inside = await stack.enter_async_context(connect(address))
            await inside.get(ANNOUNCE)
            tracker.load = RUSH
            last = await stack.enter_async_context(connect(address))
            await last.get(ANNOUNCE)
            tracker.gate.clear()
            last.send(request(ANNOUNCE))
            while len(tracker.announces) < 3:
                await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.05, tracker.gate.set)
        assert (await last.receive()).reply[b"peers"] == b""
        assert await last.is_closed() and await inside.is_closed()


@on_loops()
async def test_without_file_descriptors_it_tries_again(monkeypatch: pytest.MonkeyPatch, logs: Logs) -> None:
    monkeypatch.setattr(gate, "_AGAIN_SECONDS", 0.01)
    tracker = RecordingTracker()
    async with serving(tracker) as address, connect(address) as inside:
        await inside.get(ANNOUNCE)
        accept, refusals = (
            Listener.accept,
            [OSError(errno.EMFILE, "too many"), OSError(errno.EMFILE, "too many")],
        )

        async def short_of_files(self: Listener, server: Callable[[], asyncio.Protocol]) -> asyncio.Server:
            if refusals:
                raise refusals.pop()
            return await accept(self, server)

        monkeypatch.setattr(Listener, "accept", short_of_files)
        tracker.load = RUSH
        async with connect(address) as last:
            await last.get(ANNOUNCE)
            tracker.load = 0
            await _until_let_in(address)
    assert [line["event"] for line in logs].count("cannot let anybody in yet") == 2


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
    listeners = await open_listeners(["127.0.0.1:0", "127.0.0.1:0"])
    opening = gate.Gate(listeners, asyncio.Protocol, lambda: 0, lambda number: None, lambda end: False)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(opening.open())
        await stuck.wait()
        task.cancel()
    assert task.cancelled() and not opened[0].is_serving()
    for listener in listeners:
        listener.close()
