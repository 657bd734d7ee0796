"""D15, D19: which torrents take part in the DHT, what is answered about them, and which are looked up."""

import pytest

from tests.store.harness import START, Store, endpoint, info_hash, update
from tracker.store.dht import torrents
from tracker.store.dht.torrents import LOOK_UP_AGAIN_SECONDS, PAGE, RESULT_SECONDS, Participation, StoredSwarm


async def swarm(store: Store, torrent: int = 1, family: int = 4, *, all_torrents: bool = False) -> StoredSwarm | None:
    return await store.dht_torrents.swarm(info_hash(torrent), family, all_torrents=all_torrents)


async def thin(store: Store, *, all_torrents: bool = False) -> list[tuple[int, int]]:
    """Seeders and number of the torrents that are due."""
    _, found = await store.dht_torrents.thin_page(0, int(store.clock()), all_torrents=all_torrents)
    numbers = {info_hash(number): number for number in range(1, 10)}
    return sorted((each.seeders, numbers[each.info_hash]) for each in found)


@pytest.mark.parametrize(
    ("fields", "public", "every"),
    [
        ({"private": "0"}, True, True),
        ({}, False, True),
        ({"private": "1"}, False, False),
        ({"private": "0", "enabled": "0"}, False, False),
        ({"private": "0", "enabled": "pending"}, False, False),
    ],
)
async def test_a_torrent_takes_part_by_its_fields(
    store: Store, fields: dict[str, str], public: bool, every: bool
) -> None:
    await store.torrents.add(info_hash(1), fields)
    for all_torrents, part in ((False, public), (True, every)):
        assert (await swarm(store, all_torrents=all_torrents) is not None) == part
        assert (len(await thin(store, all_torrents=all_torrents)) == 1) == part
        saved = await store.dht_torrents.save_result(info_hash(1), (1, 2), START, all_torrents=all_torrents)
        assert saved == part
        await store.redis.delete(store.keys.dht_lookups())


async def test_denied_and_unregistered_torrents_take_no_part(store: Store) -> None:
    assert await swarm(store) is None
    assert await swarm(store, all_torrents=True) == ((), ())
    await store.torrents.add(info_hash(1), {"private": "0"})
    await store.torrents.deny(info_hash(1), "no")
    assert await swarm(store) is None and await swarm(store, all_torrents=True) is None
    assert not await thin(store)


async def test_of_any_hash_the_peers_of_public_torrents_only(store: Store) -> None:
    """Of one that registered itself, or is unknown, what nodes announce is kept, and no peer of the store is shown."""
    for number, fields in ((1, {"private": "0"}), (2, {}), (3, {"private": "1"}), (5, {"private": "0"})):
        await store.torrents.add(info_hash(number), fields)
        await store.announce(update(number, "s", number))
    await store.torrents.deny(info_hash(5), "no")
    for family in (4, 6):
        found = [
            await store.dht_torrents.swarm(info_hash(number), family, all_torrents=False, any_hash=True)
            for number in range(1, 6)
        ]
        shown = (endpoint(1),) if family == 4 else ()
        assert found == [((), shown), ((), ()), None, ((), ()), None]


async def test_the_peers_of_a_swarm_by_family(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"private": "0"})
    for number in range(1, 7):
        at = endpoint(number, v6=number > 3)
        await store.announce(update(number, "s", endpoint=at, bytes_left=number % 3))
    assert await swarm(store) == ((endpoint(3),), (endpoint(1), endpoint(2)))
    six = await swarm(store, family=6)
    assert six is not None and set(six.leechers) == {endpoint(4, v6=True), endpoint(5, v6=True)}
    await store.redis.delete(f"{store.keys.prefix}swarm:{info_hash(1).hex()}:s4")
    await store.redis.rpush(f"{store.keys.prefix}swarm:{info_hash(1).hex()}:s4", "foreign")
    assert await swarm(store) == ((), (endpoint(1), endpoint(2)))


async def test_peers_that_are_being_removed_are_not_returned(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"private": "0"})
    await store.announce(update(1, "s"))
    await store.deny_list.add(b"-XX")
    assert await swarm(store) == ((), ())
    await store.reaping.remove(["client:2d5858"])
    assert await swarm(store) == ((), (endpoint(1),))


async def test_a_torrent_made_private_takes_no_part(store: Store) -> None:
    for number in (1, 2):
        await store.torrents.add(info_hash(number), {"private": "0"})
    await store.torrents.edit(info_hash(1), {"private": "1"})
    hashes = [info_hash(1), info_hash(2)]
    assert await store.dht_torrents.no_longer_part(hashes, all_torrents=False) == [info_hash(1)]


async def test_a_torrent_is_looked_up_once_in_six_hours(store: Store) -> None:
    for number in (1, 2):
        await store.torrents.add(info_hash(number), {"private": "0"})
    await store.announce(update(1, "s", bytes_left=0))
    assert await thin(store) == [(0, 2), (1, 1)]
    assert await store.dht_torrents.save_result(info_hash(2), None, int(store.clock()), all_torrents=False)
    assert await thin(store) == [(1, 1)]
    store.clock.now += LOOK_UP_AGAIN_SECONDS + 1
    assert len(await thin(store)) == 2


async def test_results_are_kept_in_the_torrent(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"private": "0"})
    hashes = [info_hash(1), info_hash(2)]
    assert await store.dht_torrents.peers_found(hashes, START) == {}
    await store.dht_torrents.save_result(info_hash(1), (3, 8), START, all_torrents=False)
    row = await store.torrent(info_hash(1))
    assert (row["dht_seeds"], row["dht_peers"], row["dht_at"]) == ("3", "8", str(START))
    assert await store.dht_torrents.peers_found(hashes, START) == {info_hash(1): 8}
    assert await store.dht_torrents.peers_found(hashes, START + RESULT_SECONDS + 1) == {}
    assert await store.dht_torrents.looked_up_count() == 1
    await store.torrents.remove(info_hash(1))
    assert await store.dht_torrents.looked_up_count() == 0
    assert not await store.dht_torrents.save_result(info_hash(1), (1, 1), START, all_torrents=True)
    assert not await store.redis.exists(store.keys.torrent(info_hash(1)))


async def test_torrents_that_take_part_are_counted(store: Store) -> None:
    assert await store.dht_torrents.participation(all_torrents=False) == Participation(0, 0, 0)
    for number, fields in enumerate(({"private": "0"}, {}, {}, {"private": "1"}), 1):
        await store.torrents.add(info_hash(number), fields)
    await store.torrents.deny(info_hash(3), "no")
    await store.dht_torrents.save_result(info_hash(1), (1, 1), START, all_torrents=False)
    assert await store.dht_torrents.participation(all_torrents=False) == Participation(4, 4, 1, unknown=1)
    assert await store.dht_torrents.participation(all_torrents=True) == Participation(4, 4, 2)


@pytest.mark.parametrize(("per_page", "looked_at"), [(4, 61), (3, 60), (2, 40)])
async def test_of_a_large_register_a_part_is_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch, per_page: int, looked_at: int
) -> None:
    """Evenly spread over it: here the first half takes part."""
    monkeypatch.setattr(torrents, "PAGE", per_page)
    for number in range(1, 62):
        await store.torrents.add(info_hash(number), {"private": "0"} if number <= 31 else {})
    counted = await store.dht_torrents.participation(all_torrents=False)
    assert (counted.registered, counted.looked_at) == (61, looked_at)
    assert counted.estimate == pytest.approx(31, abs=2)
    assert counted.is_exact == (looked_at == 61)


async def test_the_last_lookups_come_first(store: Store) -> None:
    for number in (1, 2, 3):
        await store.torrents.add(info_hash(number), {"private": "0"})
        await store.dht_torrents.save_result(info_hash(number), None, START + number, all_torrents=False)
    assert await store.dht_torrents.last_lookups(0, 2) == [("3", START + 3), ("2", START + 2)]
    assert await store.dht_torrents.last_lookups(2, 2) == [("1", START + 1)]


async def test_some_public_torrents_and_how_many_there_are(store: Store) -> None:
    """D9, D15: without reading more pages than allowed."""
    assert await store.dht_torrents.some_public(20) == ([], 0)
    public = {info_hash(number) for number in range(1, 1000, 2)}
    for number in range(1, 1001):
        await store.torrents.add(info_hash(number), {"private": "0"} if number % 2 else {})
    found, total = await store.dht_torrents.some_public(20)
    assert len(set(found)) == 20 and public.issuperset(found) and total == 500
    found, total = await store.dht_torrents.some_public(1000, max_pages=2)
    assert public.issuperset(found) and total == pytest.approx(500, rel=0.05)
    assert len(set(found)) == pytest.approx(2 * PAGE / 2, rel=0.05), "two pages, half of them public"
