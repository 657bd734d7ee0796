"""Limits of the admin port's connections: number, deadlines, sizes."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import structlog
from aiohttp import web

from tests.raw_http import connect
from tests.waiting import eventually, loop_turns
from tracker.admin.http.connections import MAX_ANONYMOUS_BODIES, Limits, mark_authenticated, serving
from tracker.admin.http.problems import problem_middleware
from tracker.system.aiohttp_connection import MAX_HEADERS
from tracker.system.listeners import open_listeners

KNOWN = ("Authorization", "known")
BRIEF = Limits(idle_seconds=0.5, body_seconds=0.3)
LARGE = b"x" * 30_000_000


@asynccontextmanager
async def port(limits: Limits) -> AsyncIterator[str]:
    """A port that returns the request body at /echo and 30 MB at /large. The header KNOWN authenticates."""

    async def health(_request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def echo(request: web.Request) -> web.Response:
        if KNOWN in request.headers.items():
            mark_authenticated(request)
        return web.Response(body=await request.read())

    async def large(_request: web.Request) -> web.Response:
        return web.Response(body=LARGE)

    app = web.Application(middlewares=[problem_middleware], client_max_size=100_000)
    app.add_routes([web.route("*", "/echo", echo), web.get("/large", large), web.get("/health", health)])
    listeners = await open_listeners(["127.0.0.1:0"])
    with structlog.testing.capture_logs() as logs:
        async with serving(app, listeners, limits):
            yield listeners[0].address
    assert not logs


def head(path: str = "/echo", *lines: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /echo HTTP/1.1\r\nHost: loc", head()])
async def test_idle_connections_are_closed(sent: bytes) -> None:
    """Connections that send nothing, half a head, or one request and then nothing."""
    async with port(BRIEF) as address, connect(address) as line:
        line.send(sent)
        if sent.endswith(b"\r\n\r\n"):
            assert (await line.receive()).status == 200
        assert await line.is_closed()


async def test_a_slow_body_times_out() -> None:
    async with port(BRIEF) as address, connect(address) as line:
        line.send(head("/echo", "Content-Length: 10", method="POST") + b"abc")
        response = await line.receive()
        assert response.status == 408 and b"timed out" in response.body
        assert await line.is_closed()


async def test_a_body_sent_in_small_pieces_times_out() -> None:
    async with port(BRIEF) as address, connect(address) as line:
        line.send(head("/echo", "Transfer-Encoding: chunked", method="POST"))
        response = asyncio.Task(line.receive())
        while not response.done():
            line.send(b"1\r\na\r\n")
            await loop_turns(20)
        assert (await response).status == 408


async def test_a_body_within_the_deadline_is_read() -> None:
    async with port(Limits(body_seconds=60)) as address, connect(address) as line:
        line.send(head("/echo", "Content-Length: 6", method="POST") + b"abc")
        line.send(b"def" + head())
        assert (await line.receive()).body == b"abcdef"
        assert (await line.receive()).status == 200


def established(port: int) -> bool:
    """Whether the system has an open connection to this port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(local.endswith(f":{port:04X}") and state == "01" for _, local, _, state, *_ in rows)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks into /proc")
async def test_a_client_that_does_not_read_is_disconnected() -> None:
    async with port(BRIEF) as address:
        host, _, number = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(number), limit=1024)
        writer.write(head("/large"))
        got = 0
        await eventually(lambda: not established(int(number)))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            async with asyncio.timeout(20):
                got = len(await reader.readexactly(len(LARGE)))
        assert got < len(LARGE)
        writer.transport.abort()


async def test_an_endless_body_is_refused_once_it_is_too_large() -> None:
    async with port(Limits()) as address, connect(address) as line:
        line.send(head("/echo", "Transfer-Encoding: chunked", method="POST"))
        response = asyncio.Task(line.receive())
        sent = 0
        while not response.done() and sent < 50_000_000:
            line.send(b"2710\r\n" + b"a" * 10_000 + b"\r\n")
            sent += 10_000
            await line.flushed()
            await asyncio.sleep(0)
        assert (await response).status == 413
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
async def test_head_lines_and_their_number_are_bounded(request_head: bytes, status: int) -> None:
    async with port(Limits()) as address, connect(address) as line:
        line.send(request_head)
        assert (await line.receive()).status == status


async def test_an_endless_header_is_refused() -> None:
    async with port(Limits()) as address, connect(address) as line:
        line.send(b"GET /echo HTTP/1.1\r\nHost: localhost\r\nX-Bomb: ")
        response = asyncio.Task(line.receive())
        sent = 0
        while not response.done() and sent < 50_000_000:
            line.send(b"a" * 10_000)
            sent += 10_000
            await line.flushed()
            await asyncio.sleep(0)
        assert (await response).status == 431
        assert sent < 10_000_000


@pytest.mark.parametrize("before", [b"", head(), head("/echo", "Content-Length: 5", method="POST") + b"hello"])
async def test_the_total_size_of_a_head_is_bounded(before: bytes) -> None:
    """64 lines of 8 kB would be half a megabyte for each connection."""
    async with port(Limits(idle_seconds=60)) as address, connect(address) as line:
        if before:
            line.send(before)
            assert (await line.receive()).status == 200
        line.send(head()[:-2])
        closed, sent = asyncio.Task(line.is_closed()), 0
        while not closed.done() and sent < MAX_HEADERS - 4:
            sent += 1
            line.send(b"X-%d: %b\r\n" % (sent, b"a" * 1000))
            await line.flushed()
            await loop_turns(5)
        assert await closed and 10 <= sent < MAX_HEADERS - 4


async def test_bodies_and_pipelined_requests_do_not_count_as_head() -> None:
    async with port(Limits()) as address, connect(address) as line, connect(address) as other:
        other.send(head("/echo", "Content-Length: 90000", method="POST"))
        for _ in range(90):
            other.send(b"a" * 1000)
            await loop_turns(5)
        assert len((await other.receive()).body) == 90_000
        for _ in range(10):
            line.send(head() * 40 + head()[:20])
            await loop_turns(5)
            line.send(head()[20:])
        for _ in range(410):
            assert (await line.receive()).status == 200


async def test_a_head_sent_in_small_pieces_times_out() -> None:
    async with port(BRIEF) as address, connect(address) as line:
        line.send(head())
        assert (await line.receive()).status == 200
        closed, dripping = (
            asyncio.Task(line.is_closed()),
            itertools.chain(head()[:-2] + b"X: ", itertools.repeat(ord("x"))),
        )
        while not closed.done():
            line.send(bytes([next(dripping)]))
            await loop_turns(500)  # so few bytes that the head does not become too large
        assert await closed


async def test_bodies_are_not_decompressed() -> None:
    async with port(Limits()) as address, connect(address) as line:
        line.send(head("/echo", "Content-Encoding: gzip", "Content-Length: 3", method="POST") + b"abc")
        assert (await line.receive()).body == b"abc"


async def test_the_oldest_idle_connection_is_closed_to_make_room() -> None:
    async with port(Limits(connections=3)) as address, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(connect(address)) for _ in range(3)]
        for line in silent:
            line.send(head()[:-2])
        newcomers = [await stack.enter_async_context(connect(address)) for _ in range(2)]
        for line in newcomers:
            line.send(head("/echo", "Content-Length: 1", method="POST"))
        assert await silent[0].is_closed() and await silent[1].is_closed()
        for line in (silent[2], *newcomers):
            line.send(b"\r\n" if line is silent[2] else b"a")
            assert (await line.receive()).status == 200


async def test_the_number_of_connections_is_limited() -> None:
    async with port(Limits(connections=3)) as address, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(connect(address)) for _ in range(3)]
        for line in lines:
            expecting = ("Content-Length: 1", "Connection: close", "Expect: 100-continue", ": ".join(KNOWN))
            line.send(head("/echo", *expecting, method="POST"))
            assert (await line.receive(head=True)).status == 100
        async with connect(address) as one_too_many:
            one_too_many.send(head("/health"))
            assert (await one_too_many.receive()).status == 200
            one_too_many.send(head())
            assert (await one_too_many.receive()).status == 503
            assert await one_too_many.is_closed()
        lines[0].send(b"a")
        assert (await lines[0].receive()).status == 200
        assert await lines[0].is_closed()
        async with connect(address) as line:
            line.send(head())
            assert (await line.receive()).status == 200


def body(*lines: str) -> bytes:
    """A request with a body, without the last byte."""
    return head("/echo", "Content-Length: 3", *lines, method="POST") + b"ab"


async def test_anonymous_bodies_have_a_short_deadline() -> None:
    limits = Limits(body_seconds=60, anonymous_body_seconds=0.3)
    async with port(limits) as address, connect(address) as stranger, connect(address) as known:
        known.send(body(": ".join(KNOWN)))
        stranger.send(body())
        assert (await stranger.receive()).status == 408
        assert await stranger.is_closed()
        known.send(b"c")
        assert (await known.receive()).body == b"abc"


async def test_the_number_of_anonymous_bodies_is_limited() -> None:
    async with port(Limits()) as address, AsyncExitStack() as stack:
        known = [await stack.enter_async_context(connect(address)) for _ in range(2 * MAX_ANONYMOUS_BODIES)]
        for line in known:
            line.send(body(": ".join(KNOWN)))
        strangers = []
        for _ in range(2 * MAX_ANONYMOUS_BODIES):
            strangers.append(await stack.enter_async_context(connect(address)))
            strangers[-1].send(body())
        for line in strangers[:MAX_ANONYMOUS_BODIES]:
            assert await line.is_closed()
        for line in (*known, *strangers[MAX_ANONYMOUS_BODIES:]):
            line.send(b"c")
            assert (await line.receive()).body == b"abc"


@pytest.mark.parametrize("path", ["/echo", "/nowhere"])
async def test_anonymous_bodies_are_closed_to_make_room(path: str) -> None:
    """Also if the request has been refused and the client still sends."""
    unfinished = head(path, "Content-Length: 9", method="POST")
    async with port(Limits(connections=8)) as address, AsyncExitStack() as stack:
        idle = await stack.enter_async_context(connect(address))
        for _ in range(20):
            line = await stack.enter_async_context(connect(address))
            line.send(unfinished)
        for _ in range(3):
            async with connect(address) as newcomer:
                newcomer.send(head())
                assert (await newcomer.receive()).status == 200
        idle.send(head())
        assert (await idle.receive()).status == 200
