"""Packets to a served socket: what is answered, what is refused, and what is ignored."""

import asyncio
import random
import struct

import pytest

from tests.frontends.http.harness import RecordingTracker, on_loops
from tests.frontends.udp.harness import (
    CONNECT,
    HASH,
    NOW,
    PEER,
    SECRET,
    announce_packet,
    error_text,
    scrape_packet,
    serving,
)
from tracker.bittorrent import Address, Event, InfoHash, Scrape
from tracker.frontends.udp import server
from tracker.frontends.udp.server import (
    CONNECTS_SECOND,
    ERRORS_SECOND,
    MAX_DATAGRAMS,
    MAX_LATE_SECONDS,
    MAX_OF_ADDRESS,
    TURN_SECONDS,
)
from tracker.refusals import Busy, Refusal, SilentlyDropped
from tracker.wire.connection_id import SLOT_SECONDS, ConnectionIds
from tracker.wire.endpoint import pack_address

LOCAL = Address(b"\x7f\0\0\1")


@on_loops()
async def test_a_client_connects_announces_and_scrapes() -> None:
    async with serving() as served:
        client = served.client()
        connection_id = await client.connect()
        reply = await client.ask(announce_packet(connection_id))
        assert reply == struct.pack(">I4sIII", 1, bytes.fromhex("55667788"), 1800, 0, 6881)
        ((announce, passkey, address),) = served.tracker.announces
        assert (announce.info_hash, announce.peer_id, announce.event) == (HASH, PEER, Event.STARTED)
        assert (passkey, address, announce.own_family) == (None, LOCAL, True)
        reply = await client.ask(scrape_packet(connection_id, HASH, bytes(20), HASH))
        assert reply == bytes.fromhex("00000002 99aabbcc") + struct.pack(">III", 1, 0, 0) * 3
        ((scrape, _, _),) = served.tracker.scrapes
        assert scrape == Scrape((InfoHash(HASH), InfoHash(bytes(20))), complete=True)
        assert served.counts() == {"udp.connects": 1, "scrapes.udp": 1}


@on_loops()
async def test_ipv6_is_served_as_ipv6() -> None:
    async with serving("[::1]:0") as served:
        client = served.client()
        assert len(await client.ask(announce_packet(await client.connect()))) == 20
        assert served.tracker.announces[0][2] == pack_address("::1")


async def test_ids_of_another_process_on_the_same_store_are_valid() -> None:
    async with serving() as served:
        connection_id = ConnectionIds(SECRET).issue(LOCAL, NOW - SLOT_SECONDS)
        assert (await served.client().ask(announce_packet(connection_id)))[:4] == b"\0\0\0\1"


@pytest.mark.parametrize(
    "connection_id",
    [
        ConnectionIds(SECRET).issue(Address(b"\x7f\0\0\2"), NOW),
        ConnectionIds(SECRET).issue(LOCAL, NOW - 2 * SLOT_SECONDS),
        ConnectionIds(bytes(32)).issue(LOCAL, NOW),
        bytes(8),
        CONNECT[:8],
    ],
    ids=["another address", "expired", "another secret", "zero", "protocol id"],
)
async def test_an_invalid_id_gets_a_short_error_and_counts_for_no_limit(connection_id: bytes) -> None:
    """U2, U3"""
    async with serving() as served:
        client = served.client()
        for packet in (announce_packet(connection_id), scrape_packet(connection_id)):
            reply = await client.ask(packet)
            assert error_text(reply) == "connection id expired" and len(reply) < len(packet)
        assert not served.tracker.announces and not served.tracker.scrapes and not served.tracker.labels
        assert served.counts() == {"udp.ignored.id": 2}


async def test_errors_to_invalid_ids_have_a_budget() -> None:
    async with serving() as served:
        client = served.client()
        burst = ERRORS_SECOND // 10
        for _ in range(burst):
            assert error_text(await client.ask(announce_packet(bytes(8)))) == "connection id expired"
        assert await client.is_ignored(announce_packet(bytes(8)))
        served.timer.now += 1
        assert error_text(await client.ask(announce_packet(bytes(8)))) == "connection id expired"
        assert served.counts()["udp.ignored.id"] == burst + 2


async def test_connects_beyond_the_budget_are_answered_by_turns_of_addresses() -> None:
    async with serving() as served:
        client = served.client()
        first = await client.connect()
        for number in range(1, CONNECTS_SECOND // 10):
            assert (await client.ask(CONNECT))[8:] == first, number
        client.send(CONNECT)
        assert (await client.ask(announce_packet(first)))[:4] == b"\0\0\0\1", "a proved client is served"
        assert served.counts()["udp.ignored.budget"] == 1
        assert await served.client("127.0.0.2").connect(), "another address has a turn of its own"
        served.timer.now += TURN_SECONDS
        assert (await client.connect()) == first
        assert served.counts()["udp.ignored.budget"] == 1


async def test_a_turn_of_connects_remembers_few_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_TURN", 2)
    monkeypatch.setattr(server, "CONNECTS_SECOND", 0)
    async with serving() as served:
        clients = [served.client(f"127.0.0.{number}") for number in (1, 2)]
        for client in clients * 2:  # the third answer begins a turn
            assert await client.connect()
        assert not served.counts().get("udp.ignored.budget")
        clients[1].send(CONNECT)
        assert await served.client("127.0.0.3").connect()
        assert await clients[1].connect()


async def test_connects_are_ignored_while_the_buffer_is_more_than_half_full() -> None:
    """The system would drop datagrams of proved senders. The first turn leaves more than half of these."""
    async with serving() as served:
        client = served.client()
        for packet in (*[b"short"] * MAX_DATAGRAMS, CONNECT, *[b"short"] * 400):
            client.send(packet)
        while "udp.ignored.late" not in served.counts():
            await asyncio.sleep(0)
        assert "udp.connects" not in served.counts()
        assert await client.connect()


async def test_a_client_that_starts_with_a_thousand_torrents_gets_its_ids_beyond_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Further connects of an address take no turn of another address."""
    monkeypatch.setattr(server, "CONNECTS_SECOND", 0)
    monkeypatch.setattr(server, "FURTHER_SECOND", MAX_OF_ADDRESS - 1)
    async with serving() as served:
        client = served.client()
        for _ in range(1000):
            assert await client.connect()
        client.send(CONNECT)
        assert await served.client("127.0.0.2").connect()
        assert served.counts() == {"udp.connects": 1001, "udp.ignored.budget": 1}


@on_loops()
async def test_a_socket_that_is_behind_answers_connects_by_turns_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """U3: it is behind in the third of these turns, and no longer after it."""
    monkeypatch.setattr(server, "MAX_OF_ADDRESS", 1)
    loop = asyncio.get_running_loop()
    async with serving() as served:
        client = served.client()

        def tick() -> None:  # in each turn of the loop
            served.timer.now += 0.6 * MAX_LATE_SECONDS
            ticking[0] = loop.call_soon(tick)

        ticking = [loop.call_soon(tick)]
        valid = announce_packet(ConnectionIds(SECRET).issue(LOCAL, NOW))
        for packet in (*[b"short"] * 2 * MAX_DATAGRAMS, CONNECT, CONNECT, announce_packet(bytes(8)), valid):
            client.send(packet)
        assert (await client.receive())[8:] == valid[:8]
        assert (await client.receive())[:4] == b"\0\0\0\1"
        counts = served.counts()
        assert (counts["udp.connects"], counts["udp.ignored.late"], counts["udp.ignored.id"]) == (1, 1, 1)
        assert await client.connect()
        ticking[0].cancel()


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"", "short"),
        (CONNECT[:15], "short"),
        (b"\1" + CONNECT[1:], "magic"),
        (announce_packet(bytes(8))[:97], "short"),
        (scrape_packet(bytes(8))[:35], "short"),
        (CONNECT[:11] + b"\4" + CONNECT[12:], "action"),
        (CONNECT[:11] + b"\3" + CONNECT[12:], "action"),
    ],
)
async def test_packets_that_are_no_requests_are_ignored_and_counted(packet: bytes, reason: str) -> None:
    async with serving() as served:
        assert await served.client().is_ignored(packet)
        assert served.counts() == {f"udp.ignored.{reason}": 1, "udp.connects": 1}


async def test_random_packets_get_no_more_bytes_than_they_have() -> None:
    source = random.Random(15)
    async with serving() as served:
        client = served.client()
        for size in range(201):
            actions = [b"", *(bytes(8) + bytes((0, 0, 0, action)) for action in range(5)), CONNECT[:12]]
            for start in actions:
                packet = (start + source.randbytes(size))[:size]
                client.send(packet)
                reply = await client.ask(b"\0\0\4\x17\x27\x10\x19\x80\0\0\0\0last")
                if reply[4:8] != b"last":
                    assert len(reply) <= len(packet)
                    assert (await client.receive())[4:8] == b"last"
        assert not served.tracker.announces and not served.tracker.scrapes


async def test_refusals_have_the_texts_of_http() -> None:
    tracker = RecordingTracker()
    async with serving(tracker=tracker) as served:
        client = served.client()
        connection_id = await client.connect()
        for error in (Refusal("disabled"), Busy(), Refusal("denied", "ä" * 200)):
            tracker.error = error
            for packet in (announce_packet(connection_id), scrape_packet(connection_id)):
                assert error_text(await client.ask(packet)) == error.text[:100]


async def test_a_request_that_a_limit_drops_gets_no_answer() -> None:
    tracker = RecordingTracker()
    async with serving(tracker=tracker) as served:
        client = served.client()
        connection_id = await client.connect()
        tracker.error = SilentlyDropped("too many requests")
        assert await client.is_ignored(announce_packet(connection_id))
        assert await client.is_ignored(scrape_packet(connection_id))
        assert served.counts()["udp.ignored.limit"] == 2


async def test_port_0_is_refused() -> None:
    async with serving() as served:
        client = served.client()
        reply = await client.ask(announce_packet(await client.connect(), port=0))
        assert error_text(reply) == "port must be from 1 to 65535"
        assert served.tracker.kinds == ["announces"] and not served.tracker.announces


async def test_a_crash_is_logged_and_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    tracker = RecordingTracker()
    async with serving(tracker=tracker) as served:
        client = served.client()
        connection_id = await client.connect()
        tracker.error = RuntimeError("a mistake")
        assert await client.is_ignored(announce_packet(connection_id))
        tracker.error = None
        assert (await client.ask(announce_packet(connection_id)))[:4] == b"\0\0\0\1"
        assert tracker.labels == ["internal error"]


async def test_an_announce_may_wait_for_the_allow_list() -> None:
    tracker = RecordingTracker()
    async with serving(tracker=tracker) as served:
        client = served.client()
        connection_id = await client.connect()
        tracker.reads_store_first = True
        assert (await client.ask(announce_packet(connection_id)))[:4] == b"\0\0\0\1"
        tracker.error = Refusal("your client is not allowed on this tracker")
        assert error_text(await client.ask(announce_packet(connection_id))) == tracker.error.text
        tracker.error = RuntimeError("a mistake")
        assert error_text(await client.ask(announce_packet(connection_id))) == "internal error"
        tracker.error = None
        assert (await client.ask(announce_packet(connection_id)))[:4] == b"\0\0\0\1"
        assert tracker.labels == ["internal error"]


URL = b"\x02\x12/0a1b/announce?x=1\0"


@pytest.mark.parametrize(
    ("accounts", "options", "passkey"),
    [
        ("required", URL, "0a1b"),
        ("optional", URL, "0a1b"),
        ("off", URL, None),
        ("required", b"", None),
        ("required", b"\x02\x09/announce", None),
        ("optional", b"\x02\x0d/a:b/announce", "?"),
        ("required", b"\x02\x0e/announce/0a1b", "0a1b"),
        ("optional", b"\x02\x16/announce?passkey=0a1b", "0a1b"),
        ("required", b"\x02\x1b/announce.php?passkey=0a1b?", "0a1b"),
        ("required", b"\x02\x0b/announce?p\x01\x02\x0basskey=0a1b", "0a1b"),
        ("off", b"\x02\x16/announce?passkey=0a1b", None),
    ],
)
async def test_the_passkey_comes_in_the_options(accounts: str, options: bytes, passkey: str | None) -> None:
    async with serving(users={"private": accounts}) as served:
        client = served.client()
        await client.ask(announce_packet(await client.connect(), options))
        assert served.tracker.announces[0][1] == passkey


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (b"/0a1b/announce/0a1b", "the announce URL has two passkeys"),
        (b"/0a1b/announce?passkey=x", "the announce URL has two passkeys"),
        (b"/announce?passkey=a:b", "the passkey in the announce URL is malformed"),
    ],
)
async def test_two_passkeys_and_malformed_ones_are_refused(url: bytes, text: str) -> None:
    async with serving(users={"private": "required"}) as served:
        client = served.client()
        options = bytes((2, len(url))) + url
        assert error_text(await client.ask(announce_packet(await client.connect(), options))) == text
        assert (served.tracker.labels, served.tracker.kinds) == ([text], ["announces"])
        assert not served.tracker.announces


async def test_forms_of_passkeys_can_be_switched_off() -> None:
    users = {"private": "required", "passkey_after_announce": False, "passkey_parameter": False}
    async with serving(users=users) as served:
        client = served.client()
        for url in (b"/announce/0a1b", b"/announce?passkey=0a1b"):
            options = bytes((2, len(url))) + url
            await client.ask(announce_packet(await client.connect(), options))
            assert served.tracker.announces[-1][1] is None


async def test_private_trackers_refuse_scrapes() -> None:
    async with serving(users={"private": "required"}) as served:
        client = served.client()
        reply = await client.ask(scrape_packet(await client.connect()))
        assert error_text(reply) == "a scrape over UDP has no passkey; scrape over HTTP"
        assert served.tracker.kinds == ["scrapes"] and not served.tracker.scrapes


async def test_announces_through_a_trusted_proxy_are_refused() -> None:
    """Otherwise all clients behind it would be one peer."""
    async with serving(http={"trusted_proxies": ["127.0.0.0/8"]}) as served:
        client = served.client()
        reply = await client.ask(announce_packet(await client.connect()))
        assert error_text(reply) == "UDP announces must not come through the proxy"
        assert not served.tracker.announces


@pytest.mark.parametrize(("limit", "allowed"), [(2, 2), (400, 74)])
async def test_scrapes_of_too_many_torrents_are_refused_as_over_http(limit: int, allowed: int) -> None:
    async with serving(torrents={"max_scrape": limit}) as served:
        client = served.client()
        hashes = [bytes((n,)) * 20 for n in range(allowed + 1)]
        reply = await client.ask(scrape_packet(await client.connect(), *hashes))
        assert error_text(reply) == "GET string too long: scrape fewer torrents at once"
        assert served.tracker.kinds == ["scrapes"] and not served.tracker.scrapes
        reply = await client.ask(scrape_packet(await client.connect(), *hashes[:allowed]))
        assert len(reply) == 8 + allowed * 12
