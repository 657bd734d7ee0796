"""The admin port over real sockets: probes, headers, errors, addresses, stopping."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.admin.conftest import Admin, Serve
from tests.raw_http import ask, connect
from tests.waiting import within
from tracker.admin.http.connections import HEADERS, STOPPING, Limits, serving
from tracker.admin.http.problems import CONTENT_TYPE
from tracker.admin.server import serve_admin
from tracker.errors import StartupError
from tracker.system.listeners import open_listeners


async def test_probes_need_no_token(admin: Admin) -> None:
    async with admin.client() as client:
        for path, text in (("/health", "alive\n"), ("/ready", "ready\n")):
            response = await client.get(path)
            assert (response.status, await response.text()) == (200, text)
            assert (await client.head(path)).status == 200
        admin.problems.append("the store does not response")
        response = await client.get("/ready")
        assert (response.status, await response.text()) == (503, "the store does not response\n")
        assert (await client.head("/ready")).status == 503
        assert (await client.get("/health")).status == 200


async def test_probes_accept_the_address_as_host_name(serve: Serve) -> None:
    """Kubernetes does that. The port listens on all addresses and recognises the local one."""
    admin = await serve(listen=("0.0.0.0:0",))
    port = admin.addresses[0].rpartition(":")[2]
    response = await ask(f"127.0.0.2:{port}", f"GET /health HTTP/1.1\nHost: 127.0.0.2:{port}")
    assert response.status == 200
    response = await ask(f"127.0.0.2:{port}", "GET /health HTTP/1.1\nHost: 127.0.0.3")
    assert response.status == 421


EVERYWHERE = ["/health", "/sign-in", "/static/sign_in.js", "/nothing", "/api/v1/nothing", "/", "/metrics"]


@pytest.mark.parametrize("path", EVERYWHERE)
async def test_every_response_has_the_security_headers(admin: Admin, path: str) -> None:
    async with admin.client() as stranger, admin.client("read") as reader:
        for client in (stranger, reader):
            for method in ("GET", "HEAD", "POST"):
                response = await client.request(method, path, allow_redirects=False)
                assert {name: response.headers.get(name) for name in HEADERS} == HEADERS
                assert "Server" not in response.headers
                kept = response.headers["Cache-Control"]
                assert kept == ("no-cache" if path.startswith("/static/") and response.status == 200 else "no-store")


async def test_the_csp_allows_no_foreign_sources() -> None:
    policy = dict(part.split(" ", 1) for part in HEADERS["Content-Security-Policy"].split("; "))
    assert policy.pop("img-src") == "'self' data:"
    for name in ("default-src", "base-uri", "frame-ancestors"):
        assert policy.pop(name) == "'none'"
    assert set(policy) == {"script-src", "style-src", "connect-src", "font-src", "form-action"}
    assert set(policy.values()) == {"'self'"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nothing", 404),
        ("POST", "/api/v1/nothing", 404),
        ("PUT", "/metrics", 405),
        ("OPTIONS", "/metrics", 405),
        ("TRACE", "/metrics", 405),
        ("POST", "/health", 405),
        ("PROPFIND", "/health", 405),
    ],
)
async def test_unknown_paths_and_methods_are_problems(admin: Admin, method: str, path: str, status: int) -> None:
    async with admin.client("admin") as client:
        response = await client.request(method, path)
        assert (response.status, response.content_type) == (status, CONTENT_TYPE)
        problem = await response.json()
        assert problem["status"] == status and problem["title"] and problem["detail"]
        assert ("Allow" in response.headers) == (status == 405)


async def test_a_head_response_has_no_body(admin: Admin) -> None:
    token = await admin.token("read")
    async with connect(admin.addresses[0]) as line:
        for path in ("/health", "/sign-in", "/api/v1/nothing", "/static/sign_in.js"):
            line.send(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            assert (await line.receive(head=True)).status == (404 if "nothing" in path else 200)


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("NONSENSE", 400),
        ("GET / HTTP/1.1", 400),
        ("GET / HTTP/1.0", 400),
        ("GET /\x00 HTTP/1.1\nHost: localhost", 400),
        ("FETCH! / HTTP/1.1\nHost: localhost", 400),
        ("GET http://evil.example/ HTTP/1.1\nHost: localhost", 400),
        ("OPTIONS * HTTP/1.1\nHost: localhost", 400),
        ("GET / HTTP/1.1\nHost: localhost\nHost: evil.example", 400),
        ("GET / HTTP/1.1\nHost: localhost\nContent-Length: 1\nTransfer-Encoding: chunked", 400),
        ("GET / HTTP/1.1\nHost: localhost\nContent-Length: -1", 400),
        ("GET /sign-in HTTP/1.1\nHost: localhost\nExpect: a-miracle", 417),
    ],
)
async def test_malformed_requests_are_problems(
    admin: Admin, request_text: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    response = await ask(admin.addresses[0], request_text)
    assert response.status == status, response
    assert response.headers["content-type"] == CONTENT_TYPE
    assert json.loads(response.body)["status"] == status
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "server" not in response.headers
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


async def test_an_unavailable_store_is_reported(serve: Serve) -> None:
    admin = await serve()
    await admin.token("read")
    async with admin.client("read") as client, admin.browser("read") as browser:
        admin.store.connection._lost(OSError())
        response = await client.get("/metrics/nothing")
        assert (response.status, response.content_type) == (503, CONTENT_TYPE)
        assert int(response.headers["Retry-After"]) > 0
        assert (await browser.get("/")).status == 503
        assert (await browser.get("/health")).status == 200
        assert (await browser.get("/sign-in")).status == 200


async def test_a_unix_socket_is_served(serve: Serve, tmp_path: Path) -> None:
    admin = await serve(listen=(f"unix:{tmp_path / 's'}",), hosts=("tracker.example",))
    path = str(tmp_path / "s")
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as client:
        assert (await client.get("http://tracker.example/health")).status == 200
        assert (await client.get("http://evil.example/health")).status == 421
        response = await client.get("http://tracker.example/api/v1/nothing")
        assert response.status == 401
        headers = {"Authorization": f"Bearer {await admin.token('read')}"}
        assert (await client.get("http://tracker.example/api/v1/nothing", headers=headers)).status == 404


async def test_an_address_in_use_is_reported(admin: Admin) -> None:
    with pytest.raises(StartupError, match="in use"):
        async with serve_admin(
            admin.context, admin.context.settings.admin.model_copy(update={"listen": admin.addresses})
        ):
            pass


async def test_ipv6_is_served_beside_ipv4(serve: Serve) -> None:
    admin = await serve(listen=("127.0.0.1:0", "[::1]:0"))
    async with aiohttp.ClientSession() as client:
        for address in admin.addresses:
            assert (await client.get(f"http://{address}/health")).status == 200


async def test_stopping_ends_streams_and_waits_for_requests_in_flight(no_task_left_behind: None) -> None:
    """A stream that reads its end, a stream that does not, and an idle connection."""
    heard = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"a")
        await request.app[STOPPING].wait()
        heard.set()
        return response

    async def deaf(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"a")
        await asyncio.Event().wait()
        return response

    app = web.Application()
    app[STOPPING] = asyncio.Event()

    async def stop(app: web.Application) -> None:
        app[STOPPING].set()

    app.on_shutdown.append(stop)
    app.add_routes([web.get("/stream", stream), web.get("/deaf", deaf)])
    listeners = await open_listeners(["127.0.0.1:0"])
    url = f"http://{listeners[0].address}"
    async with aiohttp.ClientSession() as client, connect(listeners[0].address), AsyncExitStack() as served:
        await served.enter_async_context(serving(app, listeners, Limits(stop_seconds=0.2)))
        responses = [await client.get(f"{url}/{path}") for path in ("stream", "deaf")]
        assert [await response.content.readexactly(1) for response in responses] == [b"a", b"a"]
        with within(10):
            await served.aclose()
        assert heard.is_set()
        for response in responses:
            response.close()
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get(url)


async def test_the_host_name_of_the_configured_url_is_accepted(serve: Serve) -> None:
    admin = await serve(url="https://desk.example:8443")
    async with admin.client("read") as client:
        for host, status in (("desk.example", 200), ("desk.example:8443", 200), ("other.example", 421)):
            async with client.get("/api/v1/torrents", headers={"Host": host}) as response:
                assert response.status == status, host
