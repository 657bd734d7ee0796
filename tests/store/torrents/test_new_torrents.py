"""Open mode: torrents that register themselves, their number, and which one is forgotten when there are too many."""

import asyncio
from collections.abc import Callable

import pytest

from loadtest.invariants import check_invariants
from loadtest.servers import Server
from tests.store.conftest import MakeStore
from tests.store.harness import Store, endpoint, info_hash, running, update
from tests.store.swarms.test_sockets import over_socket
from tests.store.swarms.test_sweep import sweep
from tests.workers.test_removals import removed_in_rounds
from tracker.bittorrent import Endpoint
from tracker.store.schema.keys import Keys
from tracker.store.swarms.codec import Admitted, PeerUpdate, Refused
from tracker.store.swarms.rules import SwarmRules

WEEK = 604_800
HOUR = 3600


def flood_endpoint(number: int) -> Endpoint:
    """An endpoint in its own /64 of 2001:db8:bad::/48 for each number."""
    address = bytes.fromhex("20010db80bad") + number.to_bytes(2, "big") + bytes(7) + b"\1"
    return Endpoint(address + b"\x1a\xe1")


def flood(number: int, event: str = "s") -> PeerUpdate:
    return update(number, event, torrent=number, endpoint=flood_endpoint(number))


def honest(number: int, event: str = "s") -> PeerUpdate:
    return update(number, event, torrent=number, endpoint=endpoint(number << 8))


def room(number: int, event: str = "s") -> PeerUpdate:
    """A browser in a room of its own."""
    return over_socket(number << 8, event, info_hash=info_hash(number))


async def come_and_go(store: Store, torrent: int, *peers: int) -> None:
    """Peers join the torrent, each from its own address, and leave it."""
    for event in "sx":
        for peer in peers:
            await store.announce(update(peer, event, torrent=torrent))


async def registered(store: Store, *torrents: int) -> list[int]:
    """The registered ones of ``torrents``."""
    return [n for n in torrents if await store.redis.exists(store.keys.info_hash(info_hash(n)))]


async def test_a_flood_from_one_network_refuses_no_honest_torrent(make_store: MakeStore) -> None:
    """1,500 torrents from different /64s of one /48, in a store for 300: the network gets its share. Honest torrents
    register before, during and after, whether the flood's peers stay or leave."""
    store = await make_store(max_torrents=300, new_per_address_hour=100, new_per_network_hour=500)
    refused = []
    for first in range(1000, 2500, 60):
        batch = [flood(n, event) for n in range(first, first + 60) for event in "sx"]
        replies = await asyncio.gather(*map(store.swarms.announce, batch))
        refused += [reply.code for reply in replies if isinstance(reply, Refused)]
        store.clock.now += 1
        await store.announce(update(first, "s", torrent=first - 900))
    assert refused == ["too many new torrents from network"] * 1000
    others = range(100, 1600, 60)
    assert await registered(store, *others) == list(others)
    assert await store.torrents.count() == 300
    assert await check_invariants(store.redis, store.keys) == len(others)


async def test_a_network_with_a_large_share_of_a_full_register_loses_its_own_oldest_torrents(
    make_store: MakeStore,
) -> None:
    """Those of others stay, though they have been empty longer, and one that others register replaces one of it too.
    While all of its own have peers, it registers no more."""
    store = await make_store(max_torrents=40)
    for announce in (honest(n, event) for event in "sx" for n in range(1, 31)):
        await store.announce(announce)
    for n in range(1000, 1050):
        store.clock.now += 1
        for letter in "sx":
            await store.announce(flood(n, letter))
    assert await registered(store, *range(1, 31)) == list(range(1, 31))
    assert await registered(store, *range(1000, 1050)) == list(range(1040, 1050))
    await store.announce(update(31, "s", torrent=31, endpoint=endpoint(31 << 8)))
    assert await registered(store, *range(1, 32), 1040, 1041) == [*range(1, 32), 1041]
    for n in range(1041, 1050):
        await store.announce(flood(n))
    assert await store.refused(flood(1050)) == "too many torrents"
    await store.announce(update(32, "s", torrent=32, endpoint=endpoint(32 << 8)))
    assert await registered(store, *range(1, 33)) == list(range(2, 33)), "the oldest of all, as no other can go"
    await check_invariants(store.redis, store.keys)


async def test_a_flood_whose_peers_stay_makes_room_for_others(make_store: MakeStore) -> None:
    """Its network loses its oldest torrents of one or two peers, and no others; it registers no more itself. The peers
    are removed within seconds, and what they leave is replaced next."""
    store = await make_store(max_torrents=20, new_per_network_hour=40)
    for n in range(20):
        store.clock.now += 1
        await store.announce(flood(n))
    for number in range(100, 102):
        await store.announce(flood(number)._replace(info_hash=info_hash(0)))
    assert await store.refused(flood(30)) == "too many torrents"
    for n in range(900, 905):
        await store.announce(update(n, "s", torrent=n, endpoint=endpoint(n << 8)))
    assert await registered(store, *range(20)) == [0, *range(6, 20)]
    assert await store.refused(flood(1, "u")) == "too many torrents"
    assert await removed_in_rounds(store, 1) == 5
    for n in range(905, 915):
        await store.announce(update(n, "s", torrent=n, endpoint=endpoint(n << 8)))
    assert await registered(store, *range(900, 915)) == list(range(900, 915))
    assert await check_invariants(store.redis, store.keys) == 22 + 15 - 5


async def test_torrents_with_peers_of_many_networks_stay(make_store: MakeStore) -> None:
    """Also one of a network with a large share that an operator registered, or that has more peers."""
    store = await make_store(max_torrents=12)
    for n in range(10):
        await store.announce(update(n, "s", torrent=n, endpoint=endpoint(n << 8)))
    for n in (1000, 1001):
        await store.announce(flood(n))
    await store.torrents.add(info_hash(1000))
    for number in range(1100, 1102):
        await store.announce(flood(number)._replace(info_hash=info_hash(1001)))
    assert await store.refused(update(900, "s", torrent=900)) == "too many torrents"


async def test_rooms_take_the_place_of_no_torrent_in_a_full_register(make_store: MakeStore) -> None:
    """Up to a tenth comes on top of the maximum; more replace each other. A torrent replaces an empty one first."""
    store = await make_store(max_torrents=20)
    for n in range(1, 21):
        store.clock.now += 1
        for event in "sx":
            await store.announce(update(n, event, torrent=n, endpoint=endpoint(n << 8)))
    for n in range(101, 104):
        await store.announce(room(n))
    assert await store.refused(room(104)) == "too many torrents"
    assert await registered(store, *range(1, 21), *range(101, 105)) == [*range(1, 21), 101, 102, 103]
    await store.announce(room(102, "x"))
    await store.announce(room(104))
    assert await registered(store, *range(1, 21), *range(101, 105)) == [*range(1, 21), 101, 103, 104]
    await store.announce(room(103, "x"))
    await store.announce(update(21, "s", torrent=21, endpoint=endpoint(21 << 8)))
    assert await registered(store, *range(1, 22), 101, 103, 104) == [*range(1, 22), 101, 104]
    await store.announce(update(22, "s", torrent=22, endpoint=endpoint(22 << 8)))
    assert await registered(store, *range(1, 23), 101, 104) == [*range(3, 23), 101, 104], "20 that are no rooms"
    assert await check_invariants(store.redis, store.keys) == 4


@pytest.mark.parametrize("new", [flood, honest], ids=["of one network", "of many"])
async def test_the_new_torrents_of_a_call_share_a_sample_of_a_full_register(
    start_server: Callable[..., Server], prefix: str, new: Callable[..., PeerUpdate]
) -> None:
    """One network's replace its own, others those that have been empty longest."""
    server = start_server()
    async with running(Store(server.url, Keys(prefix), SwarmRules(max_torrents=150))) as store:
        for first in range(1000, 1150, 25):
            await store.announce_together(*(new(n, event) for n in range(first, first + 25) for event in "sx"))
        await store.redis.config_resetstat()
        outcomes, totals = await store.announce_together(*map(new, range(2000, 2040)))
        assert [each.outcome for each in outcomes] == ["join"] * 40
        assert totals.forgotten == 40
        stats = await store.redis.info("commandstats")
        assert stats["cmdstat_zrandmember"]["calls"] == 1


@pytest.mark.parametrize("enabled", ["0", "pending"])
async def test_the_torrent_with_the_maximum_empty_time_is_forgotten_first(make_store: MakeStore, enabled: str) -> None:
    """With all its keys. Torrents with peers stay, and those that an operator registered or disabled."""
    store = await make_store(max_torrents=5)
    for torrent in range(1, 6):
        await come_and_go(store, torrent, torrent)
        store.clock.now += 10
    await store.torrents.add(info_hash(1))
    await store.torrents.edit(info_hash(2), {"enabled": enabled})
    await store.announce(update(3, "s", torrent=3))
    await store.announce(update(9, "s", torrent=6))
    assert await registered(store, *range(1, 7)) == [1, 2, 3, 5, 6]
    left = [key async for key in store.redis.scan_iter(f"{store.keys.prefix}*{info_hash(4).hex()}*")]
    assert left == []
    await store.announce(update(9, "s", torrent=7))
    assert await registered(store, *range(1, 8)) == [1, 2, 3, 6, 7]
    assert await store.refused(update(9, "s", torrent=8)) == "too many torrents"
    await sweep(store)
    await check_invariants(store.redis, store.keys)


async def test_announces_of_a_new_torrent_in_one_batch_keep_their_order(make_store: MakeStore) -> None:
    """They wait for its registration, also a stop. Another torrent is forgotten for it."""
    store = await make_store(max_torrents=2)
    await come_and_go(store, 1, 1)
    await store.announce(update(2, "s", torrent=2))
    together = [update(3, "s", torrent=3), update(2, torrent=2), update(3, "x", torrent=3)]
    replies = await asyncio.gather(*map(store.swarms.announce, together))
    assert [reply.outcome for reply in replies if isinstance(reply, Admitted)] == ["join", "update", "leave"]
    assert await registered(store, 1, 2, 3) == [2, 3]
    ranked = await store.redis.zrange(store.keys.index("score"), 0, -1)
    assert sorted(ranked) == sorted(await store.redis.zrange(store.keys.index("seeders"), 0, -1))
    assert await check_invariants(store.redis, store.keys) == 1
    assert await store.maintenance.cleanup() == []


async def test_new_torrents_of_one_batch_do_not_make_room_for_each_other(make_store: MakeStore) -> None:
    """They have no peers yet when they are registered."""
    store = await make_store(max_torrents=2)
    replies = await asyncio.gather(*(store.swarms.announce(flood(n)) for n in range(4)))
    assert [getattr(reply, "code", "joined") for reply in replies] == ["joined"] * 2 + ["too many torrents"] * 2
    assert await registered(store, *range(4)) == [0, 1]


async def test_a_torrent_with_many_places_is_forgotten_in_steps(make_store: MakeStore) -> None:
    """One announce deletes the statistics of at most 25 places."""
    store = await make_store(max_torrents=1)
    await come_and_go(store, 1, 1)
    places = store.keys.torrent_places(info_hash(1))
    await store.redis.set(store.keys.unique(f"torrents.{info_hash(1).hex()}.users"), "60")
    await store.redis.zadd(places, {f"countries.{n}": 1 for n in range(60)})
    await store.announce(update(2, "s", torrent=2))
    assert await store.redis.zcard(places) == 35
    for n in (3, 4):
        await store.announce(update(n, "s", torrent=n))
    assert await registered(store, 1, 2, 3, 4) == [2, 3, 4]
    assert await store.redis.zcard(places) == 0


async def test_a_key_of_the_wrong_type_does_not_stop_others_from_being_forgotten(make_store: MakeStore) -> None:
    """A torrent that cannot be forgotten leaves the list, and the next one is forgotten."""
    store = await make_store(max_torrents=2)
    await come_and_go(store, 1, 1)
    store.clock.now += 1
    await come_and_go(store, 2, 2)
    await store.redis.set(store.keys.torrent_places(info_hash(1)), "a string")
    await store.redis.set(store.keys.unique(f"torrents.{info_hash(1).hex()}.users"), "1")
    assert (await store.announce(update(3, "s", torrent=3))).outcome == "join"
    assert await registered(store, 1, 2, 3) == [1, 3]


@pytest.mark.parametrize("v6", [False, True], ids=["/24", "/48"])
async def test_registrations_of_a_network_are_bounded(make_store: MakeStore, v6: bool) -> None:
    store = await make_store(new_per_address_hour=2, new_per_network_hour=3)

    def new(torrent: int, address: int) -> PeerUpdate:
        if v6:
            return flood(torrent)._replace(endpoint=flood_endpoint(address))
        return update(torrent, "s", torrent=torrent, endpoint=endpoint(address))

    await store.announce(new(1, 1))
    await store.announce(new(2, 1))
    before = await store.dump()
    assert await store.refused(new(3, 1)) == "too many new torrents"
    assert await store.dump() == before
    await store.announce(new(3, 2))
    assert await store.refused(new(4, 3)) == "too many new torrents from network"
    await store.announce(update(4, "s", torrent=4, endpoint=endpoint(1 << 16)))
    network = "2001:0db8:0bad::/48" if v6 else "11.0.0.0/24"
    assert 0 < await store.redis.ttl(f"{store.keys.prefix}registered_by:{network}") <= HOUR


async def test_an_address_may_register_the_torrents_of_a_seedbox(store: Store) -> None:
    assert (store.rules.current.new_per_address_hour, store.rules.current.new_per_network_hour) == (10_000, 50_000)


@pytest.mark.parametrize(
    ("others", "kept"),
    [((), HOUR), ((endpoint(1, port=7000),), HOUR), ((endpoint(2),), WEEK), ((endpoint(1, v6=True),), WEEK)],
    ids=["one peer", "two peers of one address", "two addresses", "both families"],
)
async def test_a_torrent_joined_from_one_address_only_is_kept_for_an_hour(
    store: Store, others: tuple[Endpoint, ...], kept: int
) -> None:
    peers = [update(1, "s"), *(update(2 + n, "s", endpoint=where) for n, where in enumerate(others))]
    for peer in peers:
        await store.announce(peer)
    for peer in peers:
        await store.announce(peer._replace(event=b"x"))
    await store.pass_time(kept - 1)
    assert (await sweep(store)).forgotten == 0
    await store.pass_time(1)
    assert (await sweep(store)).forgotten == 1


@pytest.mark.parametrize(
    ("peers", "kept"),
    [
        ((over_socket(1),), 600),
        ((over_socket(1), over_socket(2)), 600),
        ((over_socket(1), update(1)), HOUR),
        ((over_socket(1), update(2)), WEEK),
        ((update(2), over_socket(2)), HOUR),
    ],
    ids=["a browser", "browsers", "a hybrid client", "a browser and a client", "a client over WebSockets too"],
)
async def test_a_torrent_that_only_websockets_joined_is_kept_for_ten_minutes(
    store: Store, peers: tuple[PeerUpdate, ...], kept: int
) -> None:
    for event in (b"s", b"x"):
        for peer in peers:
            await store.announce(peer._replace(event=event))
    await store.pass_time(kept - 1)
    assert (await sweep(store)).forgotten == 0
    await store.pass_time(1)
    assert (await sweep(store)).forgotten == 1


async def test_a_64_prefix_counts_as_one_address(store: Store) -> None:
    for event in "sx":
        for n in (1, 2):
            await store.announce(update(n, event, endpoint=endpoint(n, v6=True)))
    await store.pass_time(HOUR)
    assert (await sweep(store)).forgotten == 1


async def test_a_new_address_of_the_only_peer_counts_as_a_second_address(store: Store) -> None:
    """Its earlier addresses are not stored."""
    await store.announce(update(1, "s", key=b"k" * 8))
    await store.announce(update(1, key=b"k" * 8, endpoint=endpoint(2)))
    assert "joiners" not in await store.torrent(info_hash(1))


async def test_a_torrent_of_an_older_store_is_kept_as_before_and_listed_by_the_sweep(store: Store) -> None:
    await come_and_go(store, 1, 1)
    await store.redis.hdel(store.keys.torrent(info_hash(1)), "joiners")
    await store.redis.delete(f"{store.keys.prefix}i:empty")
    await sweep(store)
    await check_invariants(store.redis, store.keys)
    await store.pass_time(WEEK - 1)
    assert (await sweep(store)).forgotten == 0
    await store.pass_time(1)
    assert (await sweep(store)).forgotten == 1


async def test_the_sweep_removes_torrents_with_peers_from_the_list(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.redis.zadd(f"{store.keys.prefix}i:empty", {"1": 5})
    await sweep(store)
    await check_invariants(store.redis, store.keys)


@pytest.mark.parametrize("enabled", ["0", "pending"])
async def test_a_disabled_or_pending_torrent_is_not_forgotten(store: Store, enabled: str) -> None:
    """Otherwise it would register itself again, enabled."""
    await come_and_go(store, 1, 1)
    await store.torrents.edit(info_hash(1), {"enabled": enabled})
    await store.pass_time(WEEK)
    assert (await sweep(store)).forgotten == 0
    await store.torrents.edit(info_hash(1), {"enabled": "1"})
    assert (await sweep(store)).forgotten == 1


async def test_the_totals_of_a_batch_name_forgotten_and_refused_torrents(make_store: MakeStore) -> None:
    store = await make_store(max_torrents=1, new_per_address_hour=1)
    await come_and_go(store, 1, 1)
    found = []
    for announce in (update(2, "s", torrent=2), update(3, "s", torrent=3), update(2, "s", torrent=3)):
        (outcome,), totals = await store.announce_together(announce)
        found.append((getattr(outcome, "code", ""), totals.forgotten, totals.refused))
    assert found == [("", 1, 0), ("too many torrents", 0, 1), ("too many new torrents", 0, 1)]
