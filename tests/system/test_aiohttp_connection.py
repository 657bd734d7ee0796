"""The guard that the connections of both HTTP ports share. What each port adds has its tests there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.web_protocol import RequestHandler

from tests.raw_http import connect
from tracker.system.aiohttp_connection import GuardedConnection, GuardedServer

LARGE = b"x" * 30_000_000


class Connection(GuardedConnection):
    __slots__ = ()

    def malformed_reply(self, error: BaseException | None) -> web.StreamResponse:
        return web.Response(status=400, text="malformed")

    def crash_reply(self, request: web.BaseRequest, error: BaseException | None) -> web.StreamResponse:
        return web.Response(status=500, text=str(error))

    def log_failure(self, error: Any) -> None:
        raise AssertionError("logged") from error


class Server(GuardedServer):
    """``lost`` is set when a connection has ended."""

    def __init__(self, idle_seconds: float = 60.0) -> None:
        super().__init__(reply, idle_seconds, max_line_size=1000, max_field_size=1000)
        self.lost = asyncio.Event()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.lost.set()

    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._kwargs)


async def reply(request: web.BaseRequest) -> web.StreamResponse:
    if request.path == "/crash":
        raise RuntimeError("crashed")
    return web.Response(body=LARGE if request.path == "/large" else b"ok")


@contextlib.asynccontextmanager
async def port(server: Server | None = None) -> AsyncIterator[str]:
    server = server or Server()
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        await server.shutdown(1.0)


def head(path: str = "/", *lines: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


async def test_a_head_longer_than_line_and_headers_may_be_closes_the_connection() -> None:
    """Each line is short enough; their sum is not."""
    async with port() as address, connect(address) as client:
        client.send(head()[:-2] + b"".join(b"X-%d: %b\r\n" % (number, b"a" * 200) for number in range(10)))
        assert await client.is_closed()


async def test_a_head_is_counted_anew_after_each_request() -> None:
    async with port() as address, connect(address) as client:
        for _ in range(3):
            request = head("/", "X-Long: " + "a" * 900)
            client.send(request[:500])
            client.send(request[500:])
            assert (await client.receive()).body == b"ok"


async def test_malformed_requests_get_the_reply_of_the_port() -> None:
    async with port() as address, connect(address) as client:
        client.send(b"nonsense\r\n\r\n")
        answer = await client.receive()
        assert (answer.status, answer.body) == (400, b"malformed")


async def test_a_handler_that_raises_gets_the_reply_of_the_port() -> None:
    async with port() as address, connect(address) as client:
        client.send(head("/crash"))
        answer = await client.receive()
        assert (answer.status, answer.body) == (500, b"crashed")


async def test_a_client_that_does_not_read_its_reply_is_disconnected() -> None:
    """The client reads nothing until the server has given up, which ``Server.lost`` says."""
    server = Server(idle_seconds=0.05)
    async with port(server) as address:
        reader, writer = await asyncio.open_connection(*address.split(":"), limit=1024)
        writer.write(head("/large"))
        async with asyncio.timeout(20):
            await server.lost.wait()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(len(LARGE))
        writer.transport.abort()


@pytest.mark.parametrize("error", [BadHttpMessage("broken"), ConnectionResetError("gone"), None])
async def test_only_errors_of_our_own_are_logged(error: Exception | None) -> None:
    connection = Server()()
    if error is not None:
        connection.log_exception("Unhandled exception", exc_info=error)
    else:
        with pytest.raises(AssertionError, match="logged"):
            connection.log_exception("Unhandled exception", exc_info=KeyError("ours"))
