"""Endpoints per address in a swarm: a restarted client is one peer, and no network fills a swarm."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from loadtest.invariants import check_invariants, read_arrays
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, endpoint, info_hash, peer_id, timeout_key, update
from tracker.bittorrent import Digits, Endpoint
from tracker.store.swarms.codec import WITH_IDS, PeerUpdate

V6: dict[str, Any] = {"endpoint": endpoint(1, v6=True)}


def attacker(number: int, **changes: Any) -> PeerUpdate:
    """A peer at 203.0.112.1 with its own peer ID and port."""
    where = Endpoint(bytes([203, 0, 112, 1]) + (1024 + number).to_bytes(2, "big"))
    return update(100_000 + number, "s", endpoint=where, **changes)


def addresses_key(store: Store) -> str:
    return f"{store.keys.prefix}addresses:{info_hash(1).hex()}"


async def addresses(store: Store) -> dict[bytes, bytes]:
    held: dict[bytes, bytes] = await store.redis.hgetall(addresses_key(store))
    return held


# A restarted client


async def test_a_client_that_restarts_under_a_new_peer_id_is_one_peer(store: Store) -> None:
    """Its `stopped` was lost (kill -9), or the client sends none."""
    await store.announce(update(9, "s"))
    for restart in range(4):
        again = await store.announce(update(100 + restart, "s", endpoint=endpoint(1)))
        assert (again.outcome, again.leechers, again.peers) == ("join", 2, endpoint(9))
    assert await check_invariants(store.redis, store.keys) == 2
    assert not await store.redis.exists(timeout_key(store.keys, 1, peer_id(100)))
    assert not await store.redis.exists(store.keys.peer(1, peer_id(100)))
    assert await addresses(store) == {
        endpoint(1)[:4]: endpoint(1)[4:] + peer_id(103),
        endpoint(9)[:4]: endpoint(9)[4:] + peer_id(9),
    }


async def test_a_seeder_that_restarts_is_one_seeder(store: Store) -> None:
    await store.announce(update(1, "s", bytes_left=0))
    again = await store.announce(update(2, "s", bytes_left=0, endpoint=endpoint(1)))
    assert (again.seeders, again.leechers) == (1, 0)
    assert await check_invariants(store.redis, store.keys) == 1


async def test_another_port_is_another_peer(store: Store) -> None:
    await store.announce(update(1, "s"))
    assert (await store.announce(update(2, "s", endpoint=endpoint(1, port=7000)))).leechers == 2


async def test_a_restarted_client_takes_only_the_endpoint_it_announces(store: Store) -> None:
    """Its IPv4 and IPv6 endpoints move one after the other. The old entry is removed with the second."""
    key: dict[str, Any] = {"key": b"old key!"}
    await store.announce(update(1, "s", **key))
    await store.announce(update(1, "s", **key, **V6))
    new: dict[str, Any] = {"key": b"new key!"}
    assert (await store.announce(update(2, "s", endpoint=endpoint(1), **new))).leechers == 2
    assert (await store.peer(update(1)))["endpoints"] == endpoint(1, v6=True)
    assert await check_invariants(store.redis, store.keys) == 2
    assert (await store.announce(update(2, "s", **new, **V6))).leechers == 1
    assert (await store.peer(update(2)))["endpoints"] == endpoint(1) + endpoint(1, v6=True)
    assert await check_invariants(store.redis, store.keys) == 1


async def test_a_displaced_peer_gets_peers_and_changes_nothing(store: Store) -> None:
    await store.announce(update(9, "s"))
    await store.announce(update(1, "s"))
    await store.announce(update(2, "s", endpoint=endpoint(1)))
    before = await store.dump()
    for event in "ucp":
        answer = await store.announce(update(1, event, bytes_left=5))
        assert (answer.outcome, answer.peers) == ("displaced", endpoint(9))
    assert (await store.announce(update(1, "x"))).outcome == "absent"
    assert await store.dump() == before
    await store.announce(update(2, "x", endpoint=endpoint(1)))
    assert (await store.announce(update(1))).outcome == "join"
    assert await check_invariants(store.redis, store.keys) == 2


async def test_a_peer_that_moves_to_a_held_endpoint_takes_it_only_when_it_starts(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.announce(update(2, "s", endpoint=endpoint(1, port=7000)))
    moved = update(1, endpoint=endpoint(1, port=7000))
    before = await store.dump()
    assert (await store.announce(moved)).outcome == "displaced"
    assert await store.dump() == before
    assert (await store.announce(moved._replace(event=b"s"))).leechers == 1
    assert await check_invariants(store.redis, store.keys) == 1


async def test_in_private_mode_only_the_same_user_takes_an_endpoint(make_store: MakeStore) -> None:
    store = await make_store(accounts="required", peer_memory=3600)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    await store.announce(update(1, "s", passkey=ALICE))
    assert (await store.announce(update(2, "s", passkey=BOB, endpoint=endpoint(1)))).leechers == 2
    assert await check_invariants(store.redis, store.keys) == 2
    assert (await store.announce(update(3, "s", passkey=ALICE, endpoint=endpoint(1)))).leechers == 2
    assert await store.redis.hget(store.keys.user_torrent("7", 1), "peers") == b"1"
    assert await store.torrents_of("7", "active") == ["1"]
    assert (await store.announce(update(1, passkey=ALICE))).outcome == "displaced"
    assert await check_invariants(store.redis, store.keys) == 2
    reply = await store.announce(update(4, "s", passkey=ALICE))
    assert reply.peers == endpoint(1), "a reply lists an endpoint once"
    await store.announce(update(2, "x", passkey=BOB, endpoint=endpoint(1)))
    assert read_arrays(await store.torrent(info_hash(1)))["crowded"] == 0
    assert await check_invariants(store.redis, store.keys) == 2


async def test_a_restart_creates_no_hit_and_run(make_store: MakeStore) -> None:
    store = await make_store(accounts="required", peer_memory=3600, hnr_min_bytes=3, hnr_threshold=600)
    await store.users.add("7", ALICE)
    await store.announce(update(1, "s", passkey=ALICE))
    store.clock.now += 60
    await store.announce(update(1, passkey=ALICE, downloaded=900))
    await store.announce(update(2, "s", passkey=ALICE, endpoint=endpoint(1)))
    assert await store.torrents_of("7", "hnr") == []


# Bounds


async def test_one_address_has_a_bounded_number_of_endpoints_in_a_swarm(make_store: MakeStore) -> None:
    """Peers beyond the bound receive peers but are not listed. They join as soon as there is room."""
    store = await make_store(max_per_network_in_swarm=5)
    await store.announce(update(1, "s"))
    outcomes = [(await store.announce(attacker(n))).outcome for n in range(8)]
    assert outcomes == ["join"] * 5 + ["over"] * 3
    before = await store.dump()
    answer = await store.announce(attacker(7))
    assert (answer.outcome, answer.leechers) == ("over", 6)
    assert answer.peers.find(endpoint(1)) >= 0
    assert await store.dump() == before
    assert (await store.announce(attacker(3)._replace(event=b"u"))).outcome == "update"
    again = attacker(3)._replace(peer_id=peer_id(77))
    assert (await store.announce(again)).outcome == "join", "a restarted client takes its own place"
    await store.announce(attacker(0)._replace(event=b"x"))
    assert (await store.announce(attacker(7))).outcome == "join"
    assert await check_invariants(store.redis, store.keys) == 6


async def test_ipv6_addresses_are_bounded_by_their_64_prefix(make_store: MakeStore) -> None:
    store = await make_store(max_per_network_in_swarm=3)
    near = [update(n, "s", endpoint=endpoint(n, v6=True)) for n in range(1, 6)]
    assert [(await store.announce(one)).outcome for one in near] == ["join"] * 3 + ["over"] * 2
    far = Endpoint(b"\x20\x01\x0d\xb8\0\0\0\1" + bytes(8) + b"\x1a\xe1")
    assert (await store.announce(update(9, "s", endpoint=far))).outcome == "join"


async def test_an_address_and_its_wider_network_are_bounded_over_all_torrents(make_store: MakeStore) -> None:
    store = await make_store(max_per_network=4)
    assert [(await store.announce(attacker(n, torrent=n + 1))).outcome for n in range(6)] == ["join"] * 4 + ["over"] * 2
    neighbours = [update(n, "s", torrent=n, endpoint=Endpoint(bytes([203, 0, 112, n, 26, 225]))) for n in range(10, 50)]
    outcomes = [(await store.announce(one)).outcome for one in neighbours]
    assert outcomes == ["join"] * 36 + ["over"] * 4
    elsewhere = update(99, "s", endpoint=Endpoint(bytes([203, 0, 113, 1, 26, 225])))
    assert (await store.announce(elsewhere)).outcome == "join"
    await store.announce(attacker(0)._replace(event=b"x"))
    assert (await store.announce(attacker(5, torrent=6))).outcome == "join"
    assert await check_invariants(store.redis, store.keys) == 41
    for n in range(1, 6):
        await store.announce(attacker(n, torrent=n + 1)._replace(event=b"x"))
    assert await store.redis.hexists(store.keys.addresses(), bytes([203, 0, 112, 1])) == 0


async def test_exempt_addresses_and_local_networks_are_not_limited(make_store: MakeStore) -> None:
    store = await make_store(max_per_network_in_swarm=2, max_per_network=2)
    assert {(await store.announce(attacker(n, unbounded=True))).outcome for n in range(9)} == {"join"}
    local = [update(n, "s", endpoint=Endpoint(b"\x7f\0\0\1" + n.to_bytes(2, "big"))) for n in range(1, 9)]
    assert {(await store.announce(one)).outcome for one in local} == {"join"}
    strict = await make_store(max_per_network_in_swarm=2, bound_local_networks=True)
    another = update(50, "s", endpoint=Endpoint(b"\x7f\0\0\1\0\x50"))
    assert (await strict.announce(another)).outcome == "over"


async def test_a_client_that_restarts_at_the_total_bound_takes_its_own_place(make_store: MakeStore) -> None:
    store = await make_store(max_per_network=4)
    for n in range(4):
        await store.announce(attacker(n, torrent=n + 1))
    assert (await store.announce(attacker(9, torrent=1))).outcome == "over"
    again = [attacker(n, torrent=n + 1)._replace(peer_id=peer_id(50 + n)) for n in range(4)]
    assert [(await store.announce(one)).outcome for one in again] == ["join"] * 4
    assert await check_invariants(store.redis, store.keys) == 4


async def test_an_entry_that_names_a_peer_of_another_address_evicts_no_peer(store: Store) -> None:
    """Another program wrote the entry."""
    await store.announce(update(1, "s"))
    await store.redis.hset(addresses_key(store), endpoint(7)[:4], endpoint(7)[4:] + peer_id(1))
    assert (await store.announce(update(2, endpoint=endpoint(7)))).leechers == 2
    assert (await store.announce(update(1))).outcome == "update"


@pytest.mark.slow
async def test_a_local_network_has_unlimited_peers_and_bounded_entries(store: Store) -> None:
    """Behind an untrusted proxy all peers share its address."""
    behind = [update(n, "s", endpoint=Endpoint(b"\xac\x11\0\1" + (1024 + n).to_bytes(2, "big"))) for n in range(1500)]
    for first in range(0, 1500, 500):
        answers = await asyncio.gather(*map(store.announce, behind[first : first + 500]))
        assert {answer.outcome for answer in answers} == {"join"}
    held = await addresses(store)
    assert [len(entries) // 22 for entries in held.values()] == [1024]
    for budget in (3000, 200):
        assert await sweep(store, budget) == 0
    for one in behind[:600]:
        await store.announce(one._replace(event=b"x"))
    for budget in (3000, 200):
        assert await sweep(store, budget) == 0
    assert await check_invariants(store.redis, store.keys) == 900


async def test_users_with_one_local_endpoint_are_returned_once(make_store: MakeStore) -> None:
    store = await make_store(accounts="required")
    for number in range(5):
        await store.users.add(str(7 + number), f"{number:020}")
    local = Endpoint(b"\xac\x11\0\1\x1a\xe1")
    elsewhere = Endpoint(b"\xac\x11\0\1\x1a\xe2")
    for number in range(4):
        where = local if number < 3 else elsewhere
        await store.announce(update(number, "s", passkey=f"{number:020}", endpoint=where))
    answer = await store.announce(update(4, "s", passkey=f"{4:020}"))
    assert sorted((answer.peers[:6], answer.peers[6:])) == sorted((local, elsewhere))


@pytest.mark.parametrize("local", [True, False])
async def test_crowded_networks_are_counted_with_many_entries_and_shared_endpoints(
    make_store: MakeStore, *, local: bool
) -> None:
    """Users of a network join, stop, move and share ports at random; the sweep, which counts anew, repairs nothing."""
    store = await make_store(accounts="required")
    for number in range(40):
        await store.users.add(str(7 + number), f"{number:020}")
    chance, counts = random.Random(3), set()
    host = b"\xac\x11\0\1" if local else b"\x0b\x11\0\1"
    for _ in range(60):
        for number in chance.sample(range(40), 6):
            where = Endpoint(host + (1024 + chance.randrange(30)).to_bytes(2, "big"))
            event = chance.choice("sssuxx")
            await store.announce(update(number, event, passkey=f"{number:020}", endpoint=where))
        counts.add(read_arrays(await store.torrent(info_hash(1)))["crowded"])
        assert await sweep(store) == 0
    assert counts == {0, 1}
    await check_invariants(store.redis, store.keys)


@pytest.mark.slow
async def test_honest_peers_are_returned_beside_an_attacker(make_store: MakeStore) -> None:
    """An attacker invents 9,000 peers at one address, of which 400 are listed. Each reply names three of them beside
    500 honest peers."""
    store = await make_store(max_per_network_in_swarm=400)
    chance = random.Random(1)
    for first in range(0, 9000, 1000):
        fresh = (attacker(n, random=chance.getrandbits(31), peers_wanted=0) for n in range(first, first + 1000))
        await asyncio.gather(*map(store.announce, fresh))
        honest = range(first // 18, first // 18 + 56)
        await asyncio.gather(
            *(store.announce(update(n, "s", random=chance.getrandbits(31), peers_wanted=0)) for n in honest)
        )
    assert await check_invariants(store.redis, store.keys) == 400 + 500
    for newcomer in range(2000, 2050):
        answer = await store.announce(update(newcomer, "s", random=chance.getrandbits(31)))
        given = [answer.peers[at : at + 6] for at in range(0, len(answer.peers), 6)]
        assert len(given) == len(set(given)) == 50
        assert sum(one.startswith(bytes([203, 0, 112, 1])) for one in given) <= 3


async def test_one_address_fills_the_reply_when_other_peers_are_too_few(store: Store) -> None:
    for n in range(80):
        await store.announce(attacker(n, peers_wanted=0, form=n % 2))
    answer = await store.announce(update(1, "s", peers_wanted=50, form=WITH_IDS))
    assert len(answer.peers) == 300 and len(answer.peer_ids) == 1000
    sizes = range(0, 300, 6)
    ports = [int.from_bytes(answer.peers[at + 4 : at + 6], "big") - 1024 for at in sizes]
    ids = [answer.peer_ids[at : at + 20] for at in range(0, 1000, 20)]
    assert ids == [peer_id(100_000 + port) for port in ports]


async def sweep(store: Store, budget: int = 200) -> int:
    """Runs one sweep; returns the number of repairs."""
    _, ids = await store.reaping.page(0, 100)
    position, repairs = "", 0
    while ids:
        step = await store.reaping.sweep(ids, position, budget)
        ids, position, repairs = ids[step.done :], step.position, repairs + step.repairs
    return repairs


@pytest.mark.parametrize("budget", [3, 200], ids=["in slices", "at once"])
@pytest.mark.parametrize(
    "stored", [None, "", "0", "0 0", "0 19", "-1 20", "0 20 0 0 0 0 1", "0 1e9", "0 20 ", "9" * 400]
)
async def test_the_sweep_repairs_the_lengths_of_the_arrays(store: Store, stored: str | None, budget: int) -> None:
    for n in range(1, 21):
        await store.announce(update(n, "s"))
    key = store.keys.torrent(info_hash(1))
    await (store.redis.hdel(key, "arrays") if stored is None else store.redis.hset(key, "arrays", stored))
    assert (await store.announce(update(3))).outcome == "update"
    assert await sweep(store, budget) == 1
    assert await check_invariants(store.redis, store.keys) == 20
    assert (await store.torrent(info_hash(1)))["arrays"] == "0 20"


BROKEN: dict[str, Callable[[Store, str], Awaitable[Any]]] = {
    "an entry is gone": lambda store, key: store.redis.hdel(key, endpoint(2)[:4]),
    "an entry too many": lambda store, key: store.redis.hset(key, endpoint(99)[:4], endpoint(99)[4:] + peer_id(99)),
    "an entry of another peer": lambda store, key: store.redis.hset(key, endpoint(2)[:4], endpoint(2)[4:] + peer_id(3)),
    "no entry at all": lambda store, key: store.redis.hset(key, endpoint(2)[:4], "garbage"),
    "all are gone": lambda store, key: store.redis.delete(key),
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("budget", [3, 200], ids=["in slices", "at once"])
async def test_the_sweep_repairs_the_addresses(store: Store, fault: str, budget: int) -> None:
    for n in range(1, 21):
        await store.announce(update(n, "s"))
    key = addresses_key(store)
    await BROKEN[fault](store, key)
    assert await sweep(store, budget) >= 1
    assert set(await addresses(store)) == {endpoint(n)[:4] for n in range(1, 21)}
    assert await sweep(store, budget) == 0


@pytest.mark.parametrize("budget", [3, 200], ids=["in slices", "at once"])
async def test_the_sweep_repairs_an_endpoint_that_differs_from_its_peers_hash(store: Store, budget: int) -> None:
    for n in range(1, 21):
        await store.announce(update(n, "s"))
    await store.redis.setrange(f"{store.keys.prefix}swarm:{info_hash(1).hex()}:l4", 12, b"\xff" * 6)
    assert await sweep(store, budget) == 1
    assert await check_invariants(store.redis, store.keys) == 20


@pytest.mark.parametrize("budget", [3, 200], ids=["in slices", "at once"])
async def test_the_sweep_repairs_the_torrents_of_a_peer(store: Store, budget: int) -> None:
    for n in range(1, 21):
        await store.announce(update(n, "s"))
    await store.redis.delete(f"{store.keys.prefix}p:{peer_id(3).hex()}:torrents")
    assert await sweep(store, budget) == 1
    assert await check_invariants(store.redis, store.keys) == 20


async def test_a_key_of_a_wrong_type_refuses_a_join_whole_and_blocks_no_stop(store: Store) -> None:
    await store.announce(update(1, "s"))
    key = addresses_key(store)
    await store.redis.delete(key)
    await store.redis.set(key, "another program's")
    before = await store.dump()
    assert await store.refused(update(2, "s")) == "error"
    assert await store.dump() == before
    assert (await store.announce(update(1, uploaded=5))).outcome == "update"
    assert (await store.announce(update(1, "x"))).leechers == 0


@pytest.mark.slow
async def test_an_address_costs_at_most_80_bytes_a_peer(store: Store) -> None:
    """In a swarm where every peer has its own address."""
    peers = 20_000
    for first in range(0, peers, 1000):
        await asyncio.gather(*(store.announce(update(n, "s", peers_wanted=0)) for n in range(first, first + 1000)))
    used = await store.redis.memory_usage(addresses_key(store), samples=0)
    assert used / peers <= 80, f"{used / peers:.1f} bytes a peer"


@pytest.mark.slow
async def test_a_seedbox_with_many_torrents_and_a_nat_are_not_limited(make_store: MakeStore) -> None:
    """With the default bounds."""
    store = await make_store(max_per_network_in_swarm=400, max_per_network=50_000, new_per_address_hour=20_000)
    seedbox = [attacker(1, torrent=n, bytes_left=0) for n in range(1, 10_001)]
    nat = [attacker(n, torrent=20_000) for n in range(300)]
    outcomes = {
        answer.outcome
        for first in range(0, 10_000, 1000)
        for answer in await asyncio.gather(*map(store.announce, seedbox[first : first + 1000]))
    }
    outcomes |= {answer.outcome for answer in await asyncio.gather(*map(store.announce, nat))}
    assert outcomes == {"join"}
    assert Digits(await store.redis.hget(store.keys.addresses(), bytes([203, 0, 112, 1]))) == b"10300"
