"""Nobody is let in while too many wait, everybody before and after."""

import asyncio
import contextlib
import errno
from collections.abc import Callable

import pytest

from tests.frontends.conftest import Logs
from tests.frontends.harness import ANNOUNCE, PATIENCE, RecordingTracker, connect, on_loops, request, serving
from tracker.frontends import gate
from tracker.frontends.gate import FEW_WAITING, MANY_WAITING
from tracker.listeners import Listener, open_listeners


@on_loops()
async def test_in_a_rush_those_inside_are_answered_and_the_others_wait(logs: Logs) -> None:
    tracker = RecordingTracker()
    async with serving(tracker) as address, contextlib.AsyncExitStack() as stack:
        inside = await stack.enter_async_context(connect(address))
        await inside.get(ANNOUNCE)
        tracker.waiting = MANY_WAITING
        last = await stack.enter_async_context(connect(address))  # whose coming closes the gate
        assert (await last.get(ANNOUNCE)).reply[b"peers"] == b""
        outside = [await stack.enter_async_context(connect(address)) for _ in range(3)]
        for client in outside:
            client.send(request(ANNOUNCE))
        asked = len(tracker.announces)
        for _ in range(3):
            assert (await inside.get(ANNOUNCE)).reply[b"peers"] == b""
            assert (await last.get(ANNOUNCE)).reply[b"peers"] == b""
            tracker.waiting -= 1
        assert len(tracker.announces) == asked + 6
        tracker.waiting = FEW_WAITING
        async with asyncio.timeout(PATIENCE):
            assert [(await client.receive()).reply[b"peers"] for client in outside] == [b""] * 3
        for _ in range(20):  # a second rush is told of a minute later at the soonest
            tracker.waiting = MANY_WAITING
            await stack.enter_async_context(connect(address))
            await asyncio.sleep(0)
            tracker.waiting = 0
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "more connections than can be served: some have to wait"
    ]


@on_loops()
async def test_those_inside_cannot_keep_the_others_out_for_good() -> None:
    tracker = RecordingTracker()
    async with serving(tracker) as address, contextlib.AsyncExitStack() as stack:
        tracker.waiting = MANY_WAITING
        outside = [await stack.enter_async_context(connect(address)) for _ in range(100)]
        for client in outside:
            client.send(request(ANNOUNCE))
        async with asyncio.timeout(PATIENCE):
            assert [(await client.receive()).reply[b"peers"] for client in outside] == [b""] * 100


@on_loops()
async def test_a_stop_in_a_rush_is_graceful() -> None:
    tracker = RecordingTracker()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tracker) as address:
            inside = await stack.enter_async_context(connect(address))
            await inside.get(ANNOUNCE)
            tracker.waiting = MANY_WAITING
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
        tracker.waiting = MANY_WAITING
        async with connect(address) as last:
            await last.get(ANNOUNCE)
            tracker.waiting = 0
            async with connect(address) as outside:
                assert (await outside.get(ANNOUNCE)).reply[b"peers"] == b""
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
    opening = gate.Gate(listeners, asyncio.Protocol, lambda: 0)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(opening.open())
        await stuck.wait()
        task.cancel()
    assert task.cancelled() and not opened[0].is_serving()
    for listener in listeners:
        listener.close()
