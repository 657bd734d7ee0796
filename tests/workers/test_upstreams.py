"""Other trackers are asked seldom, in few requests, and never count us; what they do wrong is theirs alone.

Real ones run here as processes: our own over HTTP, and opentracker, where it is installed, over UDP and HTTP.
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

from tests import trackers
from tests.e2e.processes import free_port, running, until
from tests.trackers import RunningTracker
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
from tracker.settings import ScoringSettings
from tracker.workers.upstreams import Answer, Upstreams
from tracker.workers.upstreams.budget import FIRST_REST_SECONDS

OPENTRACKER = shutil.which("opentracker")
KEY = "0123456789abcdef"
MANY = [InfoHash(bytes([at]) * 20) for at in range(1, 51)]
Sighting = tuple[InfoHash, Address]


@asynccontextmanager
async def asking(
    *urls: str,
    clock: Callable[[], float] | None = None,
    on_peer: Callable[[InfoHash, Address], None] | None = None,
    peers: bool = False,
    per_minute: float = 600,
    max_peers: int = 50,
    timeout: float = 10,
) -> AsyncIterator[Upstreams]:
    settings = ScoringSettings(
        upstreams=tuple(SecretStr(url) for url in urls),
        upstream_peers=peers,
        upstream_per_minute=per_minute,
        upstream_max_peers=max_peers,
        upstream_timeout_seconds=timeout,
    )
    async with Upstreams(settings, clock or Clock(), on_peer) as upstreams:
        yield upstreams


class TestAsking:
    async def test_each_tracker_answers_in_the_order_of_the_settings(self) -> None:
        async with udp_tracker() as udp, http_server(answering(scrape_body({HASH: (5, 1, 2)}))) as http:
            udp.files[HASH] = (3, 9, 2)
            urls = (f"udp://127.0.0.1:{udp.port}", f"{http.url}/{KEY}/announce")
            async with asking(*urls) as upstreams:
                assert upstreams
                answers = await upstreams.ask(HASH)
        assert answers == [Answer(urls[0], 3, 2, 9), Answer(f"{http.url}/***/announce", 5, 2, 1)]
        assert [answer.peers for answer in answers] == [5, 7]

    async def test_without_trackers_nobody_is_asked(self) -> None:
        async with asking() as upstreams:
            assert not upstreams
            assert await upstreams.ask(HASH) == []
            assert await upstreams.ask_many([]) == {}

    async def test_fifty_torrents_are_one_request_to_each_tracker(self) -> None:
        async with udp_tracker() as udp, http_server(answering(scrape_body({OTHER: (1, 1, 1)}))) as http:
            udp.files[OTHER] = (1, 1, 1)
            async with asking(f"udp://127.0.0.1:{udp.port}", f"{http.url}/announce") as upstreams:
                answers = await upstreams.ask_many([*MANY, *MANY])
        assert list(answers) == MANY
        assert all(answer.error is None for each in answers.values() for answer in each)
        assert [answer.peers for answer in answers[OTHER]] == [2, 2]
        assert udp.count(SCRAPE) == len(http.requests) == 1

    async def test_more_take_more_requests(self) -> None:
        hashes = [InfoHash(struct.pack(">I", at) * 5) for at in range(120)]
        async with udp_tracker() as udp, http_server(answering(scrape_body({}))) as http:
            async with asking(f"udp://127.0.0.1:{udp.port}", f"{http.url}/announce") as upstreams:
                assert list(await upstreams.ask_many(hashes)) == hashes
        assert (udp.count(SCRAPE), len(http.requests)) == (2, 3)

    async def test_a_tracker_that_answers_only_a_few_at_once_is_asked_more_often(self) -> None:
        async with udp_tracker() as udp:
            udp.files[MANY[49]] = (1, 0, 0)
            udp.twist = lambda action, packet: [packet[: 8 + 20 * 12] if action == SCRAPE else packet]
            async with asking(f"udp://127.0.0.1:{udp.port}") as upstreams:
                answers = await upstreams.ask_many(MANY)
        assert (answers[MANY[49]][0].seeders, udp.count(SCRAPE)) == (1, 3)

    async def test_what_was_said_in_time_counts_whoever_is_still_being_asked(self) -> None:
        """By the same tracker, whose announces are slow, as by others that are silent."""

        async def scrapes_only(writer: asyncio.StreamWriter, head: str) -> None:
            if "/scrape" in head:
                await answering(scrape_body(dict.fromkeys(MANY, (5, 1, 2))))(writer, head)

        async def silent(writer: asyncio.StreamWriter, head: str) -> None:
            pass

        async with http_server(scrapes_only) as slow, http_server(silent) as mute:
            async with asking(f"{slow.url}/announce", f"{mute.url}/announce", peers=True) as upstreams:
                answers = await upstreams.ask_many(MANY, within_seconds=0.5)
        assert any("/announce" in head for head in slow.requests)
        assert [each[0].peers for each in answers.values()] == [7] * 50
        assert {each[1].error for each in answers.values()} == {"did not answer in time"}

    async def test_one_that_fails_does_not_disturb_the_others(self) -> None:
        async with udp_tracker() as udp, http_server(answering(b"oops", "500 Oops")) as http:
            udp.files[HASH] = (3, 9, 2)
            async with asking(f"{http.url}/announce", f"udp://127.0.0.1:{udp.port}") as upstreams:
                bad, good = await upstreams.ask(HASH)
        assert (bad.error, bad.skipped, good.peers) == ("answers with status 500", False, 5)

    async def test_a_url_without_a_scrape_is_not_asked(self) -> None:
        with capture_logs() as logs:
            async with asking(f"http://127.0.0.1:1/announce/{KEY}") as upstreams:
                (answer,) = await upstreams.ask(HASH)
        assert answer == Answer(answer.tracker, error="its URL names no scrape", skipped=True)
        assert [line["tracker"] for line in logs] == ["http://127.0.0.1:1/announce/***"]


class TestBudget:
    async def test_what_the_budget_does_not_cover_is_left_out(self) -> None:
        clock = Clock()
        async with http_server(answering(scrape_body({}))) as http:
            async with asking(f"{http.url}/announce", clock=clock, per_minute=8) as upstreams:
                answers = [(await upstreams.ask(HASH))[0] for _ in range(5)]
                assert [answer.skipped for answer in answers] == [False, False, True, True, True]
                assert answers[-1].error == "its host was asked often enough for now"
                clock.now += 60
                assert not (await upstreams.ask(HASH))[0].skipped
        assert len(http.requests) == 3

    async def test_trackers_on_one_host_share_it(self) -> None:
        async with udp_tracker() as udp, http_server(answering(scrape_body({}))) as http:
            urls = (f"{http.url}/announce", f"{http.url}/x/announce", f"udp://127.0.0.1:{udp.port}")
            async with asking(*urls, per_minute=8) as upstreams:
                answers = await upstreams.ask(HASH)
        assert sum(answer.skipped for answer in answers) == 1
        assert len(http.requests) + udp.count(SCRAPE) == 2

    async def test_concurrent_askers_share_it_too(self) -> None:
        async with http_server(answering(scrape_body({}))) as http:
            async with asking(f"{http.url}/announce", per_minute=40) as upstreams:
                async with asyncio.TaskGroup() as tasks:
                    asked = [tasks.create_task(upstreams.ask(HASH)) for _ in range(100)]
        assert sum(not task.result()[0].skipped for task in asked) == len(http.requests) == 10


class TestRest:
    async def test_failures_make_it_rest_and_each_change_is_one_line(self) -> None:
        clock = Clock()
        async with udp_tracker() as udp:
            udp.twist = lambda _, packet: [packet[:8]]
            async with asking(f"udp://127.0.0.1:{udp.port}/{KEY}/announce", clock=clock) as upstreams:
                with capture_logs() as logs:
                    answers = [(await upstreams.ask(HASH))[0] for _ in range(10)]
                    assert [answer.skipped for answer in answers] == [False] * 3 + [True] * 7
                    assert answers[-1].error == "it rests after failures"
                    assert len(udp.heard) == 3
                    clock.now += 1.3 * FIRST_REST_SECONDS
                    assert [(await upstreams.ask(HASH))[0].skipped for _ in range(3)] == [False, True, True]
                    clock.now += 2.6 * FIRST_REST_SECONDS
                    udp.twist = lambda _, packet: [packet]
                    answers = [(await upstreams.ask(HASH))[0] for _ in range(5)]
                    assert {answer.error for answer in answers} == {None}
        assert [(line["event"], line["log_level"]) for line in logs] == [
            ("another tracker rests after failures", "warning"),
            ("another tracker answers again", "info"),
        ]
        assert KEY not in str(logs)
        assert logs[0]["last"] == "its answer is too short"

    async def test_refusals_are_answers_until_there_are_many(self) -> None:
        async with http_server(answering(b"d14:failure reason12:unregisterede")) as http:
            async with asking(f"{http.url}/announce") as upstreams:
                answers = [(await upstreams.ask(HASH))[0] for _ in range(12)]
        assert answers[0].error == "it refused: unregistered"
        assert [answer.skipped for answer in answers] == [False] * 10 + [True] * 2

    async def test_nothing_secret_is_in_an_answer_or_a_log(self) -> None:
        """A tracker may repeat what it was sent, and write what it likes."""
        said = f"bad key {KEY}\x1b[31m\n".encode()
        body = b"d14:failure reason%d:%be" % (len(said), said)
        async with http_server(answering(body)) as http, udp_tracker() as udp:
            udp.twist = lambda _, packet: [struct.pack(">I", ERROR) + packet[4:8] + said]
            urls = [f"{http.url}/{KEY}/announce", f"http://{KEY}:{KEY}@127.0.0.1:{http.port}/announce"]
            urls += [f"{http.url}/announce?passkey={KEY}", f"udp://127.0.0.1:{udp.port}/{KEY}/announce"]
            gone = f"http://{KEY}@127.0.0.1:1/{KEY}/announce?{KEY}"
            with capture_logs() as logs:
                async with asking(*urls, gone, peers=True) as upstreams:
                    answers = [answer for _ in range(12) for answer in await upstreams.ask(HASH)]
        assert len(logs) >= 5
        assert answers[0].error == "it refused: bad key *** [31m "
        for text in (str(answers), str(logs), repr(upstreams._settings)):
            assert KEY not in text
            assert "\x1b" not in text


class TestObserving:
    async def test_routable_peers_are_handed_on_each_once(self) -> None:
        seen: list[Sighting] = []
        addresses = ("01020304", "01020304", "0a000001", "7f000001", "05060708", "00000000", "e0000001")
        async with udp_tracker() as udp:
            udp.files[HASH] = (3, 9, 2)
            udp.peers = b"".join(bytes.fromhex(address) + b"\0\1" for address in addresses)
            async with asking(
                f"udp://127.0.0.1:{udp.port}", peers=True, on_peer=lambda *each: seen.append(each)
            ) as upstreams:
                (answer,) = await upstreams.ask(HASH)
        assert answer == Answer(answer.tracker, 3, 2, 9)
        assert seen == [(HASH, b"\1\2\3\4"), (HASH, b"\5\6\7\x08")]

    async def test_no_more_of_them_than_wanted(self) -> None:
        seen: list[Sighting] = []
        async with udp_tracker() as udp:
            udp.files[HASH] = (3, 9, 2)
            udp.peers = b"".join(bytes((1, 2, 3, at)) + b"\0\1" for at in range(1, 200))
            async with asking(
                f"udp://127.0.0.1:{udp.port}",
                peers=True,
                max_peers=20,
                on_peer=lambda *each: seen.append(each),
            ) as upstreams:
                await upstreams.ask(HASH)
        assert len(seen) == 20
        assert int.from_bytes(udp.heard[-1][1][92:96], "big") == 20

    async def test_no_announce_is_sent_unless_asked_for(self) -> None:
        async with udp_tracker() as udp:
            async with asking(f"udp://127.0.0.1:{udp.port}", on_peer=lambda *_: None) as upstreams:
                await upstreams.ask_many(MANY)
        assert udp.count(ANNOUNCE) == 0

    async def test_a_tracker_that_tells_observers_nothing_is_soon_left_alone(self) -> None:
        async with udp_tracker() as udp:
            udp.files = dict.fromkeys(MANY, (3, 9, 2))
            async with asking(f"udp://127.0.0.1:{udp.port}", peers=True) as upstreams:
                for _ in range(3):
                    answers = await upstreams.ask_many(MANY)
        assert {answer.peers for each in answers.values() for answer in each} == {5}
        assert 3 <= udp.count(ANNOUNCE) <= 6
        assert udp.count(SCRAPE) == 3

    async def test_one_that_cannot_be_scraped_is_not_bothered_further(self) -> None:
        async with http_server(answering(b"oops", "500 Oops")) as http:
            async with asking(f"{http.url}/announce", peers=True) as upstreams:
                await upstreams.ask_many(MANY)
        assert len(http.requests) == 1

    async def test_where_there_is_no_scrape_the_announce_has_the_figures(self) -> None:
        async with http_server(answering(b"d8:completei3e5:peers18:" + bytes(range(18)) + b"e")) as http:
            async with asking(f"{http.url}/announce/{KEY}", peers=True) as upstreams:
                (with_figures,) = await upstreams.ask(HASH)
        async with http_server(answering(b"d5:peers18:" + bytes(range(18)) + b"e")) as http:
            async with asking(f"{http.url}/announce/{KEY}", peers=True) as upstreams:
                (without,) = await upstreams.ask(HASH)
        assert (with_figures.seeders, with_figures.leechers) == (3, 0)
        assert (without.seeders, without.leechers) == (0, 3), "three peers were named"

    async def test_a_refused_scrape_is_made_up_for_by_the_announce(self) -> None:
        async def respond(writer: asyncio.StreamWriter, head: str) -> None:
            announced = "event=stopped" in head
            body = b"d8:completei3e10:incompletei1ee" if announced else b"d14:failure reason2:noe"
            await answering(body)(writer, head)

        async with http_server(respond) as http:
            async with asking(f"{http.url}/announce", peers=True) as upstreams:
                (answer,) = await upstreams.ask(HASH)
        assert answer == Answer(f"{http.url}/announce", seeders=3, leechers=1)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RunningTracker]:
    tracker = trackers.start(tmp_path, TRACKER_HTTP__IP_PARAMETER_FROM_PRIVATE="true")
    yield tracker
    tracker.kill()


class TestOurOwnTracker:
    async def test_it_tells_its_figures_and_never_counts_the_observer(self, own: RunningTracker) -> None:
        for number, left in ((1, "0"), (2, "0"), (3, "7")):
            await asyncio.to_thread(
                own.announce, peer_id=f"-TR4000-abcdefghijk{number}", left=left, ip=f"1.2.3.{number}"
            )
        async with asking(f"{own.url}/announce", peers=True) as upstreams:
            for _ in range(2):
                answers = await upstreams.ask_many(MANY)
        assert answers[MANY[0]] == [Answer(f"{own.url}/announce", seeders=2, leechers=1)]
        assert {answer for info_hash in MANY[1:] for answer in answers[info_hash]} == {
            Answer(f"{own.url}/announce")
        }

    async def test_a_private_one_refuses_without_a_passkey(self, tmp_path: Path) -> None:
        private = await asyncio.to_thread(trackers.start, tmp_path, TRACKER_USERS__PRIVATE="true")
        try:
            async with asking(f"{private.url}/{KEY}/announce") as upstreams:
                (answer,) = await upstreams.ask(HASH)
        finally:
            private.kill()
        assert answer.error is not None
        assert answer.error.startswith("it refused: unknown passkey")
        assert answer.tracker == f"{private.url}/***/announce"


@pytest.fixture
def opentracker(tmp_path: Path) -> Iterator[int]:
    """The port of one, over both protocols, that knows the first of MANY and has two peers there."""
    if OPENTRACKER is None:
        pytest.skip("no opentracker on this system")
    home = tmp_path / "opentracker"
    home.mkdir(mode=0o755)
    (home / "allowed").write_text("".join(f"{each.hex()}\n" for each in MANY))
    port = str(free_port())
    options = ["-i", "127.0.0.1", "-p", port, "-P", port, "-d", str(home), "-w", "allowed"]
    with running([OPENTRACKER, *options], tmp_path / "log"):
        url = f"http://127.0.0.1:{port}/announce?info_hash={'%01' * 20}&uploaded=0&downloaded=0&port=6881"
        # Asked again, because it was once seen to drop a connection on a busy machine.
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
    async def test_over_both_protocols_it_tells_the_same(self, opentracker: int) -> None:
        urls = (f"udp://127.0.0.1:{opentracker}/announce", f"http://127.0.0.1:{opentracker}/announce")
        async with asking(*urls) as upstreams:
            answers = await upstreams.ask_many(MANY)
        assert answers[MANY[0]] == [Answer(url, seeders=1, leechers=1) for url in urls]
        assert all(answers[each] == [Answer(url) for url in urls] for each in MANY[1:])

    async def test_the_observer_is_not_counted(self, opentracker: int) -> None:
        urls = (f"udp://127.0.0.1:{opentracker}/announce", f"http://127.0.0.1:{opentracker}/announce")
        with capture_logs() as logs:
            async with asking(*urls, peers=True) as upstreams:
                await upstreams.ask_many(MANY[:2])
                again = await upstreams.ask_many(MANY[:2])
        assert again[MANY[0]] == [Answer(url, seeders=1, leechers=1) for url in urls]
        assert again[MANY[1]] == [Answer(url) for url in urls]
        assert not logs, "neither refused it"
