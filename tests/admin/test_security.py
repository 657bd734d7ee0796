"""Authentication and authorization over HTTP: tokens, cookies, origins, hosts, limits, logs."""

import asyncio
import os
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from yarl import URL

from loadtest import trackers
from tests import commands
from tests.admin.conftest import Admin, Serve
from tests.raw_http import ask, connect
from tracker.admin.auth.auth import PER_ADDRESS
from tracker.admin.http.cookies import COOKIE
from tracker.admin.http.problems import CONTENT_TYPE

UNKNOWN_TOKEN = "swk_0123456789ab_" + "a" * 43
HASH = "ab" * 20
TORRENTS = "/api/v1/torrents"


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


async def routes(admin: Admin) -> list[tuple[str, str]]:
    """(method, path) of every operation of the API document, and of the pages."""
    async with admin.client("admin") as client:
        described = await (await client.get("/api/openapi.json")).json()
    values = {"info_hash": HASH, "user_id": "1", "token_id": "0" * 12, "project": "proj"}
    found = []
    for path, methods in described["paths"].items():
        for method in methods:
            if method in ("get", "put", "post", "patch", "delete"):
                filled = path
                while "{" in filled:
                    before, _, rest = filled.partition("{")
                    name, _, after = rest.partition("}")
                    filled = before + values.get(name, "1") + after
                found.append((method.upper(), filled))
    pages = [
        "/",
        "/torrents",
        "/world",
        "/users",
        "/work",
        "/jobs",
        "/clients",
        "/settings",
        "/doctor",
        "/tokens",
        "/api",
    ]
    return found + [("GET", page) for page in (*pages, "/metrics", "/live", "/api/openapi.json")]


# Authentication


async def test_requests_without_a_token_are_refused(admin: Admin) -> None:
    """Requests from loopback need a token too."""
    everything = await routes(admin)
    assert len(everything) > 40
    async with admin.client() as stranger:
        for method, path in everything:
            response = await stranger.request(method, path, allow_redirects=False)
            if path.startswith(("/api/", "/metrics")):
                assert (response.status, response.content_type) == (401, CONTENT_TYPE), (method, path)
                assert response.headers["WWW-Authenticate"] == "Bearer"
            else:
                assert response.status in (303, 401), (method, path)
                assert response.headers.get("Location", "/sign-in") == "/sign-in"
            assert "Set-Cookie" not in response.headers


async def test_unknown_paths_are_not_revealed_without_authentication(admin: Admin) -> None:
    async with admin.client() as stranger:
        assert (await stranger.get("/api/v1/nothing")).status == 401
        assert (await stranger.put("/health")).status == 401
        assert (await stranger.request("OPTIONS", TORRENTS)).status == 401
        assert (await stranger.get("/nothing", allow_redirects=False)).headers["Location"] == "/sign-in"


@pytest.mark.parametrize(
    "header",
    [
        f"Bearer {UNKNOWN_TOKEN}",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "Bearer swk_",
        "Bearer null",
        "Bearer *",
        "Token x",
        "Bearer " + "a" * 5000,
        "Bearer \xff\xfe",
    ],
)
async def test_an_invalid_token_is_refused(admin: Admin, header: str) -> None:
    text = f"GET {TORRENTS} HTTP/1.1\nHost: localhost\nAuthorization: {header}"
    assert (await ask(admin.addresses[0], text)).status == 401


async def test_two_authorization_headers_are_refused(admin: Admin) -> None:
    good = await admin.token("admin")
    lines = f"Authorization: Bearer {good}\nAuthorization: Bearer {UNKNOWN_TOKEN}"
    response = await ask(admin.addresses[0], f"GET {TORRENTS} HTTP/1.1\nHost: localhost\n{lines}")
    assert response.status == 401


async def test_a_valid_cookie_does_not_make_up_for_an_invalid_token(admin: Admin) -> None:
    async with admin.browser("admin") as browser:
        assert (await browser.get(TORRENTS)).status == 200
        assert (await browser.get(TORRENTS, headers=bearer(UNKNOWN_TOKEN))).status == 401


async def test_tokens_are_read_from_the_header_only(admin: Admin) -> None:
    good = await admin.token("admin")
    async with admin.client() as stranger:
        for target in (f"{TORRENTS}?token={good}", f"{TORRENTS}?access_token={good}"):
            assert (await stranger.get(target)).status == 401
        assert (await stranger.get(TORRENTS, headers={"Cookie": f"{COOKIE}={good}"})).status == 401
        assert (await stranger.get(TORRENTS, headers=bearer("a" * 43))).status == 401


async def test_role_read_cannot_change_anything(admin: Admin) -> None:
    changes = [(method, path) for method, path in await routes(admin) if method != "GET"]
    assert len(changes) > 15
    async with admin.client("read") as reader, admin.browser("read") as browser:
        for client in (reader, browser):
            assert (await client.get(TORRENTS)).status == 200
            for method, path in changes:
                response = await client.request(method, path, json={"info_hash": HASH})
                assert response.status == 403, (method, path)
    assert await admin.store.torrents.count() == 0


async def test_a_revoked_token_is_refused_immediately(admin: Admin) -> None:
    async with admin.client("admin") as client, admin.browser("admin") as browser:
        assert (await client.get(TORRENTS)).status == 200
        assert (await browser.get(TORRENTS)).status == 200
        await admin.store.tokens.revoke("test admin")
        assert (await client.get(TORRENTS)).status == 401
        assert (await browser.get(TORRENTS)).status == 401
        assert (await browser.get("/", allow_redirects=False)).status == 303
        assert (await browser.post(TORRENTS, json={"info_hash": HASH})).status == 401


# Cross-site requests


CREATE = {"info_hash": HASH}


async def created(client: aiohttp.ClientSession, **headers: str) -> int:
    """The status of an attempt to register a torrent; 201 on success."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await client.post(TORRENTS, json=CREATE, headers=named)).status


async def test_a_cookie_without_csrf_token_cannot_change_anything(admin: Admin) -> None:
    async with admin.browser("admin", headers={"X-CSRF-Token": ""}) as browser:
        assert await created(browser) == 403
        assert await created(browser, X_CSRF_Token="wrong") == 403
        assert await created(browser, X_CSRF_Token="é" * 43) == 403
    async with admin.browser("admin") as one, admin.browser("admin") as other:
        theirs = one.headers["X-CSRF-Token"]
        assert await created(other, X_CSRF_Token=theirs) == 403
        assert await created(other) == 201


async def test_the_csrf_token_may_be_a_form_field(admin: Admin) -> None:
    async with admin.browser("read") as browser:
        token = browser.headers["X-CSRF-Token"]
        secret = next(iter(browser.cookie_jar)).value
    headers = {"Origin": admin.url}
    for field, status in ((token, 303), ("wrong", 403), ("", 403)):
        async with admin.client(headers=headers, cookies={COOKIE: secret}) as page:
            form = aiohttp.FormData({"csrf": field}, default_to_multipart=status == 403)
            assert (await page.post("/sign-out", data=form, allow_redirects=False)).status == (
                303 if field == token else 403
            )
            if status == 303:
                break
    async with admin.client(headers=headers, cookies={COOKIE: secret}) as page:
        assert (await page.get("/", allow_redirects=False)).status == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "http://evil.example", "Sec_Fetch_Site": "same-origin"},
    ],
)
async def test_a_cross_site_request_cannot_change_anything(admin: Admin, headers: dict[str, str]) -> None:
    """Not even with the CSRF token, or with a token."""
    async with admin.browser("admin") as browser, admin.client("admin") as client:
        assert await created(browser, **headers) == 403
        assert await created(client, **headers) == 403
    assert await admin.store.torrents.count() == 0


async def test_a_change_with_a_cookie_needs_an_origin(admin: Admin) -> None:
    async with admin.browser("admin") as browser:
        secret, token = next(iter(browser.cookie_jar)).value, browser.headers["X-CSRF-Token"]
    async with admin.client(cookies={COOKIE: secret}, headers={"X-CSRF-Token": token}) as page:
        assert await created(page) == 403
        assert await created(page, Origin=admin.url) == 201


async def test_no_cors_header_is_sent(admin: Admin) -> None:
    async with admin.client("read") as client:
        for method in ("GET", "OPTIONS"):
            response = await client.request(
                method, TORRENTS, headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "GET"}
            )
            assert not [name for name in response.headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:6970", "127.0.0.1.evil.example", "0.0.0.0"])
async def test_an_unknown_host_name_is_refused(admin: Admin, host: str) -> None:
    """DNS rebinding: a foreign name that resolves to this host. A valid token does not help."""
    for path in ("/", "/health", "/ready", "/sign-in", "/static/sign_in.js", TORRENTS):
        line = f"Authorization: Bearer {await admin.token('admin')}"
        response = await ask(admin.addresses[0], f"GET {path} HTTP/1.1\nHost: {host}\n{line}")
        assert (response.status, response.headers["content-type"]) == (421, CONTENT_TYPE)
        assert host.encode() not in response.body
    response = await ask(
        admin.addresses[0], f"POST /sign-in HTTP/1.1\nHost: {host}\nOrigin: http://{host}\nContent-Length: 0"
    )
    assert response.status == 421


async def test_a_configured_host_name_is_accepted(serve: Serve) -> None:
    admin = await serve(hosts=("tracker.example",))
    async with admin.client("read", headers={"Host": "tracker.example"}) as client:
        assert (await client.get(TORRENTS)).status == 200


# Redirects and paths


async def test_redirects_stay_on_this_port(admin: Admin) -> None:
    """Another host in the path, the query or a header."""
    elsewhere = {"Referer": "http://evil.example/", "X-Forwarded-Host": "evil.example"}
    odd = ("//evil.example", "/\\evil.example", "/?next=http://evil.example", "/sign-in?next=//evil.example")
    token = await admin.token("admin")
    async with admin.client(headers=elsewhere) as stranger, admin.browser("admin", headers=elsewhere) as browser:
        for path in (*odd, "/users?id=//evil.example", "/users?id=1%0d%0aLocation:%20http://evil.example"):
            for client in (stranger, browser):
                async with client.get(URL(admin.url + path, encoded=True), allow_redirects=False) as response:
                    assert response.headers.get("Location", "/sign-in") == "/sign-in", path
        form = {"token": token, "next": "http://evil.example"}
        for path, data in (("/sign-out", {"next": "//evil.example"}), ("/sign-in?next=//evil.example", form)):
            async with browser.post(path, data=data, allow_redirects=False) as response:
                assert response.headers["Location"] in ("/", "/sign-in")


@pytest.mark.parametrize(
    "name", ["../../../etc/cron.d/x.torrent", "/etc/passwd", "a;b=c.torrent", "http://evil.example/x"]
)
async def test_the_file_name_of_an_upload_is_never_a_path(admin: Admin, name: str, tmp_path: Path) -> None:
    """Uploads are parsed in memory; they are neither written to disk nor served nor executed."""
    form = aiohttp.FormData()
    info = b"d6:lengthi1e4:name1:a12:piece lengthi16384e6:pieces20:" + b"a" * 20 + b"e"
    form.add_field("file", b"d4:info" + info + b"e", filename=name, content_type="text/html")
    async with admin.client("admin") as client:
        async with client.post("/api/v1/torrent-files", data=form) as response:
            text = await response.text()
            assert response.status == 201, text
        assert "evil" not in text and "etc" not in text
        (torrent,) = await admin.store.torrents.top("seeders", 10)
        assert torrent.name == "a"


# Repeated attempts


async def test_failed_attempts_are_limited_and_valid_tokens_accepted(admin: Admin) -> None:
    async with admin.client() as guesser, admin.client("read") as client:
        responses = [await guesser.get(TORRENTS, headers=bearer(UNKNOWN_TOKEN)) for _ in range(PER_ADDRESS.burst + 5)]
        statuses = [response.status for response in responses]
        assert statuses[: PER_ADDRESS.burst] == [401] * PER_ADDRESS.burst
        assert 429 in statuses[PER_ADDRESS.burst :]
        last = next(response for response in responses if response.status == 429)
        assert last.content_type == CONTENT_TYPE and int(last.headers["Retry-After"]) >= 1
        assert (await client.get(TORRENTS)).status == 200
        form = {"token": await admin.token("read")}
        assert (await guesser.post("/sign-in", data=form, allow_redirects=False)).status == 303


async def test_failed_sign_ins_count_as_attempts(admin: Admin) -> None:
    async with admin.client() as guesser:
        for _ in range(PER_ADDRESS.burst // 2):
            assert (await guesser.post("/sign-in", data={"token": UNKNOWN_TOKEN})).status == 403
            assert (await guesser.post("/sign-in", data={"link": "a" * 43})).status == 403
        statuses = {(await guesser.post("/sign-in", data={"token": UNKNOWN_TOKEN})).status for _ in range(3)}
        assert 429 in statuses
        secret = await admin.store.tokens.new_link()
        assert (await guesser.post("/sign-in", data={"link": secret}, allow_redirects=False)).status == 303


async def test_an_expired_session_is_no_failed_attempt(admin: Admin) -> None:
    """The browser is redirected to the sign-in, however often its open pages send requests."""
    async with admin.client(headers={"Cookie": f"{COOKIE}={'a' * 43}"}) as browser:
        for _ in range(PER_ADDRESS.burst + 5):
            assert (await browser.get("/", allow_redirects=False)).status == 303
            assert (await browser.get("/live", headers={"Accept": "text/event-stream"})).status == 401
            response = await browser.get("/torrents", headers={"HX-Request": "true"})
            assert (response.status, response.headers["HX-Redirect"]) == (401, "/sign-in")


async def test_concurrent_uses_of_a_link_sign_in_once(admin: Admin) -> None:
    secret = await admin.store.tokens.new_link()

    async def use() -> int:
        async with admin.client() as browser:
            return (await browser.post("/sign-in", data={"link": secret}, allow_redirects=False)).status

    statuses = await asyncio.gather(*(use() for _ in range(8)))
    assert sorted(statuses)[:1] == [303] and statuses.count(303) == 1


async def test_a_link_expires_after_fifteen_minutes(admin: Admin) -> None:
    secret = await admin.store.tokens.new_link()
    admin.clock.now += 900
    async with admin.client() as browser:
        assert (await browser.post("/sign-in", data={"link": secret})).status == 403


# Bodies that are too large


async def test_an_upload_beyond_the_limit_is_refused_before_it_is_read(serve: Serve) -> None:
    admin = await serve(max_upload_bytes=100_000)
    token = await admin.token("admin")
    head = (
        f"POST {TORRENTS} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    )
    async with connect(admin.addresses[0]) as line:
        line.send(f"{head}Content-Length: 1000000000\r\n\r\n".encode())
        response = await line.receive()
        assert (response.status, response.headers["content-type"]) == (413, CONTENT_TYPE)
        assert await line.is_closed()
    async with connect(admin.addresses[0]) as line:
        line.send(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        done, sent = asyncio.Task(line.receive()), 0
        while not done.done() and sent < 50_000_000:
            line.send(b"2710\r\n" + b"a" * 10_000 + b"\r\n")
            sent += 10_000
            await line.flushed()
            await asyncio.sleep(0)
        assert (await done).status == 413
        assert sent < 10_000_000


async def test_bodies_of_unauthenticated_requests_are_not_read(admin: Admin) -> None:
    async with connect(admin.addresses[0]) as line:
        line.send(f"POST {TORRENTS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n".encode())
        assert (await line.receive()).status == 401  # before the body is sent


# Logs


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


async def test_no_secret_is_logged(admin: Admin, logs: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    link, token = await admin.store.tokens.new_link(), await admin.token("admin")
    async with admin.client("admin") as client, admin.browser("admin") as browser:
        session = next(iter(browser.cookie_jar)).value
        await client.get(TORRENTS)
        await browser.get("/nothing")
        await browser.post("/sign-in", data={"link": link})
        await browser.post("/sign-in", data={"token": token}, allow_redirects=False)
        await ask(admin.addresses[0], f"NONSENSE {token}")
        admin.store.connection._lost(OSError())
        await client.get(TORRENTS)
    told = repr(logs) + caplog.text
    for secret in (link, token, token.split("_", 2)[2], session):
        assert secret not in told


async def test_changes_are_logged_with_their_author(admin: Admin, logs: list[Any]) -> None:
    async with admin.client("admin") as client, admin.client() as guesser:
        await client.get(TORRENTS)
        assert await created(client) == 201
        await client.delete(f"{TORRENTS}/{HASH}")
        for _ in range(PER_ADDRESS.burst + 20):
            await guesser.get(TORRENTS, headers=bearer(UNKNOWN_TOKEN))
    told = [(line["event"], line.get("by"), line["what"]) for line in logs]
    assert told[:2] == [
        ("admin change", "test admin", f"POST {TORRENTS}"),
        ("admin change", "test admin", f"DELETE {TORRENTS}/{HASH}"),
    ]
    refused = told[2:]
    assert set(refused) == {("admin authentication failed", None, f"GET {TORRENTS}")}
    assert len(refused) < PER_ADDRESS.burst + 20  # the rate limit bounds the log lines


@pytest.mark.slow
@pytest.mark.usefixtures("own_interpreter")
def test_no_secret_is_in_a_log_or_a_process_list(tmp_path: Path) -> None:
    """A whole tracker with its own store: the first link opens a session, which creates a token."""
    tracker = trackers.start(tmp_path, TRACKER_LOG__LEVEL="debug")
    try:
        link = tracker.banner.partition("/sign-in#")[2].split()[0]
        admin = tracker.banner.partition("/sign-in#")[0].rpartition("http://")[2]
        connection = HTTPConnection(admin, timeout=trackers.SECONDS)
        connection.request("POST", "/sign-in", f"link={link}", {"Content-Type": "application/x-www-form-urlencoded"})
        response = connection.getresponse()
        session = (response.getheader("Set-Cookie") or "").partition("=")[2].partition(";")[0]
        response.read()
        made = commands.run(tmp_path, "token", "create", "site", "--json").stdout
        token = made.partition('"token": "')[2].partition('"')[0]
        connection.request("GET", TORRENTS, headers=bearer(token))
        status = connection.getresponse().status
        connection.close()
        listed = b"".join(
            (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            for process in _processes_of(tracker.process.pid)
        )
    finally:
        tracker.end()
    assert response.status == 303 and len(session) == 43 and status == 200
    for secret in (link, session, token):
        assert secret not in tracker.log and secret.encode() not in listed


def _processes_of(pid: int) -> list[Path]:
    """A process and its children, as /proc shows them to all users."""
    if not Path("/proc/self/task").exists():
        pytest.skip("processes are listed by /proc")
    found = [pid]
    for parent in found:
        for thread in Path(f"/proc/{parent}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    assert len(found) > 1 and os.getpid() not in found
    return [Path(f"/proc/{each}") for each in found]
