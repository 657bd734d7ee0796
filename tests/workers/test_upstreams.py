"""Other trackers get few requests, never count us, and cannot disturb each other.

Real trackers run as processes: our own over HTTP, and opentracker, if installed, over UDP and HTTP.
"""

import asyncio
import shutil
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from loadtest import trackers
from loadtest.servers import free_port
from loadtest.trackers import RunningTracker
from tests.e2e.processes import running
from tests.waiting import until
from tests.workers.upstreams.harness import (
    ANNOUNCE,
    ERROR,
    HASH,
    OTHER,
    SCRAPE,
    Clock,
    answering,
    http_server,
    scrape_body,
    udp_tracker,
)
from tracker.bittorrent import Address, InfoHash
from tracker.settings.background import ScoringSettings
from tracker.workers.upstreams import FIRST_PAUSE_SECONDS, Upstream, ask_many, open_upstreams

OPENTRACKER = shutil.which("opentracker")
KEY = "0123456789abcdef"
MANY = [InfoHash(bytes([at]) * 20) for at in range(1, 51)]
PeerSeen = tuple[InfoHash, Address]


@asynccontextmanager
async def asking(
    *urls: str,
    clock: Callable[[], float] | None = None,
    on_peer: Callable[[InfoHash, Address], None] | None = None,
    peers: bool = False,
    per_minute: float = 600,
    max_peers: int = 50,
    timeout: float = 10,
) -> AsyncIterator[list[Upstream]]:
    settings = ScoringSettings(
        upstreams=tuple(SecretStr(url) for url in urls),
        upstream_peers=peers,
        upstream_per_minute=per_minute,
        upstream_max_peers=max_peers,
    )
    async with open_upstreams(settings, clock or Clock(), on_peer, timeout) as upstreams:
        yield upstreams


async def ask(upstreams: list[Upstream]) -> list[int]:
    return (await ask_many(upstreams, [HASH]))[HASH]


class TestAsking:
    async def test_counts_come_in_the_order_of_the_settings(self) -> None:
        async with udp_tracker() as udp, http_server(answering(scrape_body({HASH: (5, 1, 2)}))) as http:
            udp.files[HASH] = (3, 9, 2)
            urls = (f"udp://127.0.0.1:{udp.port}", f"{http.url}/{KEY}/announce")
            async with asking(*urls) as upstreams:
                assert upstreams
                answers = await ask(upstreams)
        assert answers == [5, 7]

    async def test_without_upstreams_there_are_no_counts(self) -> None:
        async with asking() as upstreams:
            assert not upstreams
            assert await ask(upstreams) == []
            assert await ask_many(upstreams, []) == {}

    async def test_fifty_torrents_take_one_request_to_each_tracker(self) -> None:
        async with udp_tracker() as udp, http_server(answering(scrape_body({OTHER: (1, 1, 1)}))) as http:
            udp.files[OTHER] = (1, 1, 1)
            async with asking(f"udp://127.0.0.1:{udp.port}", f"{http.url}/announce") as upstreams:
                answers = await ask_many(upstreams, [*MANY, *MANY])
        assert list(answers) == MANY
        assert all(each == ([2, 2] if info_hash == OTHER else [0, 0]) for info_hash, each in answers.items())
        assert udp.count(SCRAPE) == len(http.requests) == 1

    async def test_more_than_fifty_torrents_take_more_requests(self) -> None:
        hashes = [InfoHash(struct.pack(">I", at) * 5) for at in range(120)]
        async with udp_tracker() as udp, http_server(answering(scrape_body({}))) as http:
            async with asking(f"udp://127.0.0.1:{udp.port}", f"{http.url}/announce") as upstreams:
                assert list(await ask_many(upstreams, hashes)) == hashes
        assert (udp.count(SCRAPE), len(http.requests)) == (2, 3)

    async def test_a_tracker_with_a_smaller_limit_gets_more_requests(self) -> None:
        async with udp_tracker() as udp:
            udp.files[MANY[49]] = (1, 0, 0)
            udp.twist = lambda action, packet: [packet[: 8 + 20 * 12] if action == SCRAPE else packet]
            async with asking(f"udp://127.0.0.1:{udp.port}") as upstreams:
                answers = await ask_many(upstreams, MANY)
        assert (answers[MANY[49]], udp.count(SCRAPE)) == ([1], 3)

    async def test_replies_in_time_count_while_others_are_pending(self) -> None:
        """Pending are announces to the same tracker, and requests to a silent one."""

        async def scrapes_only(writer: asyncio.StreamWriter, head: str) -> None:
            if "/scrape" in head:
                await answering(scrape_body(dict.fromkeys(MANY, (5, 1, 2))))(writer, head)

        async def silent(writer: asyncio.StreamWriter, head: str) -> None:
            pass

        async with http_server(scrapes_only) as slow, http_server(silent) as mute:
            async with asking(f"{slow.url}/announce", f"{mute.url}/announce", peers=True) as upstreams:
                answers = await ask_many(upstreams, MANY, within_seconds=0.5)
        assert any("/announce" in head for head in slow.requests)
        assert list(answers.values()) == [[7]] * 50

    async def test_a_failing_tracker_does_not_disturb_the_others(self) -> None:
        async with udp_tracker() as udp, http_server(answering(b"oops", "500 Oops")) as http:
            udp.files[HASH] = (3, 9, 2)
            async with asking(f"{http.url}/announce", f"udp://127.0.0.1:{udp.port}") as upstreams:
                assert await ask(upstreams) == [5]
        assert len(http.requests) == 1

    async def test_a_url_without_a_scrape_is_skipped(self) -> None:
        with capture_logs() as logs:
            async with asking(f"http://127.0.0.1:1/announce/{KEY}") as upstreams:
                assert await ask(upstreams) == []
        assert [line["tracker"] for line in logs] == ["http://127.0.0.1:1/announce/***"]


class TestBudget:
    async def test_requests_beyond_the_budget_are_skipped(self) -> None:
        clock = Clock()
        async with http_server(answering(scrape_body({}))) as http:
            async with asking(f"{http.url}/announce", clock=clock, per_minute=8) as upstreams:
                assert [await ask(upstreams) for _ in range(5)] == [[0], [0], [], [], []]
                clock.now += 60
                assert await ask(upstreams) == [0]
        assert len(http.requests) == 3

    async def test_trackers_on_one_host_share_a_budget(self) -> None:
        async with udp_tracker() as udp, http_server(answering(scrape_body({}))) as http:
            urls = (f"{http.url}/announce", f"{http.url}/x/announce", f"udp://127.0.0.1:{udp.port}")
            async with asking(*urls, per_minute=8) as upstreams:
                answers = await ask(upstreams)
        assert len(answers) == 2
        assert len(http.requests) + udp.count(SCRAPE) == 2

    async def test_concurrent_callers_share_a_budget(self) -> None:
        async with http_server(answering(scrape_body({}))) as http:
            async with asking(f"{http.url}/announce", per_minute=40) as upstreams:
                async with asyncio.TaskGroup() as tasks:
                    asked = [tasks.create_task(ask(upstreams)) for _ in range(100)]
        assert sum(len(task.result()) for task in asked) == len(http.requests) == 10


class TestBackoff:
    async def test_failures_pause_a_tracker_and_each_change_is_logged_once(self) -> None:
        clock = Clock()
        async with udp_tracker() as udp:
            udp.twist = lambda _, packet: [packet[:8]]
            async with asking(f"udp://127.0.0.1:{udp.port}/{KEY}/announce", clock=clock) as upstreams:
                with capture_logs() as logs:
                    assert [await ask(upstreams) for _ in range(10)] == [[]] * 10
                    assert len(udp.requests) == 3
                    clock.now += 1.3 * FIRST_PAUSE_SECONDS
                    assert [await ask(upstreams) for _ in range(3)] == [[]] * 3
                    assert len(udp.requests) == 4
                    clock.now += 2.6 * FIRST_PAUSE_SECONDS
                    udp.twist = lambda _, packet: [packet]
                    assert [await ask(upstreams) for _ in range(5)] == [[0]] * 5
        assert [(line["event"], line["log_level"]) for line in logs] == [
            ("upstream tracker paused after failures", "warning"),
            ("upstream tracker available again", "info"),
        ]
        assert KEY not in str(logs)
        assert logs[0]["last"] == "reply too short"

    async def test_a_tracker_is_paused_after_ten_refusals(self) -> None:
        async with http_server(answering(b"d14:failure reason12:unregisterede")) as http:
            async with asking(f"{http.url}/announce") as upstreams:
                with capture_logs() as logs:
                    assert [await ask(upstreams) for _ in range(12)] == [[]] * 12
        assert len(http.requests) == 10
        assert [line["last"] for line in logs] == ["refused: unregistered"]

    async def test_no_secret_is_in_logs(self) -> None:
        """A tracker may repeat the request, and send any text."""
        said = f"bad key {KEY}\x1b[31m\n".encode()
        body = b"d14:failure reason%d:%be" % (len(said), said)
        async with http_server(answering(body)) as http, udp_tracker() as udp:
            udp.twist = lambda _, packet: [struct.pack(">I", ERROR) + packet[4:8] + said]
            urls = [f"{http.url}/{KEY}/announce", f"http://{KEY}:{KEY}@127.0.0.1:{http.port}/announce"]
            urls += [f"{http.url}/announce?passkey={KEY}", f"udp://127.0.0.1:{udp.port}/{KEY}/announce"]
            gone = f"http://{KEY}@127.0.0.1:1/{KEY}/announce?{KEY}"
            with capture_logs() as logs:
                async with asking(*urls, gone, peers=True) as upstreams:
                    for _ in range(12):
                        await ask(upstreams)
        assert len(logs) >= 5
        assert "refused: bad key *** [31m " in [line["last"] for line in logs]
        for text in (str(logs), repr(upstreams)):
            assert KEY not in text
            assert "\x1b" not in text


class TestObserving:
    async def test_each_routable_peer_is_reported_once(self) -> None:
        seen: list[PeerSeen] = []
        addresses = ("01020304", "01020304", "0a000001", "7f000001", "05060708", "00000000", "e0000001")
        async with udp_tracker() as udp:
            udp.files[HASH] = (3, 9, 2)
            udp.peers = b"".join(bytes.fromhex(address) + b"\0\1" for address in addresses)
            async with asking(
                f"udp://127.0.0.1:{udp.port}", peers=True, on_peer=lambda *each: seen.append(each)
            ) as upstreams:
                (answer,) = await ask(upstreams)
        assert answer == 5
        assert seen == [(HASH, b"\1\2\3\4"), (HASH, b"\5\6\7\x08")]

    async def test_at_most_max_peers_are_reported(self) -> None:
        seen: list[PeerSeen] = []
        async with udp_tracker() as udp:
            udp.files[HASH] = (3, 9, 2)
            udp.peers = b"".join(bytes((1, 2, 3, at)) + b"\0\1" for at in range(1, 200))
            async with asking(
                f"udp://127.0.0.1:{udp.port}", peers=True, max_peers=20, on_peer=lambda *each: seen.append(each)
            ) as upstreams:
                await ask(upstreams)
        assert len(seen) == 20
        assert int.from_bytes(udp.requests[-1][1][92:96], "big") == 20

    async def test_no_announce_is_sent_by_default(self) -> None:
        async with udp_tracker() as udp:
            async with asking(f"udp://127.0.0.1:{udp.port}", on_peer=lambda *_: None) as upstreams:
                await ask_many(upstreams, MANY)
        assert udp.count(ANNOUNCE) == 0

    async def test_announces_stop_when_observers_get_no_peers(self) -> None:
        async with udp_tracker() as udp:
            udp.files = dict.fromkeys(MANY, (3, 9, 2))
            async with asking(f"udp://127.0.0.1:{udp.port}", peers=True) as upstreams:
                for _ in range(3):
                    answers = await ask_many(upstreams, MANY)
        assert list(answers.values()) == [[5]] * 50
        assert 3 <= udp.count(ANNOUNCE) <= 6
        assert udp.count(SCRAPE) == 3

    async def test_no_announce_follows_a_failed_scrape(self) -> None:
        async with http_server(answering(b"oops", "500 Oops")) as http:
            async with asking(f"{http.url}/announce", peers=True) as upstreams:
                await ask_many(upstreams, MANY)
        assert len(http.requests) == 1

    async def test_without_a_scrape_the_announce_gives_the_counts(self) -> None:
        async with http_server(answering(b"d8:completei3e5:peers18:" + bytes(range(18)) + b"e")) as http:
            async with asking(f"{http.url}/announce/{KEY}", peers=True) as upstreams:
                (with_counts,) = await ask(upstreams)
        async with http_server(answering(b"d5:peers18:" + bytes(range(18)) + b"e")) as http:
            async with asking(f"{http.url}/announce/{KEY}", peers=True) as upstreams:
                (without,) = await ask(upstreams)
        assert with_counts == 3
        assert without == 3, "three peers are listed"

    async def test_the_announce_gives_the_counts_after_a_refused_scrape(self) -> None:
        async def respond(writer: asyncio.StreamWriter, head: str) -> None:
            announced = "event=stopped" in head
            body = b"d8:completei3e10:incompletei1ee" if announced else b"d14:failure reason2:noe"
            await answering(body)(writer, head)

        async with http_server(respond) as http:
            async with asking(f"{http.url}/announce", peers=True) as upstreams:
                (answer,) = await ask(upstreams)
        assert answer == 4


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RunningTracker]:
    tracker = trackers.start(tmp_path, TRACKER_HTTP__IP_PARAMETER_FROM_PRIVATE="true")
    yield tracker
    tracker.kill()


class TestOurOwnTracker:
    async def test_our_tracker_gives_counts_and_ignores_the_observer(self, own: RunningTracker) -> None:
        for number, left in ((1, "0"), (2, "0"), (3, "7")):
            await asyncio.to_thread(
                own.announce, peer_id=f"-TR4000-abcdefghijk{number}", left=left, ip=f"1.2.3.{number}"
            )
        async with asking(f"{own.url}/announce", peers=True) as upstreams:
            for _ in range(2):
                answers = await ask_many(upstreams, MANY)
        assert list(answers.values()) == [[3], *[[0]] * 49]

    async def test_a_private_tracker_refuses_requests_without_a_passkey(self, tmp_path: Path) -> None:
        private = await asyncio.to_thread(trackers.start, tmp_path, TRACKER_USERS__PRIVATE="required")
        try:
            async with asking(f"{private.url}/{KEY}/announce") as upstreams:
                with capture_logs() as logs:
                    assert [await ask(upstreams) for _ in range(10)] == [[]] * 10
        finally:
            private.kill()
        (line,) = logs
        assert line["last"].startswith("refused: unknown passkey")
        assert line["tracker"] == f"{private.url}/***/announce"


@pytest.fixture
def opentracker(tmp_path: Path) -> Iterator[int]:
    """The port of an opentracker, for both protocols, with two peers in the first torrent of MANY."""
    if OPENTRACKER is None:
        pytest.skip("no opentracker on this system")
    main = tmp_path / "opentracker"
    main.mkdir(mode=0o755)
    (main / "allowed").write_text("".join(f"{each.hex()}\n" for each in MANY))
    port = str(free_port())
    options = ["-i", "127.0.0.1", "-p", port, "-P", port, "-d", str(main), "-w", "allowed"]
    with running([OPENTRACKER, *options], tmp_path / "log"):
        url = f"http://127.0.0.1:{port}/announce?info_hash={'%01' * 20}&uploaded=0&downloaded=0&port=6881"
        # Retried: opentracker once dropped a connection on a busy machine.
        until(lambda: _announced(f"{url}&peer_id=-TR4000-abcdefghijk1&left=0&event=started"))
        second = f"{url.replace('6881', '6882')}&peer_id=-TR4000-abcdefghijk2&left=5&event=started"
        until(lambda: _announced(second))
        yield int(port)


def _announced(url: str) -> bool:
    try:
        with urlopen(url, timeout=10) as reply:  # noqa: S310  # our own URL
            return b"interval" in reply.read()
    except OSError:
        return False


class TestOpentracker:
    async def test_both_protocols_give_the_same_counts(self, opentracker: int) -> None:
        urls = (f"udp://127.0.0.1:{opentracker}/announce", f"http://127.0.0.1:{opentracker}/announce")
        async with asking(*urls) as upstreams:
            answers = await ask_many(upstreams, MANY)
        assert list(answers.values()) == [[2, 2], *[[0, 0]] * 49]

    async def test_the_observer_is_not_counted(self, opentracker: int) -> None:
        urls = (f"udp://127.0.0.1:{opentracker}/announce", f"http://127.0.0.1:{opentracker}/announce")
        with capture_logs() as logs:
            async with asking(*urls, peers=True) as upstreams:
                await ask_many(upstreams, MANY[:2])
                again = await ask_many(upstreams, MANY[:2])
        assert again == {MANY[0]: [2, 2], MANY[1]: [0, 0]}
        assert not logs, "no refusals"
