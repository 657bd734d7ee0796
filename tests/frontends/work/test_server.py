"""The claimants' listener over real sockets: limits, proxies, headers, errors, logs."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from loadtest.servers import Server
from tests.frontends.work.conftest import Serve, Site
from tests.raw_http import ask, connect, request
from tests.store.harness import ALICE
from tracker.errors import StartupError
from tracker.frontends.work import server
from tracker.refusals import ADDRESS_HIDDEN, PROXY_HEADER_MISSING, PROXY_HEADER_UNEXPECTED
from tracker.settings.site import WorkSettings

BODY = '{"downloader": "volunteer_1"}'


def post(path: str, *lines: str, body: str = BODY) -> bytes:
    return request(path, f"Content-Length: {len(body)}", *lines, method="POST") + body.encode()


def test_the_listener_is_off_unless_a_setting_names_its_address() -> None:
    """W17."""
    assert WorkSettings().listen == ()


@pytest.mark.parametrize(
    ("url", "valid"),
    [
        ("", True),
        ("https://site.example/{info_hash}.torrent", True),
        ("https://site.example/t?id={info_hash}", True),
        ("https://site.example/x.torrent", False),
        ("ftp://site.example/{info_hash}", False),
        ("https://site.example/{info_hash}/{name}", False),
        ('https://site.example/"{info_hash}', False),
    ],
)
def test_a_torrent_url_holds_the_info_hash_once(url: str, valid: bool) -> None:
    if valid:
        assert WorkSettings(torrent_url=url).torrent_url == url
    else:
        with pytest.raises(ValueError, match="torrent_url"):
            WorkSettings(torrent_url=url)


async def test_without_a_project_all_paths_are_404(serve: Serve) -> None:
    """W17."""
    site = await serve(work={"default": "proj"})
    for path in ("/proj/request", "/proj/done", "/request", "/done", "/release", "/done+request"):
        assert (await site.ask(path, {"downloader": "volunteer_1", "item": "one"})).status == 404
    for path in ("/", "/proj", "/proj/nothing", "/favicon.ico"):
        assert (await site.ask(path)).status == 404


async def test_replies_are_private_and_name_no_software(site: Site) -> None:
    for path, body in (("/proj/request", {"downloader": "volunteer_1"}), ("/nothing/at/all", None)):
        reply = await site.ask(path, body)
        assert "private" in reply.headers["cache-control"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "server" not in reply.headers


async def test_other_methods_are_405(site: Site) -> None:
    reply = await site.ask("/proj/request", method="PUT")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


async def test_an_address_has_60_requests_a_minute(serve: Serve) -> None:
    """Counted by the tracker's own limiter: over all trackers, and by address or /64."""
    site = await serve(http={"trusted_proxies": ("127.0.0.0/8",)})
    await site.project()

    async def status(address: str) -> int:
        reply = await site.ask("/proj/request", {"downloader": "volunteer_1"}, headers={"X-Forwarded-For": address})
        if reply.status == 429:
            assert 1 <= int(reply.headers["retry-after"]) <= 120
        return reply.status

    for address, neighbour in (("198.51.7.9", ""), ("11.0.0.9", ""), ("2600:1:2:3::1", "2600:1:2:3:4::5")):
        for _ in range(59):
            assert await status(address) == 404
        await site.share_limits()
        assert await status(address) == 404
        await site.share_limits()
        assert await status(neighbour or address) == 429
        assert await status("11.0.0.200") == 404
    site.store.clock.now += 200
    await site.share_limits()
    assert await status("11.0.0.9") == 404


async def test_limits_can_be_changed_exempted_and_disabled(serve: Serve) -> None:
    headers = {"X-Forwarded-For": "11.0.0.9"}
    trusted = {"trusted_proxies": ("127.0.0.0/8",)}
    for limits, status in (
        ({"work_requests_minute": 5}, 429),
        ({"work_requests_minute": 5, "exempt": ("11.0.0.0/24",)}, 404),
        ({"work_requests_minute": 5, "enabled": False}, 404),
    ):
        site = await serve(http=trusted, limits=limits)
        await site.store.redis.delete(site.store.keys.limits())
        for _ in range(9):
            await site.ask("/nothing", headers=headers)
        await site.share_limits()
        assert (await site.ask("/nothing", headers=headers)).status == status


async def test_while_the_store_is_unavailable_a_process_limits_alone(serve: Serve) -> None:
    site = await serve(http={"trusted_proxies": ("127.0.0.0/8",)}, limits={"work_requests_minute": 5})
    headers = {"X-Forwarded-For": "11.0.0.9"}
    for _ in range(9):
        assert (await site.ask("/nothing", headers=headers)).status == 404
    site.limits.decide_alone(site.limits.take(), site.store.clock.now)
    assert (await site.ask("/nothing", headers=headers)).status == 429


async def test_proxies_name_the_client_and_others_cannot(serve: Serve) -> None:
    """As at the announce port: the rightmost address that is not a trusted proxy."""
    site = await serve(http={"trusted_proxies": ("127.0.0.1/32",)})
    await site.project()
    await site.add("one", "two", "three")
    for headers in ({"X-Forwarded-For": "203.0.113.9, 11.0.0.5"}, {"Forwarded": 'for="[2600::5]:80"'}):
        assert (await site.ask("/proj/request", {"downloader": "volunteer_1"}, headers=headers)).status == 200
    other = await serve()
    await other.ask("/proj/request", {"downloader": "volunteer_2"}, headers={"X-Forwarded-For": "11.0.0.66"})
    claims = (await site.store.work.claims.page("proj")).entries
    assert {claim.address for claim in claims} == {"11.0.0.5", "2600::5", "127.0.0.1"}


async def test_a_unix_socket_needs_a_trusted_proxy(serve: Serve, short_directory: Path) -> None:
    listen = {"listen": (f"unix:{short_directory}/work",)}
    for trusted, status in (((), 400), (("10.0.0.0/8",), 404)):
        site = await serve(work=listen, http={"trusted_proxies": trusted})
        async with connect(site.addresses[0]) as line:
            line.send(post("/proj/request", "X-Forwarded-For: 11.0.0.5"))
            assert (await line.receive()).status == status
            if trusted:
                line.send(post("/proj/request"))
                assert (await line.receive()).status == 400
        listen = {"listen": (f"unix:{short_directory}/work2",)}


async def test_a_proxy_header_is_required_of_trusted_proxies_and_removed(serve: Serve) -> None:
    site = await serve(http={"trusted_proxies": ("127.0.0.1/32",), "proxy_protocol": True})
    await site.project()
    await site.add("one")
    async with connect(site.addresses[0]) as line:
        line.send(b"PROXY TCP4 11.0.0.5 11.0.0.1 5000 80\r\n"[:20])
        await line.flushed()
        line.send(b"PROXY TCP4 11.0.0.5 11.0.0.1 5000 80\r\n"[20:] + post("/proj/request"))
        assert (await line.receive()).body == b"one"
    (claim,) = (await site.store.work.claims.page("proj")).entries
    assert claim.address == "11.0.0.5"
    async with connect(site.addresses[0]) as line:
        line.send(post("/proj/request"))
        assert await line.is_closed()


async def test_a_trusted_proxy_that_names_no_client_is_refused(serve: Serve) -> None:
    """As at the announce port: else all claimants would have the proxy's address."""
    site = await serve(http={"trusted_proxies": ("127.0.0.1/32",)})
    await site.project()
    await site.add("one")
    for headers in ({}, {"X-Forwarded-For": "unknown"}):
        reply = await site.ask("/proj/request", headers=headers)
        assert reply.status == 400 and "its proxy must send X-Forwarded-For" in reply.text
    assert await failures(site) == {ADDRESS_HIDDEN: 2}
    local = await serve(http={"trusted_proxies": ("127.0.0.0/8",), "proxy_protocol": True})

    async with connect(local.addresses[0]) as line:
        line.send(b"PROXY TCP4 127.0.0.9 127.0.0.1 5000 80\r\n" + post("/proj/request"))
        assert (await line.receive()).body == b"one"  # a client on the proxy's own host


async def failures(site: Site) -> dict[str, int]:
    """What the doctor reads."""
    await site.store.counters.flush()
    found: Any = await site.store.redis.hgetall(site.store.keys.failures())
    return {label.decode(): int(number) for label, number in found.items()}


@pytest.mark.parametrize("expected", [True, False])
async def test_a_proxy_header_against_the_setting_is_counted_and_a_warning_once(serve: Serve, expected: bool) -> None:
    """As at the announce port."""
    site = await serve(http={"trusted_proxies": ("127.0.0.1/32",), "proxy_protocol": expected})
    sent = post("/proj/request")
    if not expected:
        sent = b"PROXY TCP4 11.0.0.5 11.0.0.1 5000 80\r\n" + sent
    with capture_logs() as logs:
        for _ in range(2):
            async with connect(site.addresses[0]) as line:
                line.send(sent)
                if not expected:
                    assert (await line.receive()).status == 400
                assert await line.is_closed()
    told = [(each["event"], each["setting"], each["value"]) for each in logs if "setting" in each]
    text = PROXY_HEADER_MISSING if expected else PROXY_HEADER_UNEXPECTED
    assert told == [(text, "TRACKER_HTTP__PROXY_PROTOCOL", expected)]
    assert await failures(site) == {text: 2}


async def test_slow_heads_and_bodies_are_cut(serve: Serve) -> None:
    site = await serve(constants={"server.IDLE_SECONDS": 0.1, "requests.BODY_SECONDS": 0.1})
    async with connect(site.addresses[0]) as line:
        assert await line.is_closed()
    async with connect(site.addresses[0]) as line:
        line.send(b"GET /proj HTTP/1.1\r\nHo")
        assert await line.is_closed()
    async with connect(site.addresses[0]) as line:
        line.send(post("/proj/request")[:-3])
        assert (await line.receive()).status == 408


async def test_connections_are_limited_in_all(serve: Serve) -> None:
    """In all, the oldest idle one is closed."""
    site = await serve(constants={"server.MAX_CONNECTIONS": 2})
    async with connect(site.addresses[0]) as first, connect(site.addresses[0]) as second:
        for line in (first, second):
            assert (await line.get("/nothing")).status == 404
        async with connect(site.addresses[0]) as third:
            assert (await third.get("/nothing")).status == 404
            async with asyncio.TaskGroup() as tasks:
                closed = [tasks.create_task(line.reader.read(1)) for line in (first, second)]
                await asyncio.wait(closed, return_when=asyncio.FIRST_COMPLETED)
                assert sum(task.done() for task in closed) == 1
                for task in closed:
                    task.cancel()


async def test_connections_that_are_gone_do_not_count(serve: Serve) -> None:
    """The handler of a stream learns only with its next event that nobody reads it."""
    site = await serve(constants={"server.MAX_CONNECTIONS": 2})
    await site.project()
    for _ in range(4):
        async with connect(site.addresses[0]) as line:
            line.send(request("/proj/live"))
            assert await line.reader.readuntil(b"event: counts")
    async with connect(site.addresses[0]) as line:
        assert (await line.get("/nothing")).status == 404


async def test_idle_connections_of_an_address_lock_no_neighbour_out(serve: Serve) -> None:
    """At its limit the oldest idle one is closed; none while all are busy."""
    site = await serve(constants={"server.MAX_CONNECTIONS_PER_NETWORK": 3})
    await site.project()
    async with AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(connect(site.addresses[0])) for _ in range(3)]
        for line in lines[1:]:
            assert (await line.get("/nothing")).status == 404
        for _ in range(10):
            async with connect(site.addresses[0]) as neighbour:
                assert (await neighbour.get("/nothing")).status == 404
        assert await lines[0].is_closed()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            line = await stack.enter_async_context(connect(site.addresses[0]))
            line.send(request("/proj/live"))
            assert await line.reader.readuntil(b"retry: ")
        async with connect(site.addresses[0]) as refused:
            assert await refused.is_closed()


async def test_a_crowded_address_costs_no_look_at_all_connections(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    class Connections(dict[Any, Any]):
        def __iter__(self) -> Iterator[Any]:
            looks.append(len(self))
            return super().__iter__()

    begin = server.Server.__init__

    def init(made: server.Server, *arguments: Any, **options: Any) -> None:
        begin(made, *arguments, **options)
        made._connections = Connections()

    monkeypatch.setattr(server.Server, "__init__", init)
    site = await serve(constants={"server.MAX_CONNECTIONS_PER_NETWORK": 1})
    for _ in range(3):
        async with connect(site.addresses[0]) as first, connect(site.addresses[0]) as second:
            assert (await second.get("/nothing")).status == 404
            assert await first.is_closed()
    assert not looks


@pytest.mark.parametrize(
    "text", ["NONSENSE", "GET / HTTP/1.1\nHost: a\nHost: b", "POST /proj/request HTTP/1.1\nHost: a\nContent-Length: -1"]
)
async def test_malformed_requests_are_400_and_log_nothing(site: Site, text: str) -> None:
    with capture_logs() as lines:
        reply = await ask(site.addresses[0], text)
    assert reply.status == 400 and not lines


async def test_errors_are_logged_without_what_was_sent(seeding: Site) -> None:
    """W29: no passkey is in a log."""
    await seeding.store.redis.set(seeding.store.keys.work_queue("seeds", "todo"), "not a queue")
    with capture_logs() as lines:
        reply = await seeding.ask("/seeds/request", {"passkey": ALICE})
    assert (reply.status, reply.text) == (500, "internal error\n")
    (line,) = lines
    assert ALICE not in str(line) and line["route"] == "POST /{project}/request"


async def test_while_the_store_is_unavailable_claimants_wait(serve: Serve, start_server: Callable[..., Server]) -> None:
    server = start_server()
    site = await serve(url=server.url)
    server.kill()
    reply = await site.ask("/proj/request", {"downloader": "volunteer_1"})
    assert (reply.status, reply.headers["retry-after"]) == (503, "2")


async def test_a_taken_address_is_a_startup_error(site: Site, serve: Serve) -> None:
    with pytest.raises(StartupError):
        await serve(work={"listen": (site.addresses[0],)})
