"""Peers on WebSockets: a third kind of endpoint in the same swarms."""

import random
from typing import Any

import pytest

from loadtest.invariants import check_invariants, read_arrays
from tests.store.conftest import MakeStore
from tests.store.harness import Store, endpoint, info_hash, timeout_key, update
from tracker.bittorrent import Address, Digits, Endpoint
from tracker.store.swarms.codec import GONE, OVER_SOCKET, OWN_FAMILY, PeerUpdate
from tracker.wire.endpoint import SocketId, pack_socket, sockets_of


def socket(peer: int, *, process: int = 1, number: int | None = None, address: int | None = None) -> Endpoint:
    """The WebSocket of a peer, at the address of its endpoint."""
    host = Address(endpoint(peer if address is None else address)[:-2])
    return pack_socket(host, SocketId(process, peer if number is None else number))


def over_socket(peer: int, event: str = "u", at: Endpoint | None = None, **changes: Any) -> PeerUpdate:
    return update(peer, event, endpoint=at or socket(peer), form=OVER_SOCKET, **{"timeout_seconds": 180.0, **changes})


def gone(peer: int, at: Endpoint | None = None) -> PeerUpdate:
    return over_socket(peer, GONE.decode(), at)


async def counts(store: Store) -> tuple[int, ...]:
    row = await store.torrent(update(1).info_hash)
    await check_invariants(store.redis, store.keys)
    arrays = read_arrays(row)
    return (int(row["seeders"]), int(row["leechers"]), *(arrays[name] for name in ("s4", "l4", "sw", "lw")))


async def test_peers_on_sockets_join_change_and_stop(store: Store) -> None:
    assert (await store.announce(over_socket(1, "s"))).outcome == "join"
    assert (await store.announce(over_socket(1))).outcome == "update"
    assert await counts(store) == (0, 1, 0, 0, 0, 1)
    assert (await store.announce(over_socket(1, "c", bytes_left=0))).outcome == "update"
    assert await counts(store) == (1, 0, 0, 0, 1, 0)
    assert (await store.announce(over_socket(1, "x"))).outcome == "leave"
    assert await counts(store) == (0, 0, 0, 0, 0, 0)


async def test_sockets_are_told_to_sockets_and_endpoints_to_others(store: Store) -> None:
    """A seeder, or partial seed, gets leechers only, and none gets its own socket."""
    for peer in (1, 2, 3):
        await store.announce(over_socket(peer, "s", bytes_left=0 if peer == 1 else 7))
    await store.announce(update(4, "s"))
    assert sorted(sockets_of((await store.announce(over_socket(2))).peers)) == [SocketId(1, 1), SocketId(1, 3)]
    assert sockets_of((await store.announce(over_socket(1, bytes_left=0))).peers) == [SocketId(1, 2), SocketId(1, 3)]
    reply = await store.announce(update(5, "s"))
    assert (reply.peers, reply.leechers, reply.seeders) == (endpoint(4), 4, 1)
    assert len(sockets_of((await store.announce(over_socket(3, peers_wanted=1))).peers)) == 1
    assert sockets_of((await store.announce(over_socket(2, "p"))).peers) == [SocketId(1, 3)]


async def test_announces_over_a_socket_are_never_early(make_store: MakeStore) -> None:
    store = await make_store(early=600)
    await store.announce(over_socket(1, "s"))
    assert (await store.announce(over_socket(1))).outcome == "update"
    assert (await store.announce(over_socket(1, bytes_left=0))).outcome == "update"
    await store.announce(update(2, "s"))
    assert (await store.announce(update(2))).outcome == "early"


async def test_a_hybrid_peer_counts_once(store: Store) -> None:
    await store.announce(update(1, "s"))
    assert (await store.announce(over_socket(1, "s"))).outcome == "update"
    assert await counts(store) == (0, 1, 0, 1, 0, 1)
    assert (await store.announce(update(1))).outcome == "update"
    assert (await store.peer(update(1)))["endpoints"] == endpoint(1) + socket(1)
    assert (await store.announce(over_socket(1, bytes_left=0))).outcome == "update"
    assert await counts(store) == (1, 0, 1, 0, 1, 0)
    assert (await store.announce(update(1, "x"))).outcome == "leave"
    assert await counts(store) == (0, 0, 0, 0, 0, 0)


async def test_a_closed_socket_ends_a_peer_unless_it_has_an_endpoint(store: Store) -> None:
    await store.announce(over_socket(1, "s"))
    await store.announce(update(2, "s"))
    await store.announce(over_socket(2))
    assert (await store.announce(gone(1))).outcome == "leave"
    assert (await store.announce(gone(2))).outcome == "absent"
    assert await counts(store) == (0, 1, 0, 1, 0, 0)
    assert "nw" not in await store.peer(update(2))


async def test_a_peer_that_came_back_over_another_socket_outlives_the_old_one(store: Store) -> None:
    await store.announce(over_socket(1, "s"))
    newer = socket(1, number=99)
    assert (await store.announce(over_socket(1, at=newer))).outcome == "update"
    assert (await store.announce(gone(1))).outcome == "absent"
    assert await counts(store) == (0, 1, 0, 0, 0, 1)
    assert (await store.peer(update(1)))["endpoints"] == newer


async def test_a_stranger_with_a_known_peer_id_changes_nothing_and_gets_no_sockets(store: Store) -> None:
    for peer in (1, 2):
        await store.announce(over_socket(peer, "s"))
    thief = socket(1, number=66, address=6)
    for event in ("s", "u", "c"):
        reply = await store.announce(over_socket(1, event, thief))
        assert (reply.outcome, reply.peers, reply.leechers) == ("stranger", b"", 2)
    for event in ("x", GONE.decode()):
        assert (await store.announce(over_socket(1, event, thief))).outcome == "absent"
    assert (await store.announce(update(1, "x", endpoint=endpoint(6)))).outcome == "absent"
    assert (await store.peer(update(1)))["endpoints"] == socket(1)


async def test_a_key_proves_a_peer_at_another_address(store: Store) -> None:
    await store.announce(over_socket(1, "s", key=b"k" * 8))
    moved = socket(1, number=66, address=6)
    assert (await store.announce(over_socket(1, at=moved, key=b"k" * 8))).outcome == "update"
    assert (await store.peer(update(1)))["endpoints"] == moved


async def test_a_socket_does_not_shorten_the_timeout_of_an_endpoint(store: Store) -> None:
    key = timeout_key(store.keys, 1, update(1).peer_id)
    await store.announce(over_socket(1, "s"))
    assert await store.redis.pttl(key) <= 180_000
    await store.announce(update(1))
    await store.announce(over_socket(1))
    assert await store.redis.pttl(key) > 2_600_000


@pytest.mark.parametrize("event", ["u", "c", "x"])
async def test_traffic_over_sockets_counts_as_such(store: Store, event: str) -> None:
    over_v6 = pack_socket(Address(endpoint(3, v6=True)[:-2]), SocketId(1, 3))
    peers = [update(1, "s"), over_socket(2, "s"), over_socket(3, "s", over_v6), update(4, "s", form=OWN_FAMILY)]
    await store.announce_together(*peers)
    store.clock.now += 60
    moved = [peer._replace(event=event.encode(), uploaded=Digits(b"%d" % 10**n)) for n, peer in enumerate(peers)]
    _, totals = await store.announce_together(*moved)
    assert (totals[:4], totals.udp_and_ws) == ((1, 0, 0, 0), (1000, 0, 0, 0, 10, 0, 100, 0))


async def test_a_silent_socket_is_reaped(store: Store) -> None:
    await store.announce(over_socket(1, "s"))
    await store.announce(over_socket(2, "s", bytes_left=0))
    assert await store.silence(update(1)) == 1
    assert await counts(store) == (1, 0, 0, 0, 1, 0)


async def test_an_endpoint_that_another_peer_takes_over_leaves_the_socket(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.announce(over_socket(1))
    await store.announce(update(2, "s", endpoint=endpoint(1)))
    assert await counts(store) == (0, 2, 0, 1, 0, 1)


async def test_sockets_and_endpoints_of_an_address_share_its_limit_in_a_swarm(make_store: MakeStore) -> None:
    """One beyond it gets counts and no sockets. A new socket of a peer, after a reload of the page, needs no room."""
    store = await make_store(max_per_network_in_swarm=3)
    at = {peer: socket(peer, address=9) for peer in range(1, 7)}
    await store.announce(update(9, endpoint=endpoint(9)))
    outcomes = [(await store.announce(over_socket(peer, "s", at[peer]))).outcome for peer in range(1, 5)]
    assert outcomes == ["join", "join", "over", "over"]
    reply = await store.announce(over_socket(3, "s", at[3]))
    assert (reply.outcome, reply.peers, reply.leechers) == ("over", b"", 3)
    assert (await store.announce(over_socket(9))).outcome == "over", "a hybrid peer counts for both"
    assert (await store.announce(update(5, "s", endpoint=endpoint(9, port=7000)))).outcome == "over"
    assert (await store.announce(over_socket(1, at=socket(1, number=99, address=9)))).outcome == "update"
    assert (await store.announce(over_socket(6, "s"))).outcome == "join"
    assert (await store.announce(gone(2, at[2]))).outcome == "leave"
    assert (await store.announce(over_socket(3, "s", at[3]))).outcome == "join"
    assert await counts(store) == (0, 4, 0, 1, 0, 3)


@pytest.mark.parametrize("v6", [False, True])
async def test_sockets_count_for_the_limit_of_an_address_in_all_swarms(make_store: MakeStore, *, v6: bool) -> None:
    store = await make_store(max_per_network=3)
    at = {number: pack_socket(Address(endpoint(9, v6=v6)[:-2]), SocketId(1, number)) for number in range(1, 6)}
    outcomes = [(await store.announce(over_socket(n, "s", at[n])._replace(info_hash=info_hash(n)))).outcome for n in at]
    assert outcomes == ["join"] * 3 + ["over"] * 2
    assert (await store.announce(over_socket(4, "s", at[4], unbounded=True))).outcome == "join"
    for number in (1, 2):
        gone_there = gone(number, at[number])._replace(info_hash=info_hash(number))
        assert (await store.announce(gone_there)).outcome == "leave"
    await check_invariants(store.redis, store.keys)
    assert (await store.announce(over_socket(5, "s", at[5]))).outcome == "join"


async def test_accounts_belong_to_users_over_sockets_too(make_store: MakeStore) -> None:
    store = await make_store(accounts="required", own_peers=False, peer_memory=600)
    await store.torrents.add(update(1).info_hash)
    for name, passkey in (("7", "p" * 20), ("8", "q" * 20)):
        await store.redis.hset(store.keys.passkey(passkey), "user_id", name)
    await store.announce(over_socket(1, "s", passkey="p" * 20))
    for peer in (2, 3):
        await store.announce(over_socket(peer, "s", passkey="q" * 20))
    reply = await store.announce(over_socket(1, uploaded=500, passkey="p" * 20))
    assert sockets_of(reply.peers) == [SocketId(1, 2), SocketId(1, 3)]
    assert sockets_of((await store.announce(over_socket(3, passkey="q" * 20))).peers) == [SocketId(1, 1)]
    assert (await store.announce(gone(1)._replace(passkey="p" * 20))).outcome == "leave"
    assert await counts(store) == (0, 2, 0, 0, 0, 2)
    assert await store.refused(over_socket(4, "s")) == "unknown passkey"


@pytest.mark.parametrize("broken", ["sw", "lwi", "nw", "count", "address"])
async def test_the_sweep_repairs_the_arrays_of_sockets(store: Store, broken: str) -> None:
    await store.announce(over_socket(1, "s", bytes_left=0))
    await store.announce(over_socket(2, "s"))
    await store.announce(update(2))
    if broken == "nw":
        await store.redis.hdel(store.keys.peer("1", update(2).peer_id), "nw")
    elif broken == "count":
        await store.redis.hset(store.keys.torrent(update(1).info_hash), "arrays", "0 1 0 0 1 3 0")
    elif broken == "address":
        key = f"{store.keys.prefix}addresses:{update(1).info_hash.hex()}"
        await store.redis.hset(key, endpoint(1)[:4], b"\0\0" + update(7).peer_id)
    else:
        await store.redis.delete(f"{store.keys.prefix}swarm:{update(1).info_hash.hex()}:{broken}")
    for budget in (1000, 1):
        position, repaired = "", 0
        while True:
            step = await store.reaping.sweep(["1"], position, budget)
            repaired, position = repaired + step.repairs, step.position
            if not position:
                break
        assert repaired == (1 if budget == 1000 else 0)
    assert await counts(store) == (1, 1, 0, 1, 1, 1)


@pytest.mark.parametrize("budget", [1000, 1])
async def test_the_sweep_drops_sockets_of_processes_that_report_no_more(store: Store, budget: int) -> None:
    for peer, process in ((1, 1), (2, 2)):
        await store.announce(update(peer, "s"))
        await store.announce(over_socket(peer, at=socket(peer, process=process)))
    now = int(store.clock())
    key = f"{store.keys.prefix}ws:processes"
    await store.redis.hset(key, mapping={"1": now - 30, "2": now - 61})
    position = ""
    for _ in range(20):
        step = await store.reaping.sweep(["1"], position, budget)
        assert not step.repairs
        position = step.position
    assert await counts(store) == (0, 2, 0, 2, 0, 1)
    assert (await store.peer(update(2)))["endpoints"] == endpoint(2)


async def test_maintenance_knows_the_keys_of_sockets(store: Store) -> None:
    await store.announce(over_socket(1, "s", bytes_left=0))
    await store.announce(over_socket(2, "s"))
    assert await store.maintenance.cleanup() == []
    assert await store.maintenance.reindex() == []
    assert await counts(store) == (1, 1, 0, 0, 1, 1)


async def test_the_sweep_counts_sockets(store: Store) -> None:
    await store.announce(over_socket(1, "s", bytes_left=0))
    await store.announce(over_socket(2, "s"))
    await store.announce(update(3, "s"))
    found = (await store.reaping.sweep(["1"], "", 100)).peers
    assert (found.seeders, found.leechers, found.seeders_ws, found.leechers_ws) == (1, 2, 1, 1)


@pytest.mark.parametrize("seed", range(12))
async def test_any_order_of_announces_and_closings_keeps_the_swarm_whole(store: Store, seed: int) -> None:
    """Hybrid peers in every order of joins, stops, closings and timeouts."""
    rng = random.Random(seed)
    for _ in range(40):
        peer = rng.randrange(1, 6)
        at = socket(peer, number=rng.choice((peer, peer + 100)))
        over_tcp = update(peer, rng.choice("uscxp"), bytes_left=rng.choice((0, 7)))
        step = rng.choice(
            (
                over_tcp,
                over_socket(peer, rng.choice("uscxp"), at, bytes_left=rng.choice((0, 7))),
                over_socket(peer, "u", at, bytes_left=rng.choice((0, 7)), random=rng.getrandbits(31)),
                over_socket(peer, GONE.decode(), at),
                update(peer, "s", endpoint=endpoint(rng.randrange(1, 6))),
            )
        )
        if rng.random() < 0.1:
            await store.silence(step)
        else:
            await store.announce(step)
        await check_invariants(store.redis, store.keys)
    for swept in (await store.reaping.sweep(["1"], "", 100), await store.reaping.sweep(["1"], "", 100)):
        assert not swept.repairs
