"""The UDP client for other trackers: its packets, its retries, and packets that are lost, wrong or forged."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.workers.upstreams.harness import (
    ANNOUNCE,
    CONNECT,
    ERROR,
    HASH,
    OTHER,
    SCRAPE,
    Clock,
    UdpResponder,
    loopback6,
    udp_tracker,
)
from tracker.bittorrent import Announce, Digits, Event, InfoHash, PeerId, ScrapeFile
from tracker.errors import TrackerRefusal, TrackerReplyError, Unreachable
from tracker.wire.tracker_url import TrackerUrl, parse_tracker_url
from tracker.workers.upstreams.clients import ADDRESS_SECONDS, CONNECTION_SECONDS, UdpTracker

FILE = ScrapeFile(seeders=3, completions=9, leechers=2)
OBSERVER = Announce(
    HASH, PeerId(b"-SK0001-abcdefghijkl"), 0, bytes_left=Digits(b"1"), event=Event.STOPPED, peers_wanted=50
)
ENOUGH = 10.0
"""A generous limit for immediate replies on a slow machine."""


@asynccontextmanager
async def asking(
    where: UdpResponder | str, timeout: float = ENOUGH, clock: Callable[[], float] | None = None
) -> AsyncIterator[UdpTracker]:
    url = where if isinstance(where, str) else f"udp://127.0.0.1:{where.port}/key/announce?x=1"
    tracker = UdpTracker(parse_tracker_url(url), timeout, clock or Clock())
    try:
        yield tracker
    finally:
        tracker.close()


@pytest.fixture
async def responder() -> AsyncIterator[UdpResponder]:
    async with udp_tracker() as responder:
        responder.files[HASH] = (3, 9, 2)
        yield responder


class TestRequests:
    async def test_a_scrape_of_many_torrents_is_one_request(self, responder: UdpResponder) -> None:
        async with asking(responder) as tracker:
            hashes = [HASH, *(InfoHash(bytes([at]) * 20) for at in range(3, 72))]
            files = await tracker.scrape(hashes)
        assert list(files) == hashes
        assert (files[HASH], files[hashes[1]]) == (FILE, ScrapeFile())
        assert [action for action, _ in responder.requests] == [CONNECT, SCRAPE]

    async def test_the_observer_announces_stopped_without_a_port(self, responder: UdpResponder) -> None:
        responder.peers = b"\1\2\3\4\0\1\5\6\7\x08\0\2"
        async with asking(responder) as tracker:
            reply = await tracker.announce(OBSERVER)
        assert (reply.seeders, reply.leechers, reply.peers) == (3, 2, responder.peers)
        packet = responder.requests[-1][1]
        assert packet[16:56] == OBSERVER.info_hash + OBSERVER.peer_id
        assert struct.unpack_from(">III", packet, 80)[0] == 3
        assert packet[96:98] == b"\0\0"
        assert packet[98:] == b"\x02\x11/key/announce?x=1\x00"

    async def test_a_connection_id_is_used_for_a_minute(self, responder: UdpResponder) -> None:
        clock = Clock()
        async with asking(responder, clock=clock) as tracker:
            for _ in range(3):
                await tracker.scrape([HASH])
            clock.now += CONNECTION_SECONDS - 1
            await tracker.scrape([HASH])
            assert responder.count(CONNECT) == 1
            clock.now += 1
            await tracker.scrape([HASH])
        assert responder.count(CONNECT) == 2
        assert len(responder.senders) == 1, "one socket"

    async def test_concurrent_requests_share_a_connection_id(self, responder: UdpResponder) -> None:
        async with asking(responder) as tracker, asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(tracker.scrape([HASH, OTHER])) for _ in range(20)]
        assert all(task.result()[HASH] == FILE for task in asked)
        assert responder.count(CONNECT) == len(responder.senders) == 1

    @pytest.mark.skipif(not loopback6(), reason="no IPv6 here")
    async def test_a_tracker_is_scraped_over_ipv6(self) -> None:
        async with udp_tracker("::1") as responder, asking(f"udp://[::1]:{responder.port}") as tracker:
            responder.peers = bytes(range(36))
            reply = await tracker.announce(OBSERVER)
        assert (reply.peers, reply.peers6) == (b"", bytes(range(36)))

    @pytest.mark.parametrize(("answers", "error"), [(False, "unreachable"), (True, "no reply in time")])
    async def test_after_a_failure_the_next_address_of_the_name_is_tried(
        self, responder: UdpResponder, monkeypatch: pytest.MonkeyPatch, answers: bool, error: str
    ) -> None:
        """The first of two addresses refuses packets or does not answer."""
        found = [(socket.AF_INET, 0, 0, "", (host, responder.port)) for host in ("127.0.0.2", "127.0.0.1")]

        async def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
            return list(found)

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            if answers:
                silent.bind(found[0][4])
            url = f"udp://two.example:{responder.port}"
            async with asking(url, timeout=0.5 if answers else ENOUGH) as tracker:
                with pytest.raises(Unreachable, match=error):
                    await tracker.scrape([HASH])
                for _ in range(2):
                    assert await tracker.scrape([HASH]) == {HASH: FILE}

    async def test_a_name_is_resolved_again_after_five_minutes(self, responder: UdpResponder) -> None:
        clock = Clock()
        async with asking(responder, clock=clock) as tracker:
            await tracker.scrape([HASH])
            clock.now += ADDRESS_SECONDS + 1
            await tracker.scrape([HASH])
        assert len(responder.senders) == 1, "the same address keeps its socket"


class TestLoss:
    @pytest.mark.parametrize("lost", [1, 2])
    async def test_a_lost_packet_is_sent_again(self, responder: UdpResponder, lost: int) -> None:
        responder.lose = lost
        async with asking(responder, timeout=4) as tracker:
            assert (await tracker.scrape([HASH]))[HASH] == FILE
        assert responder.count(CONNECT) == lost + 1

    async def test_a_retry_keeps_the_connection_and_transaction_ids(self, responder: UdpResponder) -> None:
        lost = False

        def lose_one(action: int, packet: bytes) -> list[bytes]:
            nonlocal lost
            if action == SCRAPE and not lost:
                lost = True
                return []
            return [packet]

        responder.twist = lose_one
        async with asking(responder, timeout=4) as tracker:
            assert (await tracker.scrape([HASH]))[HASH] == FILE
        assert [action for action, _ in responder.requests] == [CONNECT, SCRAPE, SCRAPE]
        assert responder.requests[1] == responder.requests[2], "a late reply to the first attempt counts"

    async def test_a_silent_tracker_fails_after_three_attempts(self, responder: UdpResponder) -> None:
        responder.lose = 1000
        async with asking(responder, timeout=0.7) as tracker:
            with pytest.raises(Unreachable, match="no reply in time"):
                await tracker.scrape([HASH])
        assert 1 <= len(responder.requests) <= 3

    async def test_a_restarted_tracker_gets_a_new_connect_request(self, responder: UdpResponder) -> None:
        async with asking(responder) as tracker:
            await tracker.scrape([HASH])
            responder.connections.clear()
            assert (await tracker.scrape([HASH]))[HASH] == FILE
            assert responder.count(CONNECT) == 2

    async def test_a_tracker_silent_to_an_old_connection_id_gets_a_new_connect_request(
        self, responder: UdpResponder
    ) -> None:
        async with asking(responder, timeout=4) as tracker:
            await tracker.scrape([HASH])
            responder.connections.clear()
            responder.twist = lambda _, packet: [] if packet[3] == ERROR else [packet]
            assert (await tracker.scrape([HASH]))[HASH] == FILE

    async def test_a_closed_port_fails_at_once(self) -> None:
        async with udp_tracker() as responder:
            pass
        async with asking(responder, timeout=60) as tracker:
            with pytest.raises(Unreachable, match="unreachable"):
                await tracker.scrape([HASH])

    async def test_an_unknown_name_is_unreachable(self) -> None:
        tracker = UdpTracker(TrackerUrl("udp", "a..b", 1, ""), ENOUGH, Clock())
        with pytest.raises(Unreachable, match="unreachable"):
            await tracker.scrape([HASH])


class TestWrongAnswers:
    async def test_replies_to_other_transactions_are_ignored(self, responder: UdpResponder) -> None:
        def wrong_first(_action: int, packet: bytes) -> list[bytes]:
            other = packet[:4] + bytes(byte ^ 1 for byte in packet[4:8]) + bytes(60)
            return [b"", b"short", other, packet, packet]

        responder.twist = wrong_first
        async with asking(responder) as tracker:
            for _ in range(3):
                assert (await tracker.scrape([HASH]))[HASH] == FILE

    async def test_packets_from_other_addresses_are_ignored(self, responder: UdpResponder) -> None:
        """Even with the right transaction: the socket is connected."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
            forger.bind(("127.0.0.1", 0))

            def forge(action: int, packet: bytes) -> list[bytes]:
                if action == SCRAPE:
                    (port,) = responder.senders
                    forger.sendto(packet[:8] + struct.pack(">III", 99, 99, 99), ("127.0.0.1", port))
                return [packet]

            responder.twist = forge
            async with asking(responder) as tracker:
                for _ in range(5):
                    assert (await tracker.scrape([HASH]))[HASH] == FILE

    async def test_an_error_reply_is_a_refusal(self, responder: UdpResponder) -> None:
        responder.twist = lambda action, packet: [
            packet if action == CONNECT else struct.pack(">I", ERROR) + packet[4:8] + b"go unavailable"
        ]
        async with asking(responder) as tracker:
            for _ in range(2):
                with pytest.raises(TrackerRefusal, match="go unavailable"):
                    await tracker.scrape([HASH])

    async def test_a_refused_connect_request_is_a_refusal(self, responder: UdpResponder) -> None:
        responder.twist = lambda _, packet: [struct.pack(">I", ERROR) + packet[4:8] + b"full"]
        async with asking(responder) as tracker:
            with pytest.raises(TrackerRefusal, match="full"):
                await tracker.scrape([HASH])

    @pytest.mark.parametrize("kept", [8, 15, 19])
    async def test_short_replies_are_errors(self, responder: UdpResponder, kept: int) -> None:
        responder.twist = lambda action, packet: [packet[:kept] if action == SCRAPE else packet]
        async with asking(responder) as tracker:
            with pytest.raises(TrackerReplyError, match="too short"):
                await tracker.scrape([HASH])

    async def test_a_reply_with_another_action_is_an_error(self, responder: UdpResponder) -> None:
        responder.twist = lambda action, packet: [struct.pack(">I", action ^ 3) + packet[4:]]
        async with asking(responder) as tracker:
            with pytest.raises((TrackerReplyError, TrackerRefusal)):
                await tracker.scrape([HASH])

    async def test_the_largest_packet_is_parsed(self, responder: UdpResponder) -> None:
        responder.twist = lambda action, packet: [packet.ljust(65_000, b"\1")]
        async with asking(responder) as tracker:
            reply = await tracker.announce(OBSERVER)
            assert len(reply.peers) == 6 * 50
            assert list(await tracker.scrape([HASH])) == [HASH]

    async def test_a_tracker_with_a_limit_gets_smaller_scrapes(self, responder: UdpResponder) -> None:
        responder.twist = lambda action, packet: [packet[: 8 + 12] if action == SCRAPE else packet]
        async with asking(responder) as tracker:
            assert await tracker.scrape([HASH, OTHER]) == {HASH: FILE}
            assert tracker.max_scrape == 1


async def test_a_cancelled_request_leaves_no_state(responder: UdpResponder) -> None:
    responder.lose = 1000
    async with asking(responder) as tracker:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await tracker.scrape([HASH])
        responder.lose = 0
        assert (await tracker.scrape([HASH]))[HASH] == FILE
        assert responder.count(ANNOUNCE) == 0
