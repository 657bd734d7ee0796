"""Announces, offers and answers over WebSockets, in whole trackers with made-up offers."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from tests.frontends.websocket.harness import HASH, Site, offers, peer, serving
from tests.waiting import eventually
from tracker.bittorrent import InfoHash, PeerId
from tracker.frontends.websocket import connection as front_end
from tracker.frontends.websocket.relay import OpenOffers
from tracker.store.users.site_rows import PeerOnTorrent
from tracker.wire.endpoint import SocketId

OTHER_HASH = "o" * 20


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
        await eventually(lambda: _has(site, b"lw", 1))
        assert await site.counts() == (0, 2)
        await other.socket.close()
        await eventually(lambda: _counts(site, (0, 1)))


async def _counts(site: Site, wanted: tuple[int, int]) -> bool:
    return await site.counts() == wanted


async def _has(site: Site, field: bytes, number: int) -> bool:
    return int((await site.torrent()).get(field, b"0")) == number


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


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("[]", "a message must be a JSON object"),
        ("{", "a message must be a JSON object"),
        ('{"action": "shout"}', "the action of a message must be announce or scrape"),
        ('{"action": "announce"}', "info_hash must be exactly 20 bytes"),
        ('{"action": "scrape"}', "a scrape needs an info_hash: full scrapes are disabled"),
    ],
)
async def test_a_bad_message_is_refused_and_the_socket_stays(
    redis_url: str, prefix: str, message: str, reason: str
) -> None:
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        await one.socket.send_str(message)
        failure = await one.receive()
        assert failure["failure reason"] == reason and failure["info_hash"] == "\0" * 20
        assert await one.is_silent()


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
        await one.send(**ids, offers=5)
        assert (await one.receive())["failure reason"] == "offers must be a list"
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
    private: dict[str, Any] = {"users": {"private": "required"}, "torrents": {"mode": "open"}}
    async with serving(redis_url, prefix, **private) as site:
        await site.store.users.add("7", "p" * 20)
        for path in (f"/{'p' * 20}", f"/{'p' * 20}/announce", f"/announce/{'p' * 20}"):
            one = await site.open(path)
            assert (await one.announce(left=0))["complete"] == 1
            await one.announce(event="stopped")
        stranger = await site.open("/nobody-knows-me")
        assert "unknown passkey" in (await stranger.announce(left=0))["failure reason"]


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
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade"}
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{site.address}/", headers=upgrade) as reply:
                assert reply.status == 403


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


async def test_messages_that_come_too_fast_wait(redis_url: str, prefix: str) -> None:
    """More at once than aiohttp keeps of a connection: reading pauses."""
    async with serving(redis_url, prefix) as site:
        one = await site.open()
        connection = one.socket._response.connection
        assert connection is not None and isinstance(connection.transport, asyncio.Transport)
        connection.transport.write(b"\x89\x80\0\0\0\0" * 5000)
        assert (await one.announce(left=0))["complete"] == 1


async def test_a_site_gets_the_addresses_of_peers_with_websockets(redis_url: str, prefix: str) -> None:
    private: dict[str, Any] = {"users": {"private": "required"}, "torrents": {"mode": "open"}}
    async with serving(redis_url, prefix, **private) as site:
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
