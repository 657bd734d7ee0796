"""Problem details (RFC 9457): their members, and what they hide."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest
import structlog
from aiohttp import web
from redis.exceptions import OutOfMemoryError

from tracker.admin.http.connections import Limits, serving
from tracker.admin.http.problems import CONTENT_TYPE, Problem, problem_middleware
from tracker.errors import ClientError, StoreUnavailable
from tracker.system.listeners import open_listeners


@asynccontextmanager
async def answering(handle: Callable[[web.Request], Any], **options: Any) -> AsyncIterator[str]:
    """The URL of a port with this handler at /x/{secret}."""
    app = web.Application(middlewares=[problem_middleware], **options)
    app.router.add_route("*", "/x/{secret}", handle)
    listeners = await open_listeners(["127.0.0.1:0"])
    async with serving(app, listeners, Limits()):
        yield f"http://{listeners[0].address}/x/passkey"


def raising(error: BaseException) -> Callable[[web.Request], Any]:
    async def handle(_request: web.Request) -> web.Response:
        raise error

    return handle


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (Problem(409, detail="it exists"), 409, "it exists"),
        (Problem(418), 418, None),
        (ClientError("there is no such user"), 400, "there is no such user"),
        (StoreUnavailable("redis://me:hunter2@store"), 503, "store unavailable; try again later"),
        (
            OutOfMemoryError("command hunter2 not allowed"),
            503,
            "store full; no new data is accepted until memory is freed",
        ),
        (web.HTTPNotFound(text="hunter2"), 404, "page not found"),
        (web.HTTPForbidden(text="hunter2"), 403, None),
    ],
)
async def test_exceptions_become_problem_details(error: Exception, status: int, detail: str | None) -> None:
    with structlog.testing.capture_logs() as logs:
        async with answering(raising(error)) as url, aiohttp.ClientSession() as client:
            response = await client.get(url)
            assert (response.status, response.content_type) == (status, CONTENT_TYPE)
            body = json.loads(await response.read())
    assert body.pop("title")
    assert body == {"type": "about:blank", "status": status, **({"detail": detail} if detail else {})}
    assert not logs


async def test_a_problem_can_have_extra_members() -> None:
    error = Problem(422, detail="look", headers={"X-More": "yes"}, errors=[{"field": "name"}])
    async with answering(raising(error)) as url, aiohttp.ClientSession() as client:
        response = await client.get(url)
        assert await response.json() == {
            "type": "about:blank",
            "title": HTTPStatus(422).phrase,
            "status": 422,
            "detail": "look",
            "errors": [{"field": "name"}],
        }
        assert response.headers["X-More"] == "yes"


@pytest.mark.parametrize("error", [RuntimeError("hunter2"), KeyError("hunter2"), TimeoutError("hunter2")])
async def test_internal_errors_are_logged_and_not_shown(error: Exception) -> None:
    with structlog.testing.capture_logs() as logs:
        async with answering(raising(error)) as url, aiohttp.ClientSession() as client:
            response = await client.get(url)
            body = await response.text()
    assert response.status == 500 and "hunter2" not in body and type(error).__name__ not in body
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("admin request failed", "error")
    assert line["exc_info"] is error
    assert line["route"] == "GET /x/{secret}"


async def test_an_error_within_a_response_closes_the_connection() -> None:
    go_on = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        await go_on.wait()
        raise RuntimeError("hunter2")

    with structlog.testing.capture_logs() as logs:
        async with answering(handle) as url, aiohttp.ClientSession() as client:
            response = await client.get(url)
            go_on.set()
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
    assert [line["log_level"] for line in logs] == ["error"]


async def test_redirects_are_passed_on() -> None:
    async with answering(raising(web.HTTPSeeOther("/there"))) as url, aiohttp.ClientSession() as client:
        response = await client.get(url, allow_redirects=False)
        assert (response.status, response.headers["Location"]) == (303, "/there")


async def test_too_large_and_broken_bodies_are_not_logged_as_errors() -> None:
    begun = asyncio.Event()

    async def handle(request: web.Request) -> web.Response:
        begun.set()
        return web.Response(body=await request.read())

    with structlog.testing.capture_logs() as logs:
        async with answering(handle, client_max_size=1000) as url, aiohttp.ClientSession() as client:
            response = await client.post(url, data=b"a" * 1001)
            assert (response.status, response.content_type) == (413, CONTENT_TYPE)
            begun.clear()
            host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /x/a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
            await begun.wait()
            writer.transport.abort()
    assert not logs
