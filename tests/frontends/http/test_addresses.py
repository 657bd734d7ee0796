"""The address of a peer: from its connection, proxy headers, the ip parameter or a PROXY header."""

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.http.conftest import Logs
from tests.frontends.http.harness import ANNOUNCE, RecordingTracker, on_loops, serving, talking
from tests.raw_http import Client, connect, request
from tracker.refusals import ADDRESS_HIDDEN, ADDRESS_IMPOSSIBLE, PROXY_HEADER_MISSING, PROXY_HEADER_UNEXPECTED

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
ELSEWHERE = (ipaddress.ip_network("192.0.2.0/24"),)
V1 = b"PROXY TCP4 198.51.100.7 127.0.0.1 4711 6969\r\n"
V1_6 = b"PROXY TCP6 2001:db8::7 ::1 4711 6969\r\n"
V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V2 = V2_SIGNATURE + b"\x21\x11\0\x0c" + bytes([198, 51, 100, 8, 127, 0, 0, 1, 0x12, 0x67, 0x1B, 0x39])
V2_LOCAL = V2_SIGNATURE + b"\x20\0\0\0"


async def credited(tracker: RecordingTracker, client: Client, *headers: str, query: str = "") -> str:
    """The address that the tracker sees for an announce with these headers."""
    assert b"peers" in (await client.get(ANNOUNCE + query, *headers)).reply
    return tracker.address


@on_loops()
async def test_an_ipv6_peer_is_listed_with_its_ipv6_address() -> None:
    tracker = RecordingTracker()
    async with talking(tracker, listen=("[::1]:0",)) as client:
        assert await credited(tracker, client) == "::1"


@on_loops("uvloop")
@pytest.mark.parametrize("trusted", [(), ELSEWHERE])
async def test_headers_of_untrusted_clients_are_ignored(trusted: tuple[Any, ...]) -> None:
    """T25"""
    tracker = RecordingTracker()
    async with talking(tracker, trusted_proxies=trusted) as client:
        headers = ("X-Forwarded-For: 198.51.100.1", "Forwarded: for=198.51.100.2")
        assert await credited(tracker, client, *headers, query="&ip=198.51.100.3") == "127.0.0.1"


@on_loops("uvloop")
async def test_trusted_proxies_name_the_client() -> None:
    """T25: the rightmost hop that is no trusted proxy counts. Several lines are one list; invalid ones are no error."""
    tracker = RecordingTracker()
    async with talking(tracker, trusted_proxies=LOOPBACK) as client:
        for headers, address in (
            (["X-Forwarded-For: 198.51.100.1"], "198.51.100.1"),
            (["X-Forwarded-For: 10.0.0.1, 198.51.100.1, 127.0.0.9"], "198.51.100.1"),
            (["X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 198.51.100.2"], "198.51.100.2"),
            (["X-Forwarded-For: ::ffff:198.51.100.4"], "198.51.100.4"),
            (["Forwarded: for=198.51.100.2;proto=http"], "198.51.100.2"),
            (['Forwarded: for="[2001:db8::5]:4711"'], "2001:db8::5"),
            (["X-Forwarded-For: 127.0.0.1"], "127.0.0.1"),  # a client on the proxy's own host
        ):
            assert await credited(tracker, client, *headers) == address


@on_loops()
async def test_a_trusted_proxy_that_names_no_client_is_no_peer() -> None:
    tracker = RecordingTracker()
    async with talking(tracker, trusted_proxies=LOOPBACK) as client:
        for headers in ([], ["X-Forwarded-For: , nonsense,,\xff"], ["Forwarded: for=unknown"]):
            for path in (ANNOUNCE, f"{ANNOUNCE}&ip=nonsense", "/scrape"):
                assert (await client.get(path, *headers)).failure == ADDRESS_HIDDEN
    assert not tracker.announces and set(tracker.labels) == {ADDRESS_HIDDEN}


@on_loops()
@pytest.mark.parametrize("address", ["0.0.0.0", "0.1.2.3", "224.0.0.1", "255.255.255.255", "::", "ff02::1"])
async def test_addresses_that_no_peer_can_have_are_refused(address: str) -> None:
    tracker = RecordingTracker()
    async with talking(tracker, trusted_proxies=LOOPBACK) as client:
        for headers, query in (([f"X-Forwarded-For: {address}"], ""), ([], f"&ip={address}")):
            assert (await client.get(ANNOUNCE + query, *headers)).failure == ADDRESS_IMPOSSIBLE
    assert not tracker.announces and tracker.labels == 2 * [ADDRESS_IMPOSSIBLE]


@on_loops("uvloop")
async def test_ip_parameter_applies_only_to_the_trusted_proxy_itself() -> None:
    """T25: a client behind the proxy cannot use it, or it could direct peers to any address."""
    tracker = RecordingTracker()
    async with talking(tracker, trusted_proxies=LOOPBACK) as client:
        assert await credited(tracker, client, query="&ip=198.51.100.3") == "198.51.100.3"
        forwarded = "X-Forwarded-For: 198.51.100.1"
        assert await credited(tracker, client, forwarded, query="&ip=198.51.100.3") == "198.51.100.1"


@on_loops("uvloop")
async def test_ip_parameter_applies_to_private_addresses_when_enabled() -> None:
    """T25"""
    tracker = RecordingTracker()
    async with talking(tracker, ip_parameter_from_private=True) as client:
        assert await credited(tracker, client, query="&ip=198.51.100.3") == "198.51.100.3"
    async with talking(tracker, ip_parameter_from_private=True, trusted_proxies=LOOPBACK) as client:
        query = "&ip=198.51.100.3"
        assert await credited(tracker, client, "X-Forwarded-For: 9.9.9.9", query=query) == "9.9.9.9"


@on_loops()
async def test_unix_sockets_serve_only_proxies(tmp_path: Path, logs: Logs) -> None:
    tracker = RecordingTracker()
    listen = (f"unix:{tmp_path}/http.sock",)
    async with talking(tracker, listen=listen, trusted_proxies=ELSEWHERE) as client:
        assert await credited(tracker, client, "X-Forwarded-For: 198.51.100.1") == "198.51.100.1"
        assert await credited(tracker, client, query="&ip=198.51.100.3") == "198.51.100.3"
        for headers in ([], ["X-Forwarded-For: nonsense"]):
            assert "X-Forwarded-For" in (await client.get(ANNOUNCE, *headers)).failure
            assert "X-Forwarded-For" in (await client.get("/scrape", *headers)).failure
    assert logs == []
    async with talking(tracker, listen=listen) as client:
        assert "proxy" in (await client.get(ANNOUNCE, "X-Forwarded-For: 198.51.100.1")).failure
    assert "trusted_proxies" in logs[0]["event"]
    assert len(tracker.announces) == 2


@on_loops()
@pytest.mark.parametrize(("header", "address"), [(V1, "198.51.100.7"), (V1_6, "2001:db8::7"), (V2, "198.51.100.8")])
async def test_proxy_protocol_names_the_client(header: bytes, address: str) -> None:
    """In one segment with the request, and byte by byte. It applies to the whole connection."""
    tracker = RecordingTracker()
    async with serving(tracker, trusted_proxies=LOOPBACK, proxy_protocol=True) as served:
        async with connect(served) as client:
            client.send(header + request(ANNOUNCE))
            await client.receive()
            assert tracker.address == address
            assert await credited(tracker, client) == address
        async with connect(served) as client:
            for byte in header + request(ANNOUNCE):
                client.send(bytes([byte]))
                await client.writer.drain()
            await client.receive()
            assert tracker.address == address
    assert len(tracker.announces) == 3


@on_loops()
@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", V2_LOCAL])
async def test_a_proxy_that_speaks_for_itself_is_no_peer(header: bytes) -> None:
    tracker = RecordingTracker()
    async with talking(tracker, trusted_proxies=LOOPBACK, proxy_protocol=True) as client:
        client.send(header + request("/health"))
        assert (await client.receive()).body == b"alive\n"
        assert (await client.get(ANNOUNCE)).failure == ADDRESS_HIDDEN
    assert not tracker.announces


@on_loops("uvloop")
async def test_a_client_on_the_proxys_host_is_named_by_the_proxy_header() -> None:
    tracker = RecordingTracker()
    async with talking(tracker, trusted_proxies=LOOPBACK, proxy_protocol=True) as client:
        client.send(b"PROXY TCP4 127.0.0.1 127.0.0.1 4711 6969\r\n")
        assert await credited(tracker, client) == "127.0.0.1"


@on_loops("uvloop")
async def test_clients_behind_proxy_protocol_are_not_trusted_themselves() -> None:
    """T25"""
    tracker = RecordingTracker()
    async with talking(tracker, trusted_proxies=LOOPBACK, proxy_protocol=True) as client:
        client.send(V1)
        forged = ("X-Forwarded-For: 198.51.100.1",)
        assert await credited(tracker, client, *forged, query="&ip=198.51.100.3") == "198.51.100.7"


@on_loops("uvloop")
async def test_proxy_protocol_works_over_a_unix_socket(tmp_path: Path) -> None:
    tracker = RecordingTracker()
    listen = (f"unix:{tmp_path}/http.sock",)
    async with talking(tracker, listen=listen, trusted_proxies=ELSEWHERE, proxy_protocol=True) as client:
        client.send(V2)
        assert await credited(tracker, client) == "198.51.100.8"


@on_loops()
@pytest.mark.parametrize("first", [request(ANNOUNCE), b"PROXY nonsense\r\n", b"\r\n\r\n\0\r\nQUIX\n", b"P" * 600])
async def test_trusted_connections_without_the_header_are_closed(first: bytes, logs: Logs) -> None:
    """One warning names the setting."""
    tracker = RecordingTracker()
    async with serving(tracker, trusted_proxies=LOOPBACK, proxy_protocol=True) as served:
        for _ in range(2):
            async with connect(served) as client:
                client.send(first)
                assert await client.is_closed()
    assert tracker.announces == []
    if first.startswith(b"PROXY "):
        assert tracker.labels == 2 * ["malformed HTTP request"]
    else:
        assert tracker.labels == 2 * [PROXY_HEADER_MISSING]
        (told,) = logs
        assert (told["event"], told["setting"]) == (PROXY_HEADER_MISSING, "TRACKER_HTTP__PROXY_PROTOCOL")


@on_loops("uvloop")
@pytest.mark.parametrize(
    "settings", [{"trusted_proxies": ELSEWHERE, "proxy_protocol": True}, {"trusted_proxies": LOOPBACK}]
)
async def test_a_proxy_header_that_is_not_expected_is_refused_and_told_once(
    settings: dict[str, Any], logs: Logs
) -> None:
    tracker = RecordingTracker()
    async with serving(tracker, **settings) as served:
        async with connect(served) as client:
            assert await credited(tracker, client, "X-Forwarded-For: 127.0.0.1") == "127.0.0.1"
        for header in (V1, V2):
            async with connect(served) as client:
                client.send(header + request(ANNOUNCE))
                assert (await client.receive()).failure == PROXY_HEADER_UNEXPECTED
                assert await client.is_closed()
    assert len(tracker.announces) == 1 and tracker.labels == 2 * [PROXY_HEADER_UNEXPECTED]
    (told,) = logs
    assert (told["event"], told["setting"]) == (PROXY_HEADER_UNEXPECTED, "TRACKER_HTTP__PROXY_PROTOCOL")


@on_loops()
async def test_an_unfinished_proxy_header_times_out() -> None:
    tracker = RecordingTracker()
    settings: dict[str, Any] = {"trusted_proxies": LOOPBACK, "proxy_protocol": True, "keepalive_seconds": 0.05}
    async with talking(tracker, **settings) as client:
        client.send(V1[:-1])
        assert await client.is_closed()
    assert tracker.announces == []
