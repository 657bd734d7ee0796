"""A user's own other peers are not in replies to that user (row T31)."""

from typing import Any

import pytest

from loadtest.invariants import check_invariants, read_arrays
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, endpoint, peer_id, update
from tests.store.sharding.harness import hash_in
from tracker.bittorrent import Endpoint
from tracker.store.swarms.codec import OWN_FAMILY, WITH_IDS, Admitted, PeerUpdate

NUMBERS_OF_SHARDS = (1, 4)
TORRENT, V2 = hash_in(0, 1), hash_in(1, 2)
KEY = b"8 bytes!"
MODES = pytest.mark.parametrize("accounts", ["required", "optional"])


async def opened(make_store: MakeStore, **rules: Any) -> Store:
    store = await make_store(**{"accounts": "required", "peer_memory": 3600, **rules})
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    await store.torrents.add(TORRENT)
    return store


def said(peer: int, event: str = "u", passkey: str = ALICE, **values: Any) -> PeerUpdate:
    return update(peer, event, passkey=passkey, **{"info_hash": TORRENT, **values})


def endpoints(reply: Admitted) -> set[Endpoint]:
    return {
        Endpoint(packed[at : at + size])
        for packed, size in ((reply.peers, 6), (reply.peers6, 18))
        for at in range(0, len(packed), size)
    }


async def told(store: Store, peer: int, event: str = "u", passkey: str = ALICE, **values: Any) -> set[Endpoint]:
    store.clock.now += 60
    return endpoints(await store.announce(said(peer, event, passkey, **values)))


@MODES
async def test_two_clients_of_a_user_are_not_told_each_other(make_store: MakeStore, accounts: str) -> None:
    """T31, at joins and updates, for leechers and seeders. Others are told both."""
    store = await opened(make_store, accounts=accounts)
    assert await told(store, 1, "s") == set()
    assert await told(store, 2, "s", bytes_left=0) == set()
    assert await told(store, 11, "s", BOB) == {endpoint(1), endpoint(2)}
    for event in ("u", "s", "p", "c"):
        assert await told(store, 1, event) == {endpoint(11)}
        assert await told(store, 2, event, bytes_left=0) == {endpoint(11)}
    for event in ("u", "s"):
        assert await told(store, 11, event, BOB) == {endpoint(1), endpoint(2)}
    await store.announce(said(2, "x"))
    assert await told(store, 1) == {endpoint(11)}
    reply = await store.announce(said(1))
    assert (reply.seeders, reply.leechers) == (0, 2)


@MODES
async def test_they_are_told_where_the_setting_says_so(make_store: MakeStore, accounts: str) -> None:
    store = await opened(make_store, accounts=accounts, own_peers=True)
    assert await told(store, 1, "s") == set()
    assert await told(store, 2, "s") == {endpoint(1)}
    assert await told(store, 1) == {endpoint(2)}


async def test_they_count_in_replies(make_store: MakeStore) -> None:
    store = await opened(make_store)
    await store.announce(said(1, "s", bytes_left=0))
    reply = await store.announce(said(2, "s"))
    assert (reply.seeders, reply.leechers, reply.peers) == (1, 1, b"")


async def test_clients_with_two_families_are_not_told_each_other(make_store: MakeStore) -> None:
    store = await opened(make_store)
    for peer, passkey in ((1, ALICE), (2, ALICE), (11, BOB)):
        await told(store, peer, "s", passkey, key=KEY)
        await told(store, peer, "u", passkey, key=KEY, endpoint=endpoint(peer, v6=True))
    others = {endpoint(11), endpoint(11, v6=True)}
    for peer in (1, 2):
        for v6 in (False, True):
            assert await told(store, peer, key=KEY, endpoint=endpoint(peer, v6=v6)) == others
    assert len(await told(store, 11, "u", BOB, key=KEY)) == 4


async def test_peer_ids_fit_the_peers_that_are_told(make_store: MakeStore) -> None:
    """Also that of a derived entry: Bob's client has the peer id of Alice's."""
    store = await opened(make_store)
    await told(store, 1, "s")
    await told(store, 2, "s")
    await told(store, 1, "s", BOB, endpoint=endpoint(11))
    await told(store, 12, "s", BOB, endpoint=endpoint(12, v6=True))
    store.clock.now += 60
    reply = await store.announce(said(2, form=WITH_IDS))
    assert (reply.peers, reply.peer_ids) == (endpoint(11), peer_id(1))
    assert (reply.peers6, reply.peer_ids6) == (endpoint(12, v6=True), peer_id(12))
    reply = await store.announce(said(1, "u", BOB, form=WITH_IDS, endpoint=endpoint(11)))
    ids = {reply.peer_ids[at : at + 20] for at in (0, 20)}
    assert (endpoints(reply), ids) == ({endpoint(1), endpoint(2)}, {peer_id(1), peer_id(2)})


@pytest.mark.parametrize("v6", [False, True])
async def test_the_same_over_udp(make_store: MakeStore, v6: bool) -> None:
    store = await opened(make_store)
    for peer, passkey in ((1, ALICE), (2, ALICE), (11, BOB)):
        await told(store, peer, "s", passkey, form=OWN_FAMILY, endpoint=endpoint(peer, v6=v6))
    for event in ("u", "s"):
        assert await told(store, 2, event, form=OWN_FAMILY, endpoint=endpoint(2, v6=v6)) == {endpoint(11, v6=v6)}


async def test_anonymous_peers_are_told_all_peers(make_store: MakeStore) -> None:
    """And users are told them."""
    store = await opened(make_store, accounts="optional")
    for peer, passkey in ((1, ALICE), (2, ALICE), (3, ""), (4, "")):
        await told(store, peer, "s", passkey)
    for event in ("u", "s"):
        assert await told(store, 3, event, "") == {endpoint(1), endpoint(2), endpoint(4)}
        assert await told(store, 1, event) == {endpoint(3), endpoint(4)}
    assert await told(store, 5, "s", "x" * 20) == {endpoint(number) for number in range(1, 5)}


async def test_without_accounts_a_passkey_hides_no_peer(make_store: MakeStore) -> None:
    store = await make_store()
    await told(store, 1, "s")
    assert await told(store, 2, "s") == {endpoint(1)}


@MODES
async def test_a_crowded_swarm(make_store: MakeStore, accounts: str) -> None:
    """Where a reply is selected one by one, because a network has many peers."""
    store = await opened(make_store, accounts=accounts)

    def port(number: int) -> Endpoint:
        return endpoint(1, port=number)

    for number in range(1, 21):
        await told(store, number, "s", ALICE if number % 2 else BOB, endpoint=port(number))
    assert read_arrays(await store.torrent(TORRENT))["crowded"] > 0
    for peer in (1, 2):
        passkey, others = (ALICE, range(2, 21, 2)) if peer % 2 else (BOB, range(1, 21, 2))
        for form in (0, WITH_IDS, OWN_FAMILY):
            for event in ("u", "s"):
                assert await told(store, peer, event, passkey, endpoint=port(peer), form=form) == {
                    port(number) for number in others
                }
    few = await told(store, 1, endpoint=port(1), peers_wanted=4)
    assert few <= {port(number) for number in range(2, 21, 2)} and len(few) <= 4


async def test_the_v2_half_of_a_hybrid_torrent(make_store: MakeStore) -> None:
    store = await opened(make_store)
    await store.torrents.add(V2)
    await store.hybrids.link(V2, TORRENT)
    for peer, passkey in ((1, ALICE), (2, ALICE), (11, BOB)):
        await told(store, peer, "s", passkey, info_hash=V2)
    for event in ("u", "s"):
        assert await told(store, 1, event, info_hash=V2) == {endpoint(11)}
        assert await told(store, 1, event, info_hash=V2, uploaded=5) == {endpoint(11)}
        assert await told(store, 11, event, BOB, info_hash=V2) == {endpoint(1), endpoint(2)}


async def test_announces_that_change_nothing_are_not_told_them_either(make_store: MakeStore) -> None:
    """Of a second client at the same address and port, and of one with the peer id of the first."""
    store = await opened(make_store)
    await told(store, 1, "s", key=KEY)
    await told(store, 1, key=KEY, endpoint=endpoint(1, v6=True))
    await told(store, 11, "s", BOB)
    displaced = await store.announce(said(2, endpoint=endpoint(1)))
    assert (displaced.outcome, endpoints(displaced)) == ("displaced", {endpoint(11)})
    stranger = await store.announce(said(1, endpoint=endpoint(2)))
    assert (stranger.outcome, endpoints(stranger)) == ("stranger", {endpoint(11)})


async def test_a_second_client_that_replaces_the_first(make_store: MakeStore) -> None:
    """With one peer of a user in a torrent, and with the endpoint taken over."""
    store = await opened(make_store, max_peers=1)
    await told(store, 11, "s", BOB)
    for peer in (1, 2):
        assert await told(store, peer, "s") == {endpoint(11)}
    assert await told(store, 3, "s", endpoint=endpoint(2)) == {endpoint(11)}
    shard = store.shard(TORRENT)
    assert await check_invariants(store.redis, shard.keys) == 2


async def test_a_peer_that_another_program_deleted_is_not_told(make_store: MakeStore) -> None:
    store = await opened(make_store)
    for peer in (1, 2, 3):
        await told(store, peer, "s", ALICE if peer < 3 else BOB)
    tid = (await store.torrent(TORRENT))["tid"]
    await store.redis.set(store.shard(TORRENT).keys.peer(tid, peer_id(3)), "of a wrong type")
    reply = await store.announce(said(1, "s"))
    assert (reply.outcome, reply.peers) == ("update", b"")
