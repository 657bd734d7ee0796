"""Announces, offers and answers over WebSockets, in whole trackers with made-up offers."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from loadtest.invariants import read_arrays
from loadtest.servers import Server
from tests.frontends.websocket.harness import HASH, WAIT_SECONDS, Site, offers, peer, serving
from tests.waiting import eventually
from tracker.bittorrent import InfoHash, PeerId
from tracker.core.announce import Tracker
from tracker.core.scrape import Scrapes
from tracker.frontends.http import connection_table
from tracker.frontends.websocket import server as front_end
from tracker.frontends.websocket.relay import OfferKey, OpenOffers
from tracker.refusals import UPGRADE_MISSING
from tracker.store.access.rate_limits import Hit
from tracker.store.users.site_rows import PeerOnTorrent
from tracker.store.users.users import Users
from tracker.wire.endpoint import SocketId

OTHER_HASH = "o" * 20
PRIVATE: dict[str, Any] = {"users": {"private": "required"}, "torrents": {"mode": "open"}}
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def ids_of_offer(number: int) -> OfferKey:
    return InfoHash(b"h" * 20), PeerId(b"p" * 20), number.to_bytes(20, "big")


def announce_url(site: Site, **changes: str) -> str:
    query = {"info_hash": "%FF%01%00" + "h" * 17, "peer_id": "-XX0001-http-peer-01", "port": "6881", "left": "5"}
    return f"http://{site.address}/announce?" + "&".join(f"{k}={v}" for k, v in {**query, **changes}.items())


async def announce_over_http(site: Site, **changes: str) -> bytes:
    async with aiohttp.ClientSession() as session, session.get(announce_url(site, **changes)) as reply:
        return await reply.read()


async def test_an_announce_is_answered_with_counts_and_the_interval(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        reply = await one.announce("a", event="started", left=0)
        assert 120 <= reply.pop("interval") <= 132
        assert reply == {"action": "announce", "info_hash": HASH, "complete": 1, "incomplete": 0, "downloaded": 0}
        two = await site.open()
        assert (await two.announce(left=None))["incomplete"] == 1
        assert b"8:completei1e10:downloadedi0e" in await announce_over_http(site, event="started")
        assert (await one.announce(left=0))["incomplete"] == 2


async def test_an_offer_and_its_answer_find_their_way(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        seeder, leecher = await site.open(), await site.open()
        await seeder.announce("s1", "s2", left=0)
        await leecher.announce("l1", "l2", left=7)
        offer = await seeder.receive()
        assert offer == {
            "action": "announce",
            "info_hash": HASH,
            "peer_id": leecher.peer_id,
            "offer_id": "l1".rjust(20, "\xfe"),
            "offer": {"type": "offer", "sdp": "v=0 l1"},
        }
        await seeder.answer(offer)
        assert await leecher.receive() == {
            "action": "announce",
            "info_hash": HASH,
            "peer_id": seeder.peer_id,
            "offer_id": offer["offer_id"],
            "answer": {"type": "answer", "sdp": "v=0 answer"},
        }
        assert await site.counted("relays.offers") == await site.counted("relays.answers") == 1


async def test_of_two_peers_that_offer_at_once_one_connects(redis_url: str, prefix: str) -> None:
    """Each would drop the other's connection as the second one."""
    async with serving(redis_url, prefix) as site:
        one, other, third = await site.open(), await site.open(), await site.open()
        await one.announce(left=7)
        await other.announce("o1", left=7)
        offer = await one.receive()
        await one.announce("1o", left=7)
        assert await other.is_silent()
        await third.announce(left=7)
        await one.announce("1t", "1u", left=7)
        assert (await third.receive())["peer_id"] == one.peer_id
        await one.answer(offer)
        assert "answer" in await other.receive()
        await one.announce("1v", "1w", left=7)
        assert "offer" in await other.receive()


def test_an_offer_waits_for_its_answer_only_so_long() -> None:
    open_offers, offerer = OpenOffers(), SocketId(1, 2)
    open_offers.add((InfoHash(b"h" * 20), PeerId(b"p" * 20), b"o" * 20), offerer, 100.0)
    assert open_offers.unanswered(InfoHash(b"h" * 20), 129.0) == {offerer}
    assert open_offers.unanswered(InfoHash(b"h" * 20), 131.0) == set()
    assert open_offers.unanswered(InfoHash(b"i" * 20), 101.0) == set()


def test_a_flood_of_offers_displaces_none_of_others() -> None:
    open_offers, honest = OpenOffers(), ids_of_offer(0)
    open_offers.add(honest, SocketId(1, 1), 0.0)
    for number in range(1, 1000):
        open_offers.add(ids_of_offer(number), SocketId(1, 2), 1.0)
    late = ids_of_offer(1000)
    open_offers.add(late, SocketId(1, 3), 2.0)
    assert open_offers.take(late, 3.0) == SocketId(1, 3)
    assert open_offers.take(ids_of_offer(999), 3.0) == SocketId(1, 2)
    assert open_offers.take(honest, 3.0) == SocketId(1, 1)


def test_offers_that_nobody_answers_are_forgotten() -> None:
    open_offers = OpenOffers()
    for number in range(100):
        open_offers.add(ids_of_offer(number), SocketId(1, number), float(number))
    open_offers.add(ids_of_offer(100), SocketId(1, 1), 190.0)
    assert len(open_offers._open) == 30


async def test_binary_frames_are_taken_too(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        await one.socket.send_bytes(
            json.dumps({"action": "announce", "info_hash": HASH, "peer_id": one.peer_id}).encode()
        )
        assert (await one.receive())["incomplete"] == 1


async def test_an_answer_passes_once_and_only_for_an_offer(redis_url: str, prefix: str) -> None:
    """Answers that nobody asked for: invented, from another peer, for another torrent or peer, in the name of another
    peer, repeated, and after a stop."""
    async with serving(redis_url, prefix) as site:
        offerer, asked = await site.open(), await site.open()
        await asked.announce(left=7)
        await asked.announce(info_hash=OTHER_HASH, left=7)
        await offerer.announce("x", left=7)
        other = await site.open()
        await other.announce(left=7)
        offer = await asked.receive()
        await other.answer(offer)
        await asked.answer(offer, offer_id="never made".rjust(20))
        await asked.answer(offer, info_hash=OTHER_HASH)
        await asked.answer(offer, to_peer_id=other.peer_id)
        await asked.answer(offer, peer_id=other.peer_id)
        assert (await asked.receive())["failure reason"] == "a connection has one peer id for each torrent"
        assert await asked.is_silent() and await other.is_silent() and await offerer.is_silent()
        await asked.answer(offer)
        assert (await offerer.receive())["answer"]["type"] == "answer"
        await asked.answer(offer)
        await offerer.announce("y", "z", left=7)
        offer = await asked.receive()
        await asked.announce(event="stopped")
        await asked.answer(offer, peer_id=other.peer_id)
        assert await asked.is_silent() and await offerer.is_silent()
        assert await site.counted("relays.unasked") == 6


async def test_hybrid_peers_count_once_and_stay_when_a_socket_closes(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        hybrid, other = await site.open(peer_id="-XX0001-http-peer-01"), await site.open()
        await hybrid.announce(left=5)
        await announce_over_http(site)
        await other.announce(left=5)
        assert await site.counts() == (0, 2)
        await hybrid.socket.close()
        await eventually(lambda: _has_sockets(site, 1))
        assert await site.counts() == (0, 2)
        await other.socket.close()
        await eventually(lambda: _counts(site, (0, 1)))


async def _counts(site: Site, wanted: tuple[int, int]) -> bool:
    return await site.counts() == wanted


async def _has_sockets(site: Site, leechers: int) -> bool:
    return read_arrays(await site.torrent())["lw"] == leechers


async def test_stopped_removes_a_peer_and_the_socket_goes_on(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        await one.announce(left=0)
        assert (await one.announce(event="stopped"))["complete"] == 0
        assert (await one.announce(left=0))["complete"] == 1


async def test_all_torrents_of_a_closed_socket_lose_it(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        hashes = [HASH, *(f"{number:020}" for number in range(90))]
        for info_hash in hashes:
            await one.announce(info_hash=info_hash, left=0)
        assert int(await site.store.connection.command("GET", site.store.keys.stat("seeders"))) == 91
        await one.socket.close()

        async def none_left() -> bool:
            return int(await site.store.connection.command("GET", site.store.keys.stat("seeders"))) == 0

        await eventually(none_left)


async def test_a_peer_id_per_torrent_and_a_limit_of_torrents(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix, webtorrent={"max_torrents": 2}) as site:
        one = await site.open()
        await one.announce(left=0)
        second = {"action": "announce", "info_hash": HASH, "peer_id": peer(77)}
        await one.send(**second)
        assert (await one.receive())["failure reason"] == "a connection has one peer id for each torrent"
        await one.send(**{**second, "info_hash": OTHER_HASH})  # as libtorrent does
        assert (await one.receive())["complete"] == 0
        third = await one.announce(info_hash="t" * 20)
        assert third["failure reason"] == "too many torrents on this connection" and third["info_hash"] == "t" * 20
        await one.announce(event="stopped")
        assert "failure reason" not in await one.announce(info_hash="t" * 20)


async def test_a_stolen_peer_id_gets_counts_and_passes_nothing_on(redis_url: str, prefix: str) -> None:
    """The thief comes from another address, named by a trusted proxy."""
    proxied: dict[str, Any] = {"http": {"trusted_proxies": ("127.0.0.0/8",)}}
    async with serving(redis_url, prefix, **proxied) as site:
        victim, other, thief = [
            await site.open(peer_id=name, headers={"X-Forwarded-For": f"11.0.0.{number}"})
            for number, name in ((1, peer(1)), (2, peer(2)), (3, peer(1)))
        ]
        await victim.announce(left=7)
        await other.announce(left=7)
        assert (await thief.announce("x", left=0))["incomplete"] == 2
        assert (await thief.announce(event="stopped"))["incomplete"] == 2
        assert await other.is_silent() and await victim.is_silent()
        await thief.socket.close()
        await other.announce("y", left=7)
        assert (await victim.receive())["offer"]["sdp"] == "v=0 y"


NO_HASH = "\0" * 20
TWENTY = "info_hash must be exactly 20 bytes"
PEER_ID = "peer_id must be exactly 20 bytes"
UNREAD = "a message must be a JSON object"
ANSWER = "an answer needs to_peer_id, offer_id and a session description"
NUMBER = "uploaded must be a number from 0 to 2^64"
HOSTILE: list[tuple[Any, str, str]] = [
    ("[]", UNREAD, NO_HASH),
    ("{", UNREAD, NO_HASH),
    (b"\xff\xfe{}", UNREAD, NO_HASH),
    ("[" * 60_000, UNREAD, NO_HASH),
    ('{"action": "announce", "info_hash": "\\ud800"}', UNREAD, NO_HASH),
    ({"action": "shout"}, "the action of a message must be announce or scrape", NO_HASH),
    ({"action": ["announce"]}, "the action of a message must be announce or scrape", NO_HASH),
    ({"info_hash": None}, TWENTY, NO_HASH),
    ({"info_hash": "x" * 19}, TWENTY, NO_HASH),
    ({"info_hash": "x" * 21}, TWENTY, NO_HASH),
    ({"info_hash": "\u0100" + "x" * 19}, TWENTY, NO_HASH),
    ({"peer_id": "x" * 19}, PEER_ID, HASH),
    ({"peer_id": "\u20ac" * 20}, PEER_ID, HASH),
    ({"peer_id": {"0": "x"}}, PEER_ID, HASH),
    ({"uploaded": -1}, NUMBER, HASH),
    ({"uploaded": 1e300}, NUMBER, HASH),
    ({"uploaded": "9" * 100}, NUMBER, HASH),
    ({"offers": 5}, "offers must be a list", HASH),
    ({"offers": {"0": None}}, "offers must be a list", HASH),
    ({"answer": "sdp", "to_peer_id": "x" * 20, "offer_id": "x" * 20}, ANSWER, HASH),
    ({"answer": {"type": "answer", "sdp": "x" * 16_385}, "to_peer_id": "x" * 20, "offer_id": "x" * 20}, ANSWER, HASH),
    ({"action": "scrape", "info_hash": None}, "a scrape needs an info_hash: full scrapes are disabled", NO_HASH),
    ({"action": "scrape", "info_hash": []}, TWENTY, NO_HASH),
    (
        {"action": "scrape", "info_hash": ["x" * 20] * 2000},
        "GET string too long: scrape fewer torrents at once",
        NO_HASH,
    ),
]
"""Messages, the reason that each gets, and the torrent that the failure names."""


async def test_a_bad_message_is_refused_and_the_socket_stays(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        for message, reason, info_hash in HOSTILE:
            if isinstance(message, bytes):
                await one.socket.send_bytes(message)
            elif isinstance(message, str):
                await one.socket.send_str(message)
            else:
                await one.send(**{"action": "announce", "info_hash": HASH, "peer_id": one.peer_id, **message})
            failure = await one.receive()
            assert (failure["failure reason"], failure["info_hash"]) == (reason, info_hash)
            assert failure["action"] == ("scrape" if "scrape" in str(message) else "announce")
        assert await one.is_silent() and await site.counts() == (0, 0)


FRAMES: list[tuple[bytes, str, set[int]]] = [
    (b"\x8b\x80\0\0\0\0", "an opcode that no standard has", {1002}),
    (b"\xc1\x80\0\0\0\0", "a compressed frame", {1002}),
    (b"\x89\xfe\x00\x7e\0\0\0\0" + bytes(126), "a ping of more than 125 bytes", {1002}),
    (b"\x80\x80\0\0\0\0", "a continuation of nothing", {1002}),
    (b"\x88\x82\0\0\0\0\x00\x01", "a close with the code 1", {1002}),
    (b"\x81\xff\x7f" + b"\xff" * 7 + bytes(4), "a frame of 2^63 bytes", {1009, 1002}),
    (b"\x01\xfe\xff\xff\0\0\0\0" + b" " * 65_535 + b"\x00\x82\0\0\0\0  ", "64 kB in pieces", {1009}),
]


async def test_frames_against_the_standard_close_their_socket_only(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        other = await site.open()
        for frame, what, codes in FRAMES:
            one = await site.open()
            connection = one.socket._response.connection
            assert connection is not None and isinstance(connection.transport, asyncio.Transport)
            connection.transport.write(frame)
            assert await one.closed() in codes, what
        assert (await other.announce(left=0))["complete"] == 1


async def test_a_socket_with_too_many_bad_messages_is_closed(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        for _ in range(front_end.MAX_BAD_MESSAGES + 1):
            await one.socket.send_str("[]")
        assert await one.closed() == 1008


@pytest.mark.parametrize("size", [front_end.MAX_MESSAGE_BYTES + 1, 2**20])
async def test_a_message_that_is_too_long_closes_the_socket(redis_url: str, prefix: str, size: int) -> None:
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        await one.socket.send_str("x" * (front_end.MAX_MESSAGE_BYTES - 1))
        assert "failure reason" in await one.receive()
        await one.socket.send_str("x" * size)
        assert await one.closed() in (1009, 1006)


async def test_offers_of_null_numbers_and_thousands_harm_nobody(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        one, two = await site.open(), await site.open()
        await two.announce(left=7)
        ids: dict[str, Any] = {"action": "announce", "info_hash": HASH, "peer_id": one.peer_id}
        wrongs: list[Any] = [None, [None], [3], [{}], [None] * 10_000, [{"offer": None, "offer_id": "x" * 20}]]
        for wrong in wrongs:
            await one.send(**ids, offers=wrong)
            assert (await one.receive())["incomplete"] == 2
        assert await two.is_silent()
        long, usual = offers("long", "usual")
        long["offer"]["sdp"] = "x" * 16_385
        await one.send(**ids, offers=[long, usual, usual])
        assert (await one.receive())["incomplete"] == 2
        assert (await two.receive())["offer"]["sdp"] == "v=0 usual"
        assert await two.is_silent()


@pytest.mark.parametrize("path", ["/", "/announce", "/x", "/x/announce", "/announce/x", "/tracker/socket"])
async def test_sockets_open_at_every_path_that_clients_use(redis_url: str, prefix: str, path: str) -> None:
    async with serving(redis_url, prefix) as site:
        assert (await (await site.open(path)).announce(left=0))["complete"] == 1


async def test_other_paths_and_foreign_origins_are_refused(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix, webtorrent={"origins": ("https://example.com",)}) as site:
        for path, origin in (("/a/b/c", "https://example.com"), ("/", "https://example.org"), ("/", None)):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await site.open(path, origin=origin)
            assert refused.value.status == 403
        await site.open("/", origin="https://example.com")


async def test_users_of_a_private_tracker_announce_with_the_passkey_in_the_path(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix, **PRIVATE) as site:
        await site.store.users.add("7", "p" * 20)
        for path in (f"/{'p' * 20}", f"/{'p' * 20}/announce", f"/announce/{'p' * 20}"):
            one = await site.open(path)
            assert (await one.announce(left=0))["complete"] == 1
            await one.announce(event="stopped")
        async with aiohttp.ClientSession() as session:
            for path, reason in (("/nobody-knows-me", "unknown passkey"), ("/", "this tracker needs a passkey")):
                async with session.get(f"http://{site.address}{path}", headers=UPGRADE) as reply:
                    assert reply.status == 403 and (await reply.text()).startswith(reason)
                with pytest.raises(aiohttp.WSServerHandshakeError):
                    await site.open(path)
        assert await site.counted("failures.unknown passkey") == await site.counted("failures.no passkey") == 2


CHANGES: dict[str, tuple[Callable[[Users], Awaitable[Any]], str]] = {
    "disabled": (lambda users: users.edit("7", {"enabled": False}), "your account is disabled"),
    "deleted": (lambda users: users.delete("7"), "unknown passkey"),
    "rotated": (lambda users: users.rotate("p" * 20), "unknown passkey"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_user_who_may_not_announce_any_more_is_disconnected(redis_url: str, prefix: str, change: str) -> None:
    apply, reason = CHANGES[change]
    async with serving(redis_url, prefix, **PRIVATE) as site:
        await site.store.users.add("7", "p" * 20)
        one = await site.open(f"/{'p' * 20}")
        await one.announce(left=0)
        await apply(site.store.users)
        assert (await one.announce(left=0))["failure reason"].startswith(reason)
        assert await one.closed() == 1008
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await site.open(f"/{'p' * 20}")
        await eventually(lambda: _counts(site, (0, 0)))


async def test_of_announces_under_way_one_that_is_refused_takes_nothing_from_the_others(
    redis_url: str, prefix: str
) -> None:
    """A user who may not download leeches, seeds and leeches."""
    async with serving(redis_url, prefix, **PRIVATE) as site:
        await site.store.users.add("7", "p" * 20, can_leech=False)
        await site.store.users.add("8", "q" * 20)
        seeder, leecher = await site.open(f"/{'p' * 20}"), await site.open(f"/{'q' * 20}")
        for left in (7, 0, 7):
            await seeder.send(action="announce", info_hash=HASH, peer_id=seeder.peer_id, left=left)
        replies = [await seeder.receive() for _ in range(3)]
        assert ["failure reason" in reply for reply in replies] == [True, False, True]
        await leecher.announce("a", left=7)
        assert (await seeder.receive())["offer"]["sdp"] == "v=0 a"
        await seeder.socket.close()
        await eventually(lambda: _counts(site, (0, 1)))


async def test_a_torrent_that_was_refused_is_no_torrent_of_the_socket(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix, **PRIVATE, webtorrent={"max_torrents": 1}) as site:
        await site.store.users.add("7", "p" * 20, can_leech=False)
        one = await site.open(f"/{'p' * 20}")
        assert "may not download" in (await one.announce(left=7))["failure reason"]
        assert (await one.announce(info_hash=OTHER_HASH, left=0))["complete"] == 1


@pytest.mark.parametrize(
    ("settings", "served"),
    [
        ({"torrents": {"mode": "open"}}, True),
        ({"torrents": {"mode": "registered"}}, False),
        ({"torrents": {"mode": "open"}, "users": {"private": "required"}}, False),
        ({"webtorrent": {"enabled": False}}, False),
        ({"torrents": {"mode": "registered"}, "webtorrent": {"enabled": True}}, True),
    ],
)
async def test_open_trackers_serve_sockets_and_others_when_told(
    redis_url: str, prefix: str, settings: dict[str, Any], served: bool
) -> None:
    chosen = {"webtorrent": {"enabled": None}, **settings}
    async with serving(redis_url, prefix, **chosen) as site:
        if served:
            await site.open()
            return
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await site.open()


async def test_a_stuck_reader_is_closed_and_nobody_waits_for_it(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix, webtorrent={"max_offers": 20}) as site:
        stuck, sender = await site.open(), await site.open()
        await stuck.announce(left=7)
        long = [{**each, "offer": {"type": "offer", "sdp": "x" * 3000}} for each in offers(*map(str, range(20)))]
        connection = stuck.socket._response.connection
        assert connection is not None and isinstance(connection.transport, asyncio.Transport)
        connection.transport.pause_reading()
        ids = {"action": "announce", "info_hash": HASH, "peer_id": sender.peer_id, "left": 7}
        for _ in range(2000):
            await sender.send(**ids, offers=long)
            await sender.receive()
            if await site.counted("sockets.stuck"):
                break
        assert await site.counted("sockets.stuck") == 1
        await eventually(lambda: _counts(site, (0, 1)))


async def test_a_stop_closes_sockets_with_1001_and_peers_stay(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        await one.announce(left=0)
        key = site.store.keys.stat("seeders")
    assert await one.closed() in (1001, 1006)  # the harness may close its client before it has read the code
    async with serving(redis_url, prefix) as again:
        assert int(await again.store.connection.command("GET", key)) == 1


async def test_scrapes(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        await one.announce(left=0)
        await one.send(action="scrape", info_hash=[HASH, OTHER_HASH])
        reply = await one.receive()
        assert reply["files"][HASH] == {"complete": 1, "incomplete": 0, "downloaded": 0}
        assert reply["files"][OTHER_HASH]["complete"] == 0


async def test_http_goes_on_at_the_same_port(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        await site.open()
        async with aiohttp.ClientSession() as session, session.get(f"http://{site.address}/") as page:
            assert "BitTorrent tracker" in await page.text()
        without_key = {name: UPGRADE[name] for name in ("Upgrade", "Connection")}
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{site.address}/", headers=without_key) as reply:
                assert reply.status == 403


@pytest.mark.parametrize("path", ["/", "/announce", "/x/announce"])
async def test_a_proxy_that_removes_the_upgrade_header_is_named(redis_url: str, prefix: str, path: str) -> None:
    async with serving(redis_url, prefix) as site:
        kept = {name: value for name, value in UPGRADE.items() if name.startswith("Sec-")}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{site.address}{path}", headers=kept) as reply,
        ):
            assert (reply.status, await reply.text()) == (403, f"{UPGRADE_MISSING}\n")
        assert await site.counted(f"failures.{UPGRADE_MISSING}") == 1


async def test_sockets_have_three_quarters_of_the_connections_and_no_subprotocol(
    redis_url: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(redis_url, prefix, http={"max_connections": 16}) as site:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await site.open(protocols=("what a client sends",))
        assert refused.value.status == 403 and "what a client sends" not in caplog.text
        kept = [await site.open() for _ in range(12)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await site.open()
        assert refused.value.status == 503 and await site.counted("failures.too many connections") == 1
        assert b"complete" in await announce_over_http(site)
        assert (await kept[0].announce(left=0))["complete"] == 1


async def test_the_answer_that_opens_a_socket_names_no_program(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        assert "Server" not in (await site.open()).socket._response.headers


async def test_a_dropped_request_for_a_socket_keeps_a_trusted_proxys_connection_open(
    redis_url: str, prefix: str
) -> None:
    """A proxy treats a server that closes connections as failing."""
    address, url = "11.7.7.7", "http://{}/nobody-knows-me"
    async with serving(redis_url, prefix, **PRIVATE, http={"trusted_proxies": ["127.0.0.1/32"]}) as site:
        await site.store.rate_limits.count_hits([Hit("address", address, 10**6)], {"address": 60})
        async with aiohttp.ClientSession() as session:

            async def is_dropped() -> bool:
                headers = {**UPGRADE, "X-Forwarded-For": address}
                async with session.get(url.format(site.address), headers=headers) as reply:
                    assert reply.status == 403
                    return "too many requests" in await reply.text()

            await eventually(is_dropped)


async def test_a_client_that_leaves_while_its_passkey_is_checked_is_no_error(
    start_server: Callable[..., Server], prefix: str
) -> None:
    server = start_server()
    async with serving(server.url, prefix, **PRIVATE) as site:
        await site.store.users.add("7", "p" * 20)
        scrapes = site.store.swarms.of(InfoHash(HASH.encode("latin-1"))).scrapes
        await (await site.open(f"/{'p' * 20}")).socket.close()
        os.kill(server.pid, signal.SIGSTOP)
        host, _, port = site.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        lines = (f"GET /{'p' * 20} HTTP/1.1", "Host: t", *(f"{name}: {value}" for name, value in UPGRADE.items()))
        writer.write("\r\n".join((*lines, "", "")).encode())
        await eventually(lambda: scrapes.in_flight == 1)
        writer.transport.abort()
        await eventually(lambda: site.context.telemetry.snapshot().gauges["connections"] == 0)
        os.kill(server.pid, signal.SIGCONT)
        await eventually(lambda: not scrapes.in_flight)
        assert (await (await site.open(f"/{'p' * 20}")).announce(left=0))["complete"] == 1
        assert await site.counted("failures.internal error") == 0


@pytest.mark.parametrize("shards", [1, 4])
async def test_two_trackers_on_one_store_pass_offers_and_answers(redis_url: str, prefix: str, shards: int) -> None:
    on: dict[str, Any] = {"redis": {"shards": shards}}
    async with serving(redis_url, prefix, **on) as here, serving(redis_url, prefix, **on) as there:
        seeder, leecher = await here.open(peer_id=peer(1)), await there.open(peer_id=peer(2))
        await seeder.announce(left=0)
        assert (await leecher.announce("a", "b", left=7))["complete"] == 1
        offer = await seeder.receive()
        assert offer["peer_id"] == peer(2)
        await seeder.answer(offer)
        assert (await leecher.receive())["answer"]["sdp"] == "v=0 answer"
        await seeder.answer(offer)
        assert await leecher.is_silent()
        assert await here.counted("relays.unasked") == 1
        assert await there.counted("relays.answers") == 1


async def test_an_offer_to_a_process_that_is_gone_is_lost_and_counted(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as here:
        leecher = await here.open(peer_id=peer(2))
        async with serving(redis_url, prefix) as there:
            seeder = await there.open(peer_id=peer(1))
            await seeder.announce(left=0)
        assert (await leecher.announce("a", left=7))["complete"] == 1

        async def lost() -> bool:
            return await here.counted("relays.lost") == 1

        await eventually(lost)


async def test_a_silent_socket_gets_pings_and_is_closed_when_it_answers_none(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_table, "PING_SECONDS", 0.4)
    async with serving(redis_url, prefix) as site:
        one = await site.open(autoping=False)
        for _ in range(2):
            assert (await one.socket.receive(WAIT_SECONDS)).type is aiohttp.WSMsgType.PING
            await one.socket.pong()
        await one.announce(left=0)
        assert (await one.socket.receive(WAIT_SECONDS)).type is aiohttp.WSMsgType.PING
        assert await one.closed() == 1006
        await eventually(lambda: _counts(site, (0, 0)))


async def test_messages_keep_their_order_when_one_waits_for_the_store(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        connection = one.socket._response.connection
        assert connection is not None and isinstance(connection.transport, asyncio.Transport)
        frames = [json.dumps({"action": action, "info_hash": OTHER_HASH}).encode() for action in ("scrape", "none")]
        connection.transport.write(b"".join(bytes((0x81, 0x80 | len(each), 0, 0, 0, 0)) + each for each in frames))
        assert "files" in await one.receive()
        assert "failure reason" in await one.receive()
        assert (await one.announce(left=0))["complete"] == 1


async def test_messages_that_come_too_fast_wait(redis_url: str, prefix: str) -> None:
    """More at once than aiohttp keeps of a connection: reading pauses."""
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        connection = one.socket._response.connection
        assert connection is not None and isinstance(connection.transport, asyncio.Transport)
        connection.transport.write(b"\x89\x80\0\0\0\0" * 5000)
        assert (await one.announce(left=0))["complete"] == 1


async def test_announces_that_come_too_fast_wait_and_keep_their_order(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_end, "MESSAGES_AT_ONCE", 2)
    monkeypatch.setattr(front_end, "MESSAGES_SECOND", 50.0)
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        hashes = [f"{number:020}" for number in range(9)]
        for info_hash in hashes:
            await one.send(action="announce", info_hash=info_hash, peer_id=one.peer_id)
        assert [(await one.receive())["info_hash"] for _ in hashes] == hashes


async def test_a_client_that_leaves_with_many_messages_waiting_leaves_soon(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_end, "MESSAGES_AT_ONCE", 2)
    monkeypatch.setattr(front_end, "MESSAGES_SECOND", 1.0)
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        for number in range(40):
            await one.send(action="announce", info_hash=f"{number:020}", peer_id=one.peer_id)
        await one.receive()
        connection = one.socket._response.connection
        assert connection is not None and connection.transport is not None
        connection.transport.abort()

        async def forgotten() -> bool:
            return not site.context.telemetry.snapshot().gauges["sockets"]

        await eventually(forgotten, 20.0)


async def test_a_message_that_waits_for_the_store_counts_once(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_end, "MESSAGES_AT_ONCE", 4)
    monkeypatch.setattr(front_end, "MESSAGES_SECOND", 0.001)
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        for _ in range(4):
            assert await one.is_silent()


@pytest.mark.parametrize("at_once", [2, 40])
async def test_what_follows_too_many_bad_messages_keeps_no_closed_socket(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(front_end, "MESSAGES_AT_ONCE", at_once)
    monkeypatch.setattr(front_end, "MESSAGES_SECOND", 0.01 if at_once > front_end.MAX_BAD_MESSAGES else 25.0)
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        connection = one.socket._response.connection
        assert connection is not None and isinstance(connection.transport, asyncio.Transport)
        connection.transport.write(b"\x81\x82\0\0\0\0{}" * 1000)
        assert await one.closed() == 1008

        async def forgotten() -> bool:
            return not site.context.telemetry.snapshot().gauges["sockets"]

        await eventually(forgotten, 20.0)


@pytest.mark.parametrize(("decider", "name"), [(Scrapes, "scrape"), (Tracker, "submit")])
async def test_an_error_of_the_tracker_closes_its_socket_and_is_logged(
    redis_url: str,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    decider: type,
    name: str,
) -> None:
    """Whether the message waits for the store, or is handled when it arrives."""

    def fail(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(decider, name, fail)
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        await one.send(action=name.replace("submit", "announce"), info_hash=OTHER_HASH, peer_id=one.peer_id)
        assert await one.closed() == 1006
    assert "connection failed" in capsys.readouterr().out


async def test_a_site_gets_the_addresses_of_peers_with_websockets(redis_url: str, prefix: str) -> None:
    async with serving(redis_url, prefix, **PRIVATE) as site:
        await site.store.users.add("7", "p" * 20)
        one = await site.open(f"/{'p' * 20}", peer_id="-XX0001-http-peer-01")
        await one.announce(left=5)
        torrent_id = (await site.torrent())[b"tid"].decode()
        named = PeerOnTorrent(torrent_id, one.peer_id.encode().hex())
        found: list[tuple[Any, ...]] = []
        for over_http in (False, True):
            if over_http:
                await announce_over_http(site, passkey="p" * 20)
            (row,) = await site.store.site_rows.peers([named])
            found.append((row["ip"], row["ipv4"], row["ipv6"], row["port"]))
        host = bytes((127, 0, 0, 1))
        assert found == [(host, host, None, 0), (host, host, None, 6881)]
