"""Peers at some ports join and are counted, but are not in replies (row T32)."""

from typing import Any

import pytest

from loadtest.invariants import read_arrays
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, START, Store, endpoint, peer_id, update
from tests.store.sharding.harness import hash_in
from tracker.bittorrent import Endpoint
from tracker.store.swarms.codec import OWN_FAMILY, WITH_IDS, Admitted, PeerUpdate

NUMBERS_OF_SHARDS = (1, 4)
TORRENT = hash_in(1, 1)
PORTS = (22, 6881, 65535)
FORMS = pytest.mark.parametrize("form", [0, WITH_IDS, OWN_FAMILY])


def at(peer: int, port: int = 7000, *, v6: bool = False) -> Endpoint:
    return endpoint(peer, v6=v6, port=port)


def said(peer: int, event: str = "u", port: int = 7000, *, v6: bool = False, **values: Any) -> PeerUpdate:
    return update(peer, event, info_hash=TORRENT, endpoint=at(peer, port, v6=v6), **values)


async def opened(make_store: MakeStore, **rules: Any) -> Store:
    store = await make_store(**{"untold_ports": PORTS, **rules})
    await store.torrents.add(TORRENT, {"private": "0"})
    return store


def split(reply: Admitted) -> list[bytes]:
    v4, v6 = reply.peers, reply.peers6
    return [v4[i : i + 6] for i in range(0, len(v4), 6)] + [v6[i : i + 18] for i in range(0, len(v6), 18)]


@FORMS
@pytest.mark.parametrize("v6", [False, True])
async def test_peers_at_untold_ports_are_counted_and_not_told(make_store: MakeStore, form: int, v6: bool) -> None:
    """T32, at joins and updates, in the order of the others."""
    store = await opened(make_store)
    for peer, port in enumerate((*PORTS, 23, 6880, 22), 1):
        await store.announce(said(peer, "s", port, v6=v6, bytes_left=1000 * (peer % 2)))
    expected = {at(4, 23, v6=v6): peer_id(4), at(5, 6880, v6=v6): peer_id(5)}
    for event in ("s", "u", "u"):
        store.clock.now += 60
        reply = await store.announce(said(10, event, v6=v6, form=form))
        assert (reply.seeders, reply.leechers) == (3, 4)
        assert set(split(reply)) == set(expected)
        ids = reply.peer_ids6 if v6 else reply.peer_ids
        if form == WITH_IDS:
            assert ids == b"".join(expected[Endpoint(peer)] for peer in split(reply))


async def test_a_peer_at_an_untold_port_gets_peers(make_store: MakeStore) -> None:
    store = await opened(make_store)
    await store.announce(said(1, "s"))
    assert split(await store.announce(said(2, "s", 22))) == [at(1)]
    assert split(await store.announce(said(1))) == []


async def test_a_port_that_is_part_of_an_address_hides_no_peer(make_store: MakeStore) -> None:
    """The bytes of port 22 at other places of an endpoint."""
    store = await opened(make_store)
    odd = Endpoint(b"\x0b\x00\x00\x16\x1b\x58"), Endpoint(b"\x20\x01\x0d\xb8" + b"\0\x16" * 6 + b"\x1b\x58")
    for peer, where in enumerate(odd, 1):
        await store.announce(said(peer, "s")._replace(endpoint=where))
    assert set(split(await store.announce(said(3, "s")))) == set(odd)


@FORMS
async def test_in_a_crowded_swarm(make_store: MakeStore, form: int) -> None:
    store = await opened(make_store, untold_ports=tuple(port for port in range(8001, 8031) if port % 3))
    for peer in range(1, 31):
        await store.announce(said(peer, "s", 8000 + peer)._replace(endpoint=at(1, 8000 + peer)))
    assert read_arrays(await store.torrent(TORRENT))["crowded"] > 0
    for wanted in (5, 50):
        reply = await store.announce(said(40, "s", form=form, peers_wanted=wanted))
        told = {at(1, 8000 + peer) for peer in range(1, 31) if (8000 + peer) % 3 == 0}
        assert set(split(reply)) <= told and (wanted == 5 or set(split(reply)) == told)
        assert reply.leechers == 31


@pytest.mark.parametrize("v6", [False, True])
async def test_of_peers_found_in_the_dht(make_store: MakeStore, v6: bool) -> None:
    """They take no place of others, and are not counted as handed out."""
    store = await opened(make_store, give_below=5)
    found = [at(100 + number, 22 if number < 25 else 9000, v6=v6) for number in range(28)]
    now = int(store.clock())
    assert await store.dht_torrents.give(TORRENT, found, now, START, all_torrents=False)
    for event in ("s", "u"):
        (reply,), totals = await store.announce_together(said(1, event, v6=v6))
        assert split(reply) == found[25:] and totals.given == 3


async def test_untold_peers_of_the_swarm_leave_room_for_those_of_the_dht(make_store: MakeStore) -> None:
    store = await opened(make_store, give_below=2)
    for peer in (1, 2, 3):
        await store.announce(said(peer, "s", 22))
    found = [at(100)]
    assert await store.dht_torrents.give(TORRENT, found, int(store.clock()), START, all_torrents=False)
    assert split(await store.announce(said(4, "s"))) == found


async def test_of_users_whose_own_peers_are_not_told_either(make_store: MakeStore) -> None:
    store = await opened(make_store, accounts="required", peer_memory=3600)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    await store.announce(said(1, "s", passkey=ALICE))
    await store.announce(said(2, "s", 22, passkey=BOB))
    await store.announce(said(3, "s", passkey=BOB))
    reply = await store.announce(said(4, "s", passkey=ALICE))
    assert (split(reply), reply.leechers) == ([at(3)], 4)


async def test_without_ports_all_are_told(make_store: MakeStore) -> None:
    store = await opened(make_store, untold_ports=())
    await store.announce(said(1, "s", 22))
    assert split(await store.announce(said(2, "s"))) == [at(1, 22)]
