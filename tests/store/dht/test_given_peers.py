"""D18: announces of thin public torrents get peers that were found in the DHT."""

from collections.abc import Callable
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import START, Store, dht_peers_key, endpoint, info_hash, update
from tracker.bittorrent import Endpoint
from tracker.store.dht.torrents import GIVE_SECONDS
from tracker.store.swarms.codec import OWN_FAMILY, WITH_IDS

BELOW = 5


@pytest.fixture
async def giving(make_store: MakeStore) -> Store:
    """Announces that find fewer than 5 peers get some of the DHT. Torrent 1 is public, and has two leechers."""
    store = await make_store(give_below=BELOW)
    await prepare(store)
    return store


async def prepare(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"private": "0"})
    for number in (1, 2):
        await store.announce(update(number, "s"))


async def found(
    store: Store, count: int = 3, *, v6: bool = False, at: int = START, all_torrents: bool = False
) -> list[Endpoint]:
    peers = [endpoint(100 + number, v6=v6) for number in range(count)]
    assert await store.dht_torrents.give(info_hash(1), peers, int(store.clock()), at, all_torrents=all_torrents)
    return peers


async def peers_of(store: Store, number: int = 1, event: str = "u", **changes: Any) -> list[Endpoint]:
    reply = await store.announce(update(number, event, **changes))
    return split(reply.peers, 6) + split(reply.peers6, 18)


def split(packed: bytes, length: int) -> list[Endpoint]:
    return [Endpoint(packed[at : at + length]) for at in range(0, len(packed), length)]


@pytest.mark.parametrize("event", ["u", "s", "c"])
@pytest.mark.parametrize("bytes_left", [0, 1000])
async def test_an_announce_that_finds_few_peers_gets_those_of_the_dht(
    giving: Store, event: str, bytes_left: int
) -> None:
    """Regular announces and others, of seeders and leechers; those of the swarm come first."""
    await giving.announce(update(1, "s", bytes_left=bytes_left))
    given = await found(giving)
    assert await peers_of(giving, 1, event, bytes_left=bytes_left) == [endpoint(2), *given]


async def test_nothing_is_handed_out_by_default(store: Store) -> None:
    await prepare(store)
    await found(store)
    assert await peers_of(store) == [endpoint(2)]
    assert await peers_of(store, 1, "s") == [endpoint(2)]


@pytest.mark.parametrize("event", ["u", "s"])
async def test_an_announce_that_finds_enough_peers_gets_none_of_the_dht(giving: Store, event: str) -> None:
    given = await found(giving)
    for number in range(3, BELOW + 1):
        await giving.announce(update(number, "s"))
    assert set(await peers_of(giving, 1, event)) == {*map(endpoint, range(2, BELOW + 1)), *given}
    await giving.announce(update(BELOW + 1, "s"))
    assert set(await peers_of(giving, 1, event)) == {endpoint(number) for number in range(2, BELOW + 2)}


async def test_no_more_than_20_are_handed_out_and_no_more_than_are_wanted(giving: Store) -> None:
    given = await found(giving, 30)
    assert await peers_of(giving) == [endpoint(2), *given[:20]]
    assert await peers_of(giving, peers_wanted=4) == [endpoint(2), *given[:3]]
    assert await peers_of(giving, peers_wanted=1) == [endpoint(2)]
    assert await peers_of(giving, peers_wanted=0) == []
    assert await peers_of(giving, 1, "x") == []


async def test_they_are_handed_out_for_30_minutes_after_the_lookup(giving: Store) -> None:
    """A check that takes long does not make them any younger."""
    giving.clock.now += 100
    given = await found(giving)
    assert 0 < await giving.redis.ttl(dht_peers_key(giving.keys, info_hash(1), 4)) <= GIVE_SECONDS - 100
    giving.clock.now = START + GIVE_SECONDS - 1
    assert await peers_of(giving) == [endpoint(2), *given]
    giving.clock.now = START + GIVE_SECONDS
    assert await peers_of(giving) == [endpoint(2)]
    assert not await giving.dht_torrents.give(info_hash(1), given, int(giving.clock()), START, all_torrents=False)


async def test_they_are_of_the_family_that_the_announce_came_over(giving: Store) -> None:
    given4, given6 = await found(giving, 2), await found(giving, 2, v6=True, at=START - 60)
    others = [endpoint(1), endpoint(2)]

    async def peers(event: str = "u", *, v6: bool, form: int = 0) -> set[Endpoint]:
        announced = endpoint(9, v6=v6)
        return set(await peers_of(giving, 9, event, endpoint=announced, form=form, key=b"8 bytes!"))

    for event in "su":
        assert await peers(event, v6=False) == {*others, *given4}
        assert await peers(event, v6=False, form=OWN_FAMILY) == {*others, *given4}
        assert await peers(event, v6=True) == {*others, *given6}
        assert await peers(event, v6=True, form=OWN_FAMILY) == set(given6)
    giving.clock.now = START + GIVE_SECONDS - 60 + 1
    await giving.redis.delete(dht_peers_key(giving.keys, info_hash(1), 6))  # the server's clock does not move
    assert await peers(v6=False) == {*others, *given4}
    assert await peers(v6=True) == set(others)


async def test_the_caller_is_not_handed_out_at_any_port_and_no_peer_twice(giving: Store) -> None:
    own, other_port = endpoint(1), endpoint(1, port=7000)
    peers = [own, other_port, endpoint(2), endpoint(100)]
    await giving.dht_torrents.give(info_hash(1), peers, START, START, all_torrents=False)
    assert await peers_of(giving) == [endpoint(2), endpoint(100)]


async def test_bytes_of_two_listed_peers_together_are_no_listed_peer(giving: Store) -> None:
    peers = [Endpoint(endpoint(one)[3:] + endpoint(other)[:3]) for one, other in ((2, 3), (3, 2))]
    await giving.announce(update(3, "s"))
    await giving.dht_torrents.give(info_hash(1), peers, START, START, all_torrents=False)
    assert set(await peers_of(giving)) == {endpoint(2), endpoint(3), *peers}


async def test_an_announce_that_wants_peer_ids_gets_none(giving: Store) -> None:
    """The ids of these peers are unknown."""
    await found(giving)
    reply = await giving.announce(update(1, form=WITH_IDS))
    assert (reply.peers, len(reply.peer_ids)) == (endpoint(2), 20)


async def test_counts_scrapes_and_rankings_do_not_know_them(giving: Store, make_store: MakeStore) -> None:
    async def outcome(store: Store, event: str, bytes_left: int) -> tuple[Any, ...]:
        reply = await store.announce(update(1, event, bytes_left=bytes_left))
        files = await store.swarms.scrape([info_hash(1)])
        rankings = [
            await store.redis.zrange(store.keys.index(name), 0, -1, withscores=True)
            for name in ("seeders", "leechers", "snatches")
        ]
        return reply[:3], files, rankings

    events = [("u", 1000), ("c", 0), ("u", 0), ("x", 0)]
    await found(giving, 20)
    with_dht = [await outcome(giving, *each) for each in events]
    assert await check_invariants(giving.redis, giving.keys) > 0
    async for key in giving.redis.scan_iter(f"{giving.keys.prefix}*", 1000):
        await giving.redis.delete(key)
    without = await make_store()
    await prepare(without)
    assert with_dht == [await outcome(without, *each) for each in events]


@pytest.mark.parametrize(
    ("private", "give_all", "handed_out"),
    [("1", False, False), ("1", True, False), (None, False, False), (None, True, True), ("0", True, True)],
)
async def test_a_torrent_that_became_private_gets_none_from_the_next_announce_on(
    make_store: MakeStore, private: str | None, *, give_all: bool, handed_out: bool
) -> None:
    """D15: unknown counts as private, unless all torrents take part."""
    store = await make_store(give_below=BELOW, give_all=give_all)
    await prepare(store)
    given = await found(store)
    assert await peers_of(store) == [endpoint(2), *given]
    if private is None:
        await store.redis.hdel(store.keys.torrent(info_hash(1)), "private")
    else:
        await store.torrents.edit(info_hash(1), {"private": private})
    for event in "us":
        assert await peers_of(store, 1, event) == [endpoint(2), *(given if handed_out else [])]


async def test_nothing_is_stored_for_torrents_that_take_no_part(giving: Store) -> None:
    await giving.torrents.add(info_hash(2), {"private": "1"})
    await giving.torrents.add(info_hash(3))
    await giving.torrents.add(info_hash(4), {"private": "0"})
    await giving.torrents.deny(info_hash(4), "")
    for number in (2, 3, 4, 5):
        assert not await giving.dht_torrents.give(info_hash(number), [endpoint(1)], START, START, all_torrents=False)
        assert "dht" not in await giving.torrent(info_hash(number))
    assert await giving.dht_torrents.give(info_hash(3), [endpoint(1)], START, START, all_torrents=True)
    assert [key async for key in giving.redis.scan_iter(f"{giving.keys.prefix}dht:*")] == [
        dht_peers_key(giving.keys, info_hash(3), 4).encode()
    ]


Damage = Callable[[Store], Any]
DAMAGES: dict[str, Damage] = {
    "no time": lambda store: store.redis.hset(store.keys.torrent(info_hash(1)), "dht", "soon"),
    "no peers": lambda store: store.redis.delete(dht_peers_key(store.keys, info_hash(1), 4)),
    "too short": lambda store: store.redis.set(dht_peers_key(store.keys, info_hash(1), 4), "short"),
    "another type": lambda store: replace_by_list(store, dht_peers_key(store.keys, info_hash(1), 4)),
}


async def replace_by_list(store: Store, key: str) -> None:
    await store.redis.delete(key)
    await store.redis.rpush(key, "foreign")


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_damaged_keys_change_no_reply(giving: Store, damage: Damage) -> None:
    await found(giving)
    await damage(giving)
    for event in "us":
        assert await peers_of(giving, 1, event) == [endpoint(2)]


async def test_peers_handed_out_are_counted(giving: Store) -> None:
    await found(giving, 3)
    _, totals = await giving.announce_together(update(1), update(2), update(3, "s"))
    assert (totals.given, totals.forgotten, totals.refused) == (9, 0, 0)
    _, totals = await giving.announce_together(update(1, peers_wanted=1))
    assert totals.given == 0


async def test_a_deleted_torrent_leaves_none(giving: Store) -> None:
    await found(giving)
    await found(giving, v6=True)
    for number in (1, 2):
        await giving.announce(update(number, "x"))
    await giving.torrents.remove(info_hash(1))
    assert not [key async for key in giving.redis.scan_iter(f"{giving.keys.prefix}dht:*")]
