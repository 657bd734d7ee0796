"""Requests over real sockets: paths, methods, encodings, refusals."""

from typing import Any

import bencodepy
import pytest

from tests.frontends.http.conftest import Logs
from tests.frontends.http.harness import (
    ANNOUNCE,
    INFO_HASH,
    PEER_ID,
    QUERY,
    RecordingTracker,
    on_loops,
    serving,
    talking,
)
from tests.raw_http import connect, request
from tracker.bittorrent import Accounts
from tracker.refusals import REASONS, Refusal, RetryIn
from tracker.settings.public import AnnounceSettings, UserSettings

SCRAPE = "/scrape?" + "&".join("info_hash=" + f"%{number:02x}" * 20 for number in range(3))


@on_loops()
async def test_announce_is_answered_in_plain_text_of_known_length() -> None:
    """T1"""
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        response = await client.get(ANNOUNCE)
    assert response.reply[b"interval"] == 1800
    assert response.reply[b"peers"] == b""
    ((announce, passkey, _),) = tracker.announces
    assert (announce.info_hash, announce.peer_id, passkey) == (INFO_HASH, PEER_ID, None)
    assert tracker.address == "127.0.0.1"
    assert tracker.labels == []


@on_loops("uvloop")
async def test_binary_queries_arrive_byte_for_byte() -> None:
    """T4: every byte escaped in either case, unescaped characters, an empty event, a raw number sign."""
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        for start in range(0, 256, 20):
            raw = bytes(byte % 256 for byte in range(start, start + 20))
            lower = "".join(f"%{byte:02x}" for byte in raw)
            upper = "".join(f"%{byte:02X}" for byte in reversed(raw))
            await client.get(f"/announce?info_hash={lower}&peer_id={upper}&port=1&event=&compact")
            assert tracker.announces[-1][0].info_hash == raw
            assert tracker.announces[-1][0].peer_id == raw[::-1]
        plain = "!$'()*,-./0Az:;@_~#[]{}|"[:20]
        await client.get(f"/announce?info_hash={plain}&peer_id=-XX0001-%23%26%2B%3D%25+......&port=1")
    assert tracker.announces[-1][0].info_hash == plain.encode()
    assert tracker.announces[-1][0].peer_id == b"-XX0001-#&+=% ......"


@on_loops("uvloop")
async def test_scrape_takes_one_hash_or_many() -> None:
    """T18"""
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        response = await client.get(SCRAPE)
        assert sorted(response.reply[b"files"]) == [bytes([number]) * 20 for number in range(3)]
        await client.get("/0123abcd/scrape")
    assert [passkey for _, passkey, _ in tracker.scrapes] == [None, "0123abcd"]
    assert tracker.scrapes[1][0].info_hashes == ()


@on_loops("uvloop")
async def test_a_scrape_of_400_torrents_fits_and_a_longer_one_is_refused() -> None:
    """None is left out silently. Transmission scrapes fewer torrents at once after this text."""
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        hashes = [f"info_hash={f'%{n >> 8:02x}%{n & 255:02x}' * 10}" for n in range(500)]
        await client.get("/scrape?" + "&".join(hashes[:400]))
        response = await client.get("/scrape?" + "&".join(hashes[:401]))
        assert response.failure == "GET string too long: scrape fewer torrents at once"
        await client.get("/scrape?" + "&".join([*hashes[:400], hashes[0]]))
        response = await client.get("/scrape?" + "&".join(hashes))
        assert response.failure == "GET string too long: scrape fewer torrents at once"
        assert await client.is_closed()
    assert len(tracker.scrapes[0][0].info_hashes) == 400


@on_loops("uvloop")
async def test_unknown_announce_paths_get_a_failure_and_others_a_404() -> None:
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        assert "no such path" in (await client.get(f"/announce.php?{QUERY}")).failure
        assert b"/announce" in (await client.get("/")).body
        missing = await client.get("/favicon.ico")
        assert missing.status_line == "HTTP/1.1 404 Not Found"
        assert missing.headers["content-type"] == "text/plain"
        await client.get(ANNOUNCE)
    assert len(tracker.announces) == 1
    assert tracker.labels == ["no such path: announce to /announce or /<passkey>/announce"]


TWO, MALFORMED = "the announce URL has two passkeys", "the passkey in the announce URL is malformed"


@on_loops("uvloop")
@pytest.mark.parametrize("accounts", ["optional", "required"])
@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("/0123abcd/announce?passkey=x&{}", TWO),
        ("/announce/0123abcd?passkey=x&{}", TWO),
        ("/announce?passkey=x&{}&passkey=x", TWO),
        ("/0123abcd/scrape/0123abcd?{}", TWO),
        ("/scrape/0123abcd?{}&passkey=x", TWO),
        ("/announce?passkey=&{}", MALFORMED),
        ("/announce?passkey=a%3Ab&{}", MALFORMED),
        ("/announce/a:b?{}", MALFORMED),
        ("/scrape?passkey=a:b&{}", MALFORMED),
    ],
)
async def test_two_passkeys_and_malformed_ones_are_refused_with_the_reason(
    accounts: Accounts, target: str, text: str
) -> None:
    """Where accounts are optional, a malformed passkey is an unknown one."""
    tracker = RecordingTracker()
    async with talking(tracker, users=UserSettings(private=accounts)) as client:
        reply = (await client.get(target.format(QUERY))).reply
    if accounts == "optional" and text == MALFORMED:
        assert [passkey for _, passkey, _ in [*tracker.announces, *tracker.scrapes]] == ["?"]
        assert tracker.labels == []
    else:
        assert reply[b"failure reason"] == text.encode()
        assert tracker.labels == [text] and not tracker.announces and not tracker.scrapes


@on_loops("uvloop")
async def test_forms_of_passkeys_can_be_switched_off() -> None:
    tracker = RecordingTracker()
    off = UserSettings(private="required", passkey_after_announce=False, passkey_parameter=False)
    for users in (UserSettings(), off):
        async with talking(tracker, users=users) as client:
            assert "no such path" in (await client.get(f"/announce/0123abcd?{QUERY}")).failure
            assert "no such path" in (await client.get(f"/announce.php?passkey=0123abcd&{QUERY}")).failure
            await client.get(f"/announce?passkey=a:b&{QUERY}&passkey=x")
            await client.get(f"/announce?passkey=a?{QUERY}")
            await client.get(f"/0123abcd/announce?passkey=x&{QUERY}")
    assert [passkey for _, passkey, _ in tracker.announces] == [None, None, "0123abcd"] * 2


@on_loops("uvloop")
async def test_absolute_targets_are_served() -> None:
    """Also one with a host that aiohttp's request class cannot parse."""
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        for host in ("tracker.test:6969", "[::1]", "xn--", "user@a..b"):
            await client.get(f"http://{host}/key/announce?{QUERY}")
    assert [passkey for _, passkey, _ in tracker.announces] == ["key"] * 4


@on_loops()
async def test_pipelined_requests_are_answered_in_order() -> None:
    """More of them than aiohttp queues at once, in one segment."""
    tracker = RecordingTracker()
    ports = range(1, 101)
    async with talking(tracker) as client:
        client.send(b"".join(request(ANNOUNCE.replace("6881", str(port))) for port in ports))
        assert [(await client.receive()).reply[b"complete"] for _ in ports] == list(ports)
        assert (await client.get(ANNOUNCE)).reply[b"complete"] == 6881


@on_loops("uvloop")
async def test_http_1_0_without_host_is_served_and_closed() -> None:
    tracker = RecordingTracker()
    async with serving(tracker) as address:
        async with connect(address) as client:
            client.send(f"GET {ANNOUNCE} HTTP/1.0\r\n\r\n".encode())
            response = await client.receive()
            assert response.status_line == "HTTP/1.0 200 OK"
            assert response.reply[b"peers"] == b""
            assert await client.is_closed()
        async with connect(address) as client:
            for _ in range(2):
                client.send(f"GET {ANNOUNCE} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode())
                assert (await client.receive()).headers["connection"] == "keep-alive"


@on_loops("uvloop")
async def test_connection_close_is_honoured() -> None:
    async with talking(RecordingTracker()) as client:
        response = await client.get(ANNOUNCE, "Connection: close")
        assert response.headers["connection"] == "close"
        assert await client.is_closed()


@on_loops("uvloop")
async def test_head_does_not_announce() -> None:
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        client.send(request(ANNOUNCE, method="HEAD"))
        response = await client.receive()
        assert (response.status_line, response.body) == ("HTTP/1.1 200 OK", b"")
        assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""
    assert len(tracker.announces) == 1


@on_loops()
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT"])
async def test_other_methods_are_refused_and_their_bodies_left_unread(method: str) -> None:
    tracker = RecordingTracker()
    target = "tracker.test:80" if method == "CONNECT" else ANNOUNCE
    async with talking(tracker, constants={"system.aiohttp_connection.LINGER_SECONDS": 0.02}) as client:
        client.send(request(target, "Content-Length: 1000000000", "Content-Encoding: gzip", method=method))
        client.send(b"not gzip" * 10_000)
        assert (await client.receive()).failure == "announce and scrape are GET requests"
        assert await client.is_closed()
    assert tracker.announces == []
    assert tracker.labels == ["announce and scrape are GET requests"]


LONG = "x" * 40_000


@on_loops()
@pytest.mark.parametrize(
    ("raw", "hint"),
    [
        (b"GET /announce?info_hash=\xff\xfe HTTP/1.1\r\nHost: t\r\n\r\n", "percent-encoded"),
        (b"GET /ann\xc3\xa9 HTTP/1.1\r\nHost: t\r\n\r\n", "percent-encoded"),
        (b"GET /announce?info_hash=a b HTTP/1.1\r\nHost: t\r\n\r\n", "percent-encoded"),
        (b"GET /announce?a=\x00 HTTP/1.1\r\nHost: t\r\n\r\n", "percent-encoded"),
        (b"GET announce HTTP/1.1\r\nHost: t\r\n\r\n", "percent-encoded"),
        (f"GET /announce?{LONG} HTTP/1.1\r\nHost: t\r\n\r\n".encode(), "too long"),
        (f"GET / HTTP/1.1\r\nHost: t\r\nA: {LONG}\r\n\r\n".encode(), "too long"),
        (b"GET /announce HTTP/1.1\r\n\r\n", "Host"),
        (b"GET /announce HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "malformed"),
        (b"GET /announce HTTP/1.1\r\nno colon here\r\n\r\n", "malformed"),
        (b"GET / HTTP/1.1\r\nHost: t\r\n" + b"a: b\r\n" * 100 + b"\r\n", "too many header lines"),
        (b"GET / HTTP/1.1\r\nHost: t\r\nContent-Length: x\r\n\r\n", "malformed"),
        (b"GET / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "malformed"),
        (b"GET /announce HTTP/9.9\r\nHost: t\r\n\r\n", "malformed"),
        (b"NONSENSE /announce HTTP/1.1\r\nHost: t\r\n\r\n", "not an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 32, "not an HTTP request"),
        (b"\x13BitTorrent protocol" + b"\x00" * 48, "not an HTTP request"),
    ],
)
async def test_requests_that_aiohttp_refuses_get_a_failure(raw: bytes, hint: str) -> None:
    """A 200 with a helpful text, counted and not logged. Then the connection is closed."""
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        client.send(raw)
        response = await client.receive()
        assert hint in response.failure
        assert response.reply[b"retry in"] == b"never"
        assert await client.is_closed()
    assert tracker.announces == []
    assert tracker.labels == [response.failure]


@on_loops("uvloop")
async def test_broken_bodies_of_get_requests_do_no_harm() -> None:
    tracker = RecordingTracker()
    async with serving(tracker, constants={"system.aiohttp_connection.LINGER_SECONDS": 0.02}) as address:
        for header, body in (("Transfer-Encoding: chunked", b"nonsense\r\n"), ("Content-Length: 9", b"short")):
            async with connect(address) as client:
                client.send(request(ANNOUNCE, header))
                client.send(body)
                assert (await client.receive()).reply
                assert await client.is_closed()
        async with connect(address) as client:
            client.send(request(ANNOUNCE, "Content-Length: 4") + b"body" + request(ANNOUNCE))
            assert [(await client.receive()).reply[b"peers"] for _ in range(2)] == [b"", b""]


@on_loops()
async def test_a_malformed_body_after_the_answer_logs_no_error() -> None:
    async with talking(RecordingTracker(), constants={"system.aiohttp_connection.LINGER_SECONDS": 0.02}) as client:
        response = await client.get(ANNOUNCE, "Transfer-Encoding: chunked")
        assert response.reply[b"peers"] == b""
        client.send(b"nonsense\r\n")
        assert await client.is_closed()


@on_loops("uvloop")
async def test_upgrade_requests_are_plain_requests() -> None:
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        upgrade = request(ANNOUNCE, "Connection: Upgrade", "Upgrade: websocket")
        client.send(upgrade + request(ANNOUNCE))
        assert [(await client.receive()).reply[b"peers"] for _ in range(2)] == [b"", b""]
        client.send(upgrade + b"\x81\x05hello")
        assert (await client.receive()).reply[b"peers"] == b""
        assert "not an HTTP request" in (await client.receive()).failure


@on_loops("uvloop")
async def test_refusals_of_the_tracker_keep_the_connection() -> None:
    """T2: the text, BEP 31's retry in, and the interval that libtorrent obeys. The tracker counts its own refusals."""
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        tracker.error = Refusal("denied", "no such torrent")
        for target in (ANNOUNCE, SCRAPE):
            reply = (await client.get(target)).reply
            assert reply[b"failure reason"] == b"no such torrent"
            assert (reply[b"retry in"], reply[b"interval"], reply[b"min interval"]) == (b"never", 1800, 900)
        tracker.error = Refusal("store unavailable")
        assert (await client.get(ANNOUNCE)).reply[b"retry in"] == 1
    assert tracker.labels == []


@pytest.mark.parametrize(
    ("retry_in", "interval", "min_interval", "expected"),
    [
        (1, 1800, 900, (60, 60)),  # after a short outage of the store peers return before they time out
        (5, 1800, 900, (300, 300)),
        (15, 1800, 900, (900, 900)),
        (60, 1800, 900, (1800, 1800)),
        (1, 30, 900, (30, 30)),
        ("never", 1800, 900, (1800, 900)),
        ("never", 300, 900, (300, 300)),
    ],
)
@on_loops("uvloop")
async def test_the_intervals_of_a_failure_match_its_retry_time(
    retry_in: RetryIn, interval: int, min_interval: int, expected: tuple[int, int]
) -> None:
    """T2: libtorrent obeys the two intervals of a failure, so they equal ``retry in``."""
    tracker = RecordingTracker()
    tracker.error = Refusal(
        next(name for name, reason in REASONS.items() if reason.retry_in == retry_in and not reason.interval_seconds)
    )
    settings = AnnounceSettings(interval_seconds=interval, min_interval_seconds=min_interval)
    async with talking(tracker, announce=settings) as client:
        for target in (ANNOUNCE, SCRAPE):
            reply = (await client.get(target)).reply
            assert reply[b"retry in"] == (b"never" if retry_in == "never" else retry_in)
            assert (reply[b"interval"], reply[b"min interval"]) == expected


@on_loops("uvloop")
async def test_malformed_announces_are_refused_and_counted() -> None:
    """T4"""
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        assert "20" in (await client.get("/announce?info_hash=" + "ab" * 20)).failure
        assert "info_hash" in (await client.get("/scrape?info_hash=a")).failure
    assert not tracker.announces and not tracker.scrapes
    assert len(tracker.labels) == 2


@on_loops("uvloop")
async def test_an_announce_without_a_query_explains_the_url() -> None:
    async with talking(RecordingTracker()) as client:
        for target in ("/announce", "/announce?"):
            failure = (await client.get(target)).failure
            assert failure == "this is a BitTorrent tracker: open this URL in a torrent client"


@on_loops("uvloop")
@pytest.mark.parametrize("error", [KeyError("sekrit"), TimeoutError("sekrit"), ValueError("sekrit")])
async def test_internal_errors_are_logged_without_client_data(error: Exception, logs: Logs) -> None:
    tracker = RecordingTracker()
    tracker.error = error
    async with talking(tracker) as client:
        response = await client.get(f"/sekrit/announce?{QUERY}")
        assert response.failure == "internal error"
        assert await client.is_closed()
    (line,) = (line for line in logs if line["log_level"] == "error")
    logs.remove(line)
    assert line["error"] == type(error).__name__
    assert "harness.py" in line["at"]
    assert "sekrit" not in str(line)


@on_loops("uvloop")
async def test_access_log_has_a_line_per_request_and_no_passkey(logs: Logs) -> None:
    tracker = RecordingTracker()
    async with talking(tracker, access_log=True) as client:
        await client.get(f"/sekrit/announce?{QUERY}")
        await client.get("/favicon.ico?sekrit")
        client.send(b"GET /sekrit\xff HTTP/1.1\r\nHost: sekrit\r\n\r\n")
        await client.receive()
    lines = [line for line in logs if line["event"] == "request"]
    assert [(line["kind"], line["status"]) for line in lines] == [("announce", 200), ("other", 404), ("malformed", 200)]
    assert all(line["client"] == "127.0.0.1" and line["milliseconds"] >= 0 for line in lines)
    assert "sekrit" not in str(logs)


@on_loops()
async def test_access_log_includes_immediate_refusals(logs: Logs) -> None:
    async with talking(RecordingTracker(), access_log=True) as client:
        for target in ("/announce?info_hash=short", "/scrape?info_hash=short", ANNOUNCE):
            await client.get(target)
    lines = [line for line in logs if line["event"] == "request"]
    assert [(line["kind"], line["status"], line["client"]) for line in lines] == [
        ("announce", 200, "127.0.0.1"),
        ("scrape", 200, "127.0.0.1"),
        ("announce", 200, "127.0.0.1"),
    ]


@on_loops("uvloop")
async def test_the_access_log_is_disabled_by_default(logs: Logs) -> None:
    async with talking(RecordingTracker()) as client:
        await client.get(ANNOUNCE)
    assert logs == []


@on_loops("uvloop")
async def test_failures_are_canonical_bencode() -> None:
    async with talking(RecordingTracker()) as client:
        response = await client.get("/announce?")
    assert bencodepy.encode(dict(sorted(response.reply.items()))) == response.body


@on_loops("uvloop")
@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["X-Long: " + "a" * 9000], "a header line of the request is too long"),
        ([f"X-{number}: a" for number in range(100)], "the request has too many header lines"),
    ],
)
async def test_oversized_headers_are_refused_with_the_reason(lines: list[str], text: str) -> None:
    async with talking(RecordingTracker()) as client:
        assert (await client.get(ANNOUNCE, *lines)).failure == text


@on_loops()
@pytest.mark.parametrize("path", [ANNOUNCE, ANNOUNCE.replace("nn", "n%6E")])
async def test_a_trusted_proxy_may_omit_the_host(path: str) -> None:
    """An HTTP/1.0 client may have sent none. Other clients need one in HTTP/1.1."""
    for trusted in (True, False):
        http: dict[str, Any] = {"trusted_proxies": ["127.0.0.1/32"] if trusted else []}
        async with talking(RecordingTracker(), **http) as client:
            for _ in range(2 if trusted else 1):
                client.send(f"GET {path} HTTP/1.1\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n".encode("latin-1"))
                answer = await client.receive()
                assert ("Host" in answer.failure) if not trusted else answer.reply[b"peers"] == b""
