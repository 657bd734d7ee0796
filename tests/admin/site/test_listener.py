"""The listener for a site's calls: keys, addresses, limits, the audit log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from tests.admin.site.conftest import KEY, OTHER, PASSKEY, TORRENT, USER, Serve, Site
from tests.raw_http import PATIENCE, connect
from tracker.admin.http.connections import Limits
from tracker.admin.metrics.exposition import Scrape, StoreReadings
from tracker.settings.model import Settings
from tracker.settings.site import SiteSettings
from tracker.store.access.audit import AuditEntry, AuditFilter


@pytest.fixture
async def site(serve: Serve) -> Site:
    """The number of shards makes no difference here."""
    return await serve()


async def entries(site: Site) -> list[AuditEntry]:
    """Oldest first."""
    return (await site.store.audit.page(AuditFilter()))[0][::-1]


def test_the_listener_is_off_unless_a_setting_names_its_address() -> None:
    assert SiteSettings().listen == ()
    settings = Settings(site=SiteSettings(listen=("127.0.0.1:0",)))
    assert settings.contradictions() == ["site: TRACKER_SITE__LISTEN needs TRACKER_SITE__KEY"]


@pytest.mark.parametrize("key", ["", "k" * 31, "k" * 31 + "/", "k" * 31 + "é", "k" * 32 + "\n"])
def test_a_key_has_at_least_32_characters(key: str) -> None:
    with pytest.raises(ValueError, match="at least 32 letters"):
        SiteSettings.model_validate({"key": key})


async def test_other_keys_are_refused_and_soon_for_a_while(site: Site) -> None:
    for key in ("x" * 32, KEY[:-1], KEY + "k", "%C3%A9" * 6, PASSKEY):
        assert (await site.ask("PUT", "users", USER, key))[0] == 401
    assert 429 in {(await site.ask("GET", "users/7", key="x" * 32))[0] for _ in range(40)}
    assert await site.put("users", USER) == 200  # the right key is always answered
    assert len(await entries(site)) == 1


async def test_no_log_line_has_a_key_or_a_passkey(site: Site) -> None:
    wrong = "w" * 32
    with capture_logs() as lines:
        await site.ask("PUT", "users", USER, wrong)
        await site.put("users", USER)
        await site.put("users", {**USER, "id": 8})
        await site.put("users", {**USER, "passkey": f"{OTHER}/"})
        await site.ocelot("nothing", passkey=PASSKEY)
        await site.ocelot("remove_user", key=wrong, passkey=PASSKEY)
    text = str(lines)
    assert not any(secret in text for secret in (wrong, KEY, PASSKEY, OTHER))
    assert "wrong key" in text


async def test_a_failed_call_is_logged_with_the_ids_that_it_names(site: Site) -> None:
    await site.put("users", USER)
    info_hash = str(TORRENT["info_hash"])
    with capture_logs() as lines:
        await site.put("torrents", {**TORRENT, "status": 9})
        await site.put("freeleech-tokens", {"user_id": 7, "torrent_id": 404})
        await site.ask("GET", "users/404")
        await site.ocelot("add_token", info_hash=bytes.fromhex(info_hash), userid=7)
        await site.ocelot("change_passkey", oldpasskey=PASSKEY, newpasskey="x" * 100)
        await site.ocelot("add_torrent", id="9 x", info_hash="short")
    names = ("id", "user_id", "userid", "torrent_id", "info_hash")
    assert [{n: line[n] for n in names if n in line} for line in lines if line["event"] == "site call failed"] == [
        {"id": str(TORRENT["id"]), "info_hash": info_hash},
        {"user_id": "7", "torrent_id": "404"},
        {"id": "404"},
        {"userid": "7", "info_hash": info_hash},
        {},
        {},
    ]


async def test_calls_are_counted_by_their_outcome(site: Site) -> None:
    await site.put("users", USER)
    await site.put("users", {})
    await site.ask("PUT", "users", USER, "x" * 32)
    await site.ask("GET", "users/7")
    await site.ask("GET", "users/404")
    await site.ocelot("info_torrent", info_hash=b"x" * 20)
    await site.ocelot("nothing")
    await site.store.connection.command("SET", site.store.keys.denied_clients(), "another program's")
    await site.put("blacklisted-agents", {"peer_id_prefix": "-TR"})
    shown = generate_latest(Scrape(site.telemetry.snapshot(), StoreReadings(up=False), {})).decode()
    found = {line for line in shown.splitlines() if line.startswith("tracker_site_calls_total{")}
    assert found == {
        f'tracker_site_calls_total{{call="{call}",outcome="{outcome}"}} {number}.0'
        for call, outcome, number in (
            ("PUT users", "done", 1),
            ("PUT users", "refused", 2),
            ("GET users", "done", 1),
            ("PUT blacklisted-agents", "failed", 1),
            ("GET users", "refused", 1),
            ("info_torrent", "refused", 1),
            ("unknown", "refused", 1),
        )
    }


async def test_other_addresses_are_refused_whatever_their_key(serve: Serve) -> None:
    site = await serve(allowed=("192.0.2.0/24",))
    for key in (KEY, "x" * 32):
        status, problem = await site.ask("PUT", "users", USER, key)
        assert status == 403
        assert "TRACKER_SITE__ALLOWED" in problem["detail"]
    with capture_logs() as lines:
        assert {(await site.ask("GET", "users/7"))[0] for _ in range(40)} == {403}
    assert 0 < len([line for line in lines if line["event"] == "site call refused"]) < 20
    assert await site.store.users.count() == 0


async def test_a_unix_socket_is_always_allowed(serve: Serve, short_directory: Path) -> None:
    path = short_directory / "site"
    site = await serve(listen=(f"unix:{path}",), allowed=("192.0.2.0/24",))
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
        session.put(f"http://site/announce/{KEY}/users", json=USER) as reply,
    ):
        assert reply.status == 200
    (entry,) = await entries(site)
    assert (entry.actor, entry.address) == ("tests", "")


async def test_changes_are_in_the_audit_log_with_the_name_of_the_site(site: Site) -> None:
    await site.put("users", USER)
    await site.put("users", {**USER, "new_passkey": OTHER, "can_download": False})
    await site.put("torrents", TORRENT)
    await site.get("users/7")
    await site.put("users", {**USER, "id": 8, "passkey": OTHER})  # refused
    await site.put("freeleech-tokens", {"user_id": 9, "torrent_id": 700})  # refused
    found = await entries(site)
    assert [entry.operation for entry in found] == ["user.edit", "user.edit", "torrent.edit"]
    assert {(entry.actor, entry.role, entry.way, entry.address) for entry in found} == {
        ("tests", "operate", "site", "127.0.0.1")
    }
    (user,) = found[1].objects
    assert (user.kind, user.id) == ("user", "7")
    assert user.after == {"passkey": "***", "can_leech": "false"}


async def test_a_huge_body_is_refused(site: Site) -> None:
    huge = b'{"id": 7, "x": "' + b"x" * 70_000 + b'"}'
    assert (await site.ask("PUT", "users", huge))[0] == 413
    async with aiohttp.ClientSession() as session:

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b"x" * 8000

        url = f"http://{site.address}/announce/{KEY}/users"
        async with session.put(url, data=chunks()) as reply:
            assert reply.status == 413
    assert await site.put("users", USER) == 200


async def test_a_slow_body_ends_and_without_the_key_sooner(serve: Serve) -> None:
    limits = Limits(body_seconds=0.3, anonymous_body_seconds=0.1)
    site = await serve(limits)
    head = "HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    async with connect(site.address) as client:
        client.send(f"PUT /announce/{KEY}/users {head}".encode())
        assert (await client.receive()).status == 408
    async with connect(site.address) as client:
        client.send(f"PUT /announce/{'x' * 32}/users {head}".encode())
        assert (await client.receive()).status == 401
    assert await site.put("users", USER) == 200


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PUT /announce HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        b"POST /announce/" + KEY.encode() + b"/users HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
async def test_anything_else_is_refused(site: Site, data: bytes) -> None:
    async with connect(site.address) as client:
        client.send(data)
        response = await client.receive()
    assert 400 <= response.status < 500
    assert "server" not in response.headers


async def test_many_correct_calls_are_not_limited(site: Site) -> None:
    await site.put("users", USER)
    assert {await site.put("users", USER) for _ in range(100)} == {200}


async def test_a_head_that_does_not_end_is_given_up(serve: Serve) -> None:
    site = await serve(Limits(idle_seconds=0.2))
    for start in (b"", b"GET /", b"GET / HTTP/1.1\r\nX: 1\r\n", b"GET /" + b"x" * 20_000):
        async with connect(site.address) as client, asyncio.timeout(PATIENCE):
            client.send(start)
            with suppress(ConnectionError):
                await client.reader.read()  # to the end of the connection


async def test_a_request_without_host_is_answered_however_it_arrives(site: Site) -> None:
    """As Gazelle sends it."""
    for data in (f"GET /{KEY}/update HTTP/1.1\r\n\r\n", f"GET /{KEY}/update HTTP/1.1\r\nHOST: x\r\nA: b\r\n\r\n"):
        async with connect(site.address) as client:
            for byte in data.encode():
                client.send(bytes([byte]))
                await client.flushed()
            response = await client.receive()
            assert (response.status_line, b"unknown action" in response.body) == ("HTTP/1.1 400 Bad Request", True)
