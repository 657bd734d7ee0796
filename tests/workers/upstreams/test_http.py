"""The HTTP client for other trackers: its requests, and its bounds against hostile servers. All on loopback."""

import asyncio
import gzip
from base64 import b64encode
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, ClientTimeout
from yarl import URL

from tests.waiting import eventually, within
from tests.workers.upstreams.harness import HASH, OTHER, Respond, answering, http_reply, http_server, scrape_body
from tracker import __version__
from tracker.bittorrent import Announce, Digits, Event, InfoHash, PeerId, ScrapeFile
from tracker.errors import TrackerRefusal, TrackerReplyError, Unreachable
from tracker.system.http_client import open_session
from tracker.wire.http_reply import MAX_BYTES
from tracker.wire.tracker_url import parse_tracker_url
from tracker.workers.upstreams.clients import HttpTracker, _redirected

COUNTS = scrape_body({HASH: (3, 9, 2)})
OBSERVER = Announce(
    HASH, PeerId(b"-SK0001-abcdefghijkl"), 0, bytes_left=Digits(b"1"), event=Event.STOPPED, peers_wanted=50
)


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with open_session(ClientTimeout(total=None)) as session:
        yield session


async def scrape(session: ClientSession, url: str, timeout: float = 10) -> dict[InfoHash, ScrapeFile]:
    return await HttpTracker(parse_tracker_url(url), session, timeout).scrape([HASH, OTHER])


async def failure(session: ClientSession, respond: Respond, timeout: float = 10) -> Exception:
    """The error that a scrape raises."""
    async with http_server(respond) as server:
        with pytest.raises((TrackerRefusal, TrackerReplyError, Unreachable)) as raised:
            await scrape(session, f"{server.url}/announce", timeout)
    return raised.value


class TestRequests:
    async def test_one_scrape_requests_many_torrents(self, session: ClientSession) -> None:
        async with http_server(answering(COUNTS)) as server:
            files = await scrape(session, f"{server.url}/key/announce")
        assert files == {HASH: ScrapeFile(seeders=3, completions=9, leechers=2), OTHER: ScrapeFile()}
        (request,) = server.requests
        line, *headers = request.split("\r\n")
        assert line == f"GET /key/scrape?info_hash={'%01' * 20}&info_hash={'%02' * 20} HTTP/1.1"
        assert f"User-Agent: swarmkeeper/{__version__}" in headers
        assert "Accept-Encoding: identity" in headers

    async def test_an_existing_query_is_extended(self, session: ClientSession) -> None:
        async with http_server(answering(COUNTS)) as server:
            await scrape(session, f"{server.url}/announce.php?passkey=a%2Fb+c")
        assert server.requests[0].startswith("GET /scrape.php?passkey=a%2Fb+c&info_hash=%01")

    async def test_fifty_torrents_fit_into_a_request_line(self, session: ClientSession) -> None:
        async with http_server(answering(scrape_body({}))) as server:
            tracker = HttpTracker(parse_tracker_url(f"{server.url}/announce"), session, 10)
            await tracker.scrape([InfoHash(bytes([at]) * 20) for at in range(tracker.max_scrape)])
        assert len(server.requests[0].split("\r\n")[0]) < 4096

    async def test_the_observer_announces_stopped_without_a_port(self, session: ClientSession) -> None:
        async with http_server(answering(b"d8:completei3e5:peers6:\1\2\3\4\0\1e")) as server:
            tracker = HttpTracker(parse_tracker_url(f"{server.url}/announce/key"), session, 10)
            assert not tracker.scrapes
            reply = await tracker.announce(OBSERVER)
        assert (reply.seeders, reply.peers) == (3, b"\1\2\3\4\0\1")
        line = server.requests[0].split("\r\n")[0]
        assert line.startswith("GET /announce/key?info_hash=%01")
        assert {"port=0", "event=stopped", "uploaded=0", "downloaded=0", "numwant=50"} < set(line.split("&"))

    async def test_cookies_are_ignored(self, session: ClientSession) -> None:
        async with http_server(answering(COUNTS, "200 OK", "Set-Cookie: a=b")) as server:
            for _ in range(2):
                await scrape(session, f"{server.url}/announce")
        assert not [request for request in server.requests if "cookie" in request.lower()]

    async def test_credentials_are_sent_as_basic_authentication(self, session: ClientSession) -> None:
        async with http_server(answering(COUNTS)) as server:
            await scrape(session, f"http://site:hunter2@127.0.0.1:{server.port}/announce")
        assert f"Authorization: Basic {b64encode(b'site:hunter2').decode()}" in server.requests[0]


class TestFaults:
    @pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", http_reply(b"x" * 9)[:-8]])
    async def test_a_slow_tracker_times_out(self, session: ClientSession, sent: bytes) -> None:
        async def respond(writer: asyncio.StreamWriter, head: str) -> None:
            writer.write(sent)
            await eventually(writer.is_closing)

        with within(20):
            error = await failure(session, respond, timeout=0.2)
        assert str(error) == "no reply in time"

    @pytest.mark.parametrize("head", ["Transfer-Encoding: chunked", f"Content-Length: {10**9}"])
    async def test_a_huge_reply_is_not_read_to_its_end(self, session: ClientSession, head: str) -> None:
        sent = 0

        async def respond(writer: asyncio.StreamWriter, _head: str) -> None:
            nonlocal sent
            writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
            chunk = b"x" * 65536
            while True:
                writer.write(b"10000\r\n" + chunk + b"\r\n" if "chunked" in head else chunk)
                await writer.drain()
                sent += len(chunk)

        error = await failure(session, respond)
        assert str(error) == "reply too large"
        assert sent < 100 * MAX_BYTES

    async def test_a_compressed_reply_is_not_decompressed(self, session: ClientSession) -> None:
        bomb = gzip.compress(bytes(50_000_000))
        error = await failure(session, answering(bomb, "200 OK", "Content-Encoding: gzip"))
        assert "compressed" in str(error)

    @pytest.mark.parametrize("status", ["500 Oops", "503 Busy", "429 Slower"])
    async def test_a_server_error_is_reported_with_its_status(self, session: ClientSession, status: str) -> None:
        error = await failure(session, answering(COUNTS, status))
        assert isinstance(error, Unreachable)
        assert str(error) == f"status {status[:3]}"

    async def test_a_refusal_may_have_an_error_status(self, session: ClientSession) -> None:
        error = await failure(session, answering(b"d14:failure reason2:noe", "403 Forbidden"))
        assert isinstance(error, TrackerRefusal)
        assert error.text == "no"
        error = await failure(session, answering(b"<html>no such page</html>", "404 Not Found"))
        assert isinstance(error, TrackerRefusal)
        assert error.text == "status 404"

    @pytest.mark.parametrize("body", [b"", b"<html></html>", b"d5:filesde", b"l" * 100_000])
    async def test_a_reply_that_is_not_bencoded_is_an_error(self, session: ClientSession, body: bytes) -> None:
        assert isinstance(await failure(session, answering(body)), TrackerReplyError)

    @pytest.mark.parametrize("sent", [b"", b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000])
    async def test_a_reply_that_is_not_http_is_an_error(self, session: ClientSession, sent: bytes) -> None:
        async def respond(writer: asyncio.StreamWriter, head: str) -> None:
            writer.write(sent)
            writer.close()

        error = await failure(session, respond)
        assert isinstance(error, Unreachable)
        assert str(error).startswith("unreachable (")

    async def test_a_closed_port_is_unreachable(self, session: ClientSession) -> None:
        async with http_server(answering(b"")) as server:
            pass
        with pytest.raises(Unreachable, match=r"unreachable \(Client"):
            await scrape(session, f"{server.url}/hunter2/announce")


class TestRedirects:
    async def test_a_redirect_within_the_server_is_followed(self, session: ClientSession) -> None:
        async def respond(writer: asyncio.StreamWriter, head: str) -> None:
            target = head.split()[1]
            moved = http_reply(b"", "302 Found", f"Location: /new{target}")
            writer.write(http_reply(COUNTS) if target.startswith("/new/") else moved)

        async with http_server(respond) as server:
            files = await scrape(session, f"http://site:hunter2@127.0.0.1:{server.port}/announce")
        assert files[HASH].seeders == 3
        assert server.requests[1].startswith("GET /new/scrape?info_hash=%01")
        assert "Authorization" in server.requests[1]

    @pytest.mark.parametrize(
        "location",
        ["http://localhost:{port}/", "http://127.0.0.1:{port}/", "//127.0.0.2:{port}/x", "https://localhost/"],
    )
    async def test_a_redirect_to_another_host_is_refused(self, session: ClientSession, location: str) -> None:
        async with http_server(answering(COUNTS)) as other:
            where = location.format(port=other.port)
            error = await failure(session, answering(b"", "301 Moved Permanently", f"Location: {where}"))
        assert str(error) == "redirect to another host"
        assert not other.requests

    @pytest.mark.parametrize("headers", [["Location: file:///etc/passwd"], ["Location: http://["]])
    async def test_a_redirect_without_a_target_is_refused(self, session: ClientSession, headers: list[str]) -> None:
        error = await failure(session, answering(b"", "302 Found", *headers))
        assert isinstance(error, Unreachable | TrackerReplyError)

    def test_a_redirect_to_https_on_the_same_host_is_allowed(self) -> None:
        url = URL("http://site:hunter2@tracker.example:8080/scrape?x")
        there = _redirected(url, "https://tracker.example/scrape?x")
        assert str(there) == "https://site:hunter2@tracker.example/scrape?x"

    async def test_a_redirect_loop_ends(self, session: ClientSession) -> None:
        error = await failure(session, answering(b"", "302 Found", "Location: /scrape"))
        assert str(error) == "too many redirects"
