"""Bounds of the admin port's connections: their number, their patience, what they take."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import structlog
from aiohttp import web

from tests.admin.raw import wire
from tracker.admin.connections import MAX_HEADERS, Limits, serving
from tracker.admin.problems import explained
from tracker.listeners import open_listeners

BRIEF = Limits(idle_seconds=0.5, body_seconds=0.3)
LARGE = b"x" * 30_000_000


@asynccontextmanager
async def port(limits: Limits) -> AsyncIterator[str]:
    """The address of a port that answers /echo with the body it got, and /large with a lot."""

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async def large(_request: web.Request) -> web.Response:
        return web.Response(body=LARGE)

    app = web.Application(middlewares=[explained], client_max_size=100_000)
    app.add_routes([web.route("*", "/echo", echo), web.get("/large", large)])
    listeners = await open_listeners(["127.0.0.1:0"])
    with structlog.testing.capture_logs() as logs:
        async with serving(app, listeners, limits):
            yield listeners[0].address
    assert not logs


def head(path: str = "/echo", *lines: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /echo HTTP/1.1\r\nHost: loc", head()])
async def test_who_asks_nothing_is_cut_off(sent: bytes) -> None:
    """Nothing at all, half a head, and a whole request with nothing after it."""
    async with port(BRIEF) as address, wire(address) as line:
        line.send(sent)
        if sent.endswith(b"\r\n\r\n"):
            assert (await line.receive()).status == 200
        assert await line.is_closed()


async def test_a_slow_body_is_given_up() -> None:
    async with port(BRIEF) as address, wire(address) as line:
        line.send(head("/echo", "Content-Length: 10", method="POST") + b"abc")
        answer = await line.receive()
        assert answer.status == 408 and b"too long" in answer.body
        assert await line.is_closed()


async def test_a_body_in_drops_is_given_up_just_the_same() -> None:
    async with port(BRIEF) as address, wire(address) as line:
        line.send(head("/echo", "Transfer-Encoding: chunked", method="POST"))
        answer = asyncio.Task(line.receive())
        while not answer.done():
            line.send(b"1\r\na\r\n")
            await asyncio.sleep(0.05)
        assert (await answer).status == 408


async def test_a_body_in_time_is_read() -> None:
    async with port(Limits(body_seconds=60)) as address, wire(address) as line:
        line.send(head("/echo", "Content-Length: 6", method="POST") + b"abc")
        line.send(b"def" + head())
        assert (await line.receive()).body == b"abcdef"
        assert (await line.receive()).status == 200


async def test_who_does_not_read_is_cut_off() -> None:
    async with port(BRIEF) as address:
        host, _, number = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(number), limit=1024)
        writer.write(head("/large"))
        got = 0
        await reader.read(1)
        await asyncio.sleep(1)  # the reader's own buffer is full, and then the kernel's
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            async with asyncio.timeout(20):
                got = len(await reader.readexactly(len(LARGE)))
        assert got < len(LARGE)
        writer.transport.abort()


async def test_a_body_without_end_is_refused_when_it_gets_too_large() -> None:
    async with port(Limits()) as address, wire(address) as line:
        line.send(head("/echo", "Transfer-Encoding: chunked", method="POST"))
        answer = asyncio.Task(line.receive())
        sent = 0
        while not answer.done() and sent < 50_000_000:
            line.send(b"2710\r\n" + b"a" * 10_000 + b"\r\n")
            sent += 10_000
            await line.flushed()
            await asyncio.sleep(0)
        assert (await answer).status == 413
        assert sent < 10_000_000


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (head("/" + "a" * 9000), 431),
        (head("/echo", "X-Long: " + "a" * 9000), 431),
        (head("/echo", *(f"X-{number}: a" for number in range(MAX_HEADERS + 10))), 400),
        (head("/echo", "Cookie: " + "a=b; " * 1500), 200),
    ],
)
async def test_heads_are_bounded(request_head: bytes, status: int) -> None:
    async with port(Limits()) as address, wire(address) as line:
        line.send(request_head)
        assert (await line.receive()).status == status


async def test_a_head_without_end_is_refused() -> None:
    async with port(Limits()) as address, wire(address) as line:
        line.send(b"GET /echo HTTP/1.1\r\nHost: localhost\r\nX-Bomb: ")
        answer = asyncio.Task(line.receive())
        sent = 0
        while not answer.done() and sent < 50_000_000:
            line.send(b"a" * 10_000)
            sent += 10_000
            await line.flushed()
            await asyncio.sleep(0)
        assert (await answer).status == 431
        assert sent < 10_000_000


@pytest.mark.parametrize(
    "before", [b"", head(), head("/echo", "Content-Length: 5", method="POST") + b"hello"]
)
async def test_a_head_is_only_so_long_in_all(before: bytes) -> None:
    """And 64 lines of 8 kB are half a megabyte, of as many connections as there may be."""
    async with port(Limits(idle_seconds=60)) as address, wire(address) as line:
        if before:
            line.send(before)
            assert (await line.receive()).status == 200
        line.send(head()[:-2])
        closed, sent = asyncio.Task(line.is_closed()), 0
        while not closed.done() and sent < MAX_HEADERS - 4:
            sent += 1
            line.send(b"X-%d: %b\r\n" % (sent, b"a" * 1000))
            await line.flushed()
            await asyncio.sleep(0.002)
        assert await closed and 10 <= sent < MAX_HEADERS - 4


async def test_bodies_and_pipelines_are_no_heads() -> None:
    async with port(Limits()) as address, wire(address) as line, wire(address) as other:
        other.send(head("/echo", "Content-Length: 90000", method="POST"))
        for _ in range(90):
            other.send(b"a" * 1000)
            await asyncio.sleep(0.001)
        assert len((await other.receive()).body) == 90_000
        for _ in range(10):
            line.send(head() * 40 + head()[:20])
            await asyncio.sleep(0.001)
            line.send(head()[20:])
        for _ in range(410):
            assert (await line.receive()).status == 200


async def test_a_head_in_drops_is_given_up_just_the_same() -> None:
    async with port(BRIEF) as address, wire(address) as line:
        line.send(head())
        assert (await line.receive()).status == 200
        closed, dripping = asyncio.Task(line.is_closed()), iter(head() + b"X" * 5000)
        while not closed.done():
            line.send(bytes([next(dripping)]))
            await asyncio.sleep(0.02)
        assert await closed


async def test_compressed_bodies_stay_as_they_are() -> None:
    async with port(Limits()) as address, wire(address) as line:
        line.send(head("/echo", "Content-Encoding: gzip", "Content-Length: 3", method="POST") + b"abc")
        assert (await line.receive()).body == b"abc"


async def test_the_oldest_that_says_nothing_makes_room() -> None:
    async with port(Limits(connections=3)) as address, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(wire(address)) for _ in range(3)]
        for line in silent:
            line.send(head()[:-2])
        newcomers = [await stack.enter_async_context(wire(address)) for _ in range(2)]
        for line in newcomers:
            line.send(head("/echo", "Content-Length: 1", method="POST"))
        assert await silent[0].is_closed() and await silent[1].is_closed()
        for line in (silent[2], *newcomers):
            line.send(b"\r\n" if line is silent[2] else b"a")
            assert (await line.receive()).status == 200


async def test_there_is_a_most_of_connections() -> None:
    async with port(Limits(connections=3)) as address, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(wire(address)) for _ in range(3)]
        for line in lines:
            expecting = ("Content-Length: 1", "Connection: close", "Expect: 100-continue")
            line.send(head("/echo", *expecting, method="POST"))
            assert (await line.receive(head=True)).status == 100
        async with wire(address) as one_too_many:
            assert await one_too_many.is_closed()
        lines[0].send(b"a")
        assert (await lines[0].receive()).status == 200
        assert await lines[0].is_closed()
        async with wire(address) as line:
            line.send(head())
            assert (await line.receive()).status == 200
