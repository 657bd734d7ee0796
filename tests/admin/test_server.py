"""The admin port over real sockets: probes, headers of every answer, errors, addresses, and how it stops."""

import asyncio
import json
import time
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.admin.conftest import Admin, Serve
from tests.admin.raw import ask, wire
from tracker.admin.connections import Limits, serving
from tracker.admin.headers import HEADERS
from tracker.admin.problems import CONTENT_TYPE
from tracker.admin.server import serve_admin
from tracker.admin.stopping import STOPPING
from tracker.errors import StartupError
from tracker.listeners import open_listeners


async def test_probes_need_no_token(admin: Admin) -> None:
    async with admin.client() as client:
        for path, text in (("/health", "alive\n"), ("/ready", "ready\n")):
            answer = await client.get(path)
            assert (answer.status, await answer.text()) == (200, text)
            assert (await client.head(path)).status == 200
        admin.problems.append("the store does not answer")
        answer = await client.get("/ready")
        assert (answer.status, await answer.text()) == (503, "the store does not answer\n")
        assert (await client.head("/ready")).status == 503
        assert (await client.get("/health")).status == 200


async def test_probes_come_from_programs_that_send_the_address_they_connect_to(serve: Serve) -> None:
    """As Kubernetes does; the port listens on every address, and knows which one was meant."""
    admin = await serve(listen=("0.0.0.0:0",))
    port = admin.addresses[0].rpartition(":")[2]
    answer = await ask(f"127.0.0.2:{port}", f"GET /health HTTP/1.1\nHost: 127.0.0.2:{port}")
    assert answer.status == 200
    answer = await ask(f"127.0.0.2:{port}", "GET /health HTTP/1.1\nHost: 127.0.0.3")
    assert answer.status == 421


EVERYWHERE = ["/health", "/sign-in", "/static/sign_in.js", "/nothing", "/api/v1/nothing", "/", "/metrics"]


@pytest.mark.parametrize("path", EVERYWHERE)
async def test_every_answer_says_what_a_browser_may_do_with_it(admin: Admin, path: str) -> None:
    async with admin.client() as nobody, admin.client("read") as reader:
        for client in (nobody, reader):
            for method in ("GET", "HEAD", "POST"):
                answer = await client.request(method, path, allow_redirects=False)
                assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
                assert "Server" not in answer.headers
                kept = answer.headers["Cache-Control"]
                assert kept == (
                    "no-cache" if path.startswith("/static/") and answer.status == 200 else "no-store"
                )


async def test_the_policy_lets_in_nothing_from_elsewhere() -> None:
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
async def test_what_is_not_there_is_a_problem(admin: Admin, method: str, path: str, status: int) -> None:
    async with admin.client("full") as client:
        answer = await client.request(method, path)
        assert (answer.status, answer.content_type) == (status, CONTENT_TYPE)
        problem = await answer.json()
        assert problem["status"] == status and problem["title"] and problem["detail"]
        assert ("Allow" in answer.headers) == (status == 405)


async def test_a_head_has_no_body(admin: Admin) -> None:
    token = await admin.token("read")
    async with wire(admin.addresses[0]) as line:
        for path in ("/health", "/sign-in", "/api/v1/nothing", "/static/sign_in.js"):
            line.send(
                f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
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
async def test_what_is_no_proper_request_is_a_problem_too(
    admin: Admin, request_text: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await ask(admin.addresses[0], request_text)
    assert answer.status == status, answer
    assert answer.headers["content-type"] == CONTENT_TYPE
    assert json.loads(answer.body)["status"] == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "server" not in answer.headers
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


async def test_a_store_that_is_away_is_said(serve: Serve) -> None:
    admin = await serve()
    await admin.token("read")
    async with admin.client("read") as client, admin.browser("read") as browser:
        await admin.stores.connection.client.connection_pool.disconnect()
        admin.stores.connection._gone.set()
        answer = await client.get("/metrics/nothing")
        assert (answer.status, answer.content_type) == (503, CONTENT_TYPE)
        assert int(answer.headers["Retry-After"]) > 0
        assert (await browser.get("/")).status == 503
        assert (await browser.get("/health")).status == 200
        assert (await browser.get("/sign-in")).status == 200


async def test_a_unix_socket_is_for_a_proxy(serve: Serve, tmp_path: Path) -> None:
    admin = await serve(listen=(f"unix:{tmp_path / 's'}",), hosts=("tracker.example",))
    path = str(tmp_path / "s")
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as client:
        assert (await client.get("http://tracker.example/health")).status == 200
        assert (await client.get("http://evil.example/health")).status == 421
        answer = await client.get("http://tracker.example/api/v1/nothing")
        assert answer.status == 401
        headers = {"Authorization": f"Bearer {await admin.token('read')}"}
        assert (await client.get("http://tracker.example/api/v1/nothing", headers=headers)).status == 404


async def test_an_address_in_use_is_said(admin: Admin) -> None:
    with pytest.raises(StartupError, match="in use"):
        async with serve_admin(
            admin.desk, admin.desk.settings.admin.model_copy(update={"listen": admin.addresses})
        ):
            pass


async def test_ipv6_is_served_beside_ipv4(serve: Serve) -> None:
    admin = await serve(listen=("127.0.0.1:0", "[::1]:0"))
    async with aiohttp.ClientSession() as client:
        for address in admin.addresses:
            assert (await client.get(f"http://{address}/health")).status == 200


async def test_stopping_ends_streams_and_gives_the_rest_a_little_time(
    no_task_left_behind: None,
) -> None:
    """One stream that hears of the end, one that does not, and one who never asked anything."""
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
        await asyncio.sleep(3600)
        return response

    app = web.Application()
    app[STOPPING] = asyncio.Event()

    async def stop(app: web.Application) -> None:
        app[STOPPING].set()

    app.on_shutdown.append(stop)
    app.add_routes([web.get("/stream", stream), web.get("/deaf", deaf)])
    listeners = await open_listeners(["127.0.0.1:0"])
    url = f"http://{listeners[0].address}"
    async with aiohttp.ClientSession() as client, wire(listeners[0].address):
        async with serving(app, listeners, Limits(stop_seconds=0.2)):
            answers = [await client.get(f"{url}/{path}") for path in ("stream", "deaf")]
            assert [await answer.content.readexactly(1) for answer in answers] == [b"a", b"a"]
            stopped = time.monotonic()
        assert time.monotonic() - stopped < 10
        assert heard.is_set()
        for answer in answers:
            answer.close()
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get(url)
