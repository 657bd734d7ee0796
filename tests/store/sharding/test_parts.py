"""Scores, unique users, the DHT's torrents and maintenance on four shards."""

import pytest

from tests.store.harness import START, Store, endpoint, update
from tests.store.sharding.harness import SHARDS, hash_in
from tracker.bittorrent import InfoHash
from tracker.core.scoring import STRONG, next_score
from tracker.store.dht.torrents import ThinSwarm
from tracker.store.schema.keys import MAX_SHARDS
from tracker.store.sharding import shards
from tracker.store.stats.metric_names import place_names
from tracker.store.stats.slices import month_of
from tracker.store.stats.unique_users import UniqueRules, UniqueUserEvent, UniqueUsers
from tracker.store.swarms.codec import OWN_FAMILY
from tracker.store.swarms.reaping import PeerCounts, read_peer_counts
from tracker.store.torrents.scores import Leased, Scored
from tracker.workers.reaper import Reaper

HASHES = [hash_in(number % SHARDS, number) for number in range(12)]
LONDON, PARIS = place_names("GB", "London", "SW1A"), place_names("FR", "Paris", "75001")


@pytest.fixture
async def registered(store: Store) -> Store:
    """Twelve torrents, three in each shard."""
    await store.torrents.add_many([(info_hash, {"private": "0"}) for info_hash in HASHES])
    return store


async def take_all(store: Store) -> set[InfoHash]:
    """The torrents that are taken until every shard was asked twice."""
    taken = [each for _ in range(2 * SHARDS) for each in await store.scores.take(2)]
    await store.scores.give_back(taken)
    return {each.info_hash for each in taken}


async def test_torrents_of_all_shards_are_scored(registered: Store) -> None:
    """B1, B3: each once in an interval."""
    store = registered
    store.clock.now += 3601
    assert (await store.scores.lag()).waiting == 12
    assert await take_all(store) == set(HASHES)
    scored = 0
    while taken := await store.scores.take(5):
        assert len({each.info_hash[0] % SHARDS for each in taken}) == 1
        results = [Scored(each, next_score(each.score, STRONG, 4.0)) for each in taken]
        scored += (await store.scores.finish(results)).counted
    assert scored == 12
    lag = await store.scores.lag()
    assert (lag.count, lag.waiting, lag.late) == (12, 0, 0)
    assert len(await store.top_scores(5, 10)) == 2


async def test_the_place_of_a_torrent_is_its_place_among_all_shards(registered: Store) -> None:
    store = registered
    for number, info_hash in enumerate(HASHES):
        torrent = await store.torrents.get(info_hash)
        assert torrent is not None
        index = store.shard(info_hash).keys.index("score")
        await store.redis.zadd(index, {torrent.torrent_id: 1 + number / 10})
    ranked = await store.top_scores(12)
    places = [await store.scores.place(torrent_id) for torrent_id, _ in ranked]
    assert [(place.rank, place.of) for place in places if place] == [(rank, 12) for rank in range(12)]
    assert await store.scores.place("1") is None


async def test_months_with_unique_users_are_those_of_the_main_prefix_and_of_any_shard(registered: Store) -> None:
    """Users without a location are in shards only, those of removed torrents under the main prefix only."""
    store, months = registered, ["2026-11", "2026-10", "2026-09"]
    assert await store.unique_users.with_users(months) == []
    await store.redis.zadd(store.shards[2].keys.unique_index("torrents", "2026-09"), {HASHES[2].hex(): 1})
    assert await store.unique_users.with_users(months) == ["2026-09"]
    await store.redis.zadd(store.keys.unique_index("countries", "2026-11"), {"Norway": 1})
    assert await store.unique_users.with_users(months) == ["2026-11", "2026-09"]


async def test_many_ids_are_looked_for_in_parts(registered: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also ids that do not name their shard, or that are in another one; an unknown one is in the shard it names."""
    torrents = await registered.torrents.get_all(HASHES)
    ids = {each.torrent_id: registered.shards.of(each.info_hash) for each in torrents}
    for number, info_hash in ((MAX_SHARDS - 1, HASHES[1]), (MAX_SHARDS, HASHES[2])):  # of no shard, and of shard 0
        shard = registered.shards.of(info_hash)
        await registered.redis.set(shard.keys.torrent_id(str(number * 1000)), info_hash.hex())
        ids[str(number * 1000)] = shard
    unknown = str(MAX_SHARDS * 10**6 + 3)
    for ids_a_call, ids_a_round in ((1000, 10_000), (2, 12), (1, 1)):
        monkeypatch.setattr(shards, "IDS_A_CALL", ids_a_call)
        monkeypatch.setattr(shards, "IDS_A_ROUND", ids_a_round)
        found = await registered.shards.find_torrents([*ids, unknown, "x"])
        assert {torrent_id: shard for torrent_id, (shard, _) in found.items()} == ids
        places = await registered.shards.of_torrents([*ids, unknown, "x"])
        assert places == [*ids.values(), registered.shards[3], None]
    assert await registered.shards.find_torrents([]) == {}


async def test_a_torrent_is_taken_by_its_id(registered: Store) -> None:
    torrent = await registered.torrents.get(HASHES[6])
    assert torrent is not None
    taken = await registered.scores.take_one(torrent.torrent_id)
    assert taken is not None and taken.info_hash == HASHES[6]
    with pytest.raises(Leased):
        await registered.scores.take_one(torrent.torrent_id)
    assert await registered.scores.take_one(str(MAX_SHARDS * 99)) is None


async def test_a_walk_by_seeders_visits_all_shards(registered: Store) -> None:
    found, cursor = set[str](), "0"
    while True:
        cursor, page = await registered.scores.page_by_seeders(cursor, 2)
        found |= {torrent_id for torrent_id, _ in page}
        if cursor == "0":
            break
    assert len(found) == 12


@pytest.mark.parametrize("mode", ["exact", "hyperloglog"])
async def test_unique_users_count_once_for_torrents_and_places(registered: Store, mode: str) -> None:
    """S9, B8, B9: torrents in their shards, places of the world under the main prefix. A repeated batch counts
    nothing."""
    store, month = registered, month_of(START)
    events = [
        UniqueUserEvent(info_hash, f"192.0.2.{user}", LONDON if user < 3 else PARIS)
        for info_hash in (HASHES[0], HASHES[1], HASHES[5])
        for user in range(5)
    ]
    unique_users = store.unique_users if mode == "exact" else with_estimates(store)
    assert await unique_users.count(events, START) == 15
    assert await unique_users.count(events, START) == 0
    assert await unique_users.users_of(f"torrents.{HASHES[1].hex()}.users", month) == 5
    assert await unique_users.users_of("countries.GB.users") == 3
    assert [tuple(each) for each in await unique_users.top("countries")] == [("GB", 3), ("FR", 2)]
    assert {tuple(each) for each in await unique_users.top("torrents", month)} == {
        (info_hash.hex(), 5) for info_hash in (HASHES[0], HASHES[1], HASHES[5])
    }
    places = await unique_users.places(HASHES[5], 1)
    assert [(scope, entry.users) for scope, entry in places] == [("postcodes", 3)]
    row = await store.torrent(HASHES[0])
    assert row["new"] == "5"
    for shard in store.shards:
        assert not [key async for key in store.redis.scan_iter(f"{shard.keys.prefix}c*")]
    assert not [key async for key in store.redis.scan_iter(f"{store.keys.prefix}*torrents.*")]
    removed = [number async for number in unique_users.flush()]
    assert removed[-1] > 50
    assert await unique_users.top("torrents") == await unique_users.top("countries") == []


def with_estimates(store: Store) -> UniqueUsers:
    rules = UniqueRules(mode="hyperloglog")
    return UniqueUsers(store.shards, rules)


async def test_torrents_of_all_shards_are_looked_up_in_the_dht(registered: Store) -> None:
    store, now = registered, START
    for number, info_hash in enumerate(HASHES):
        await store.announce(update(number, "s", info_hash=info_hash, endpoint=endpoint(number)))
    rank, found = 0, list[ThinSwarm]()
    while True:
        read, page = await store.dht_torrents.thin_page(rank, now, all_torrents=False)
        if not read:
            break
        rank, found = rank + read, found + page
    assert {each.info_hash for each in found} == set(HASHES)
    claimed = [await store.dht_torrents.claim(HASHES[1], now, all_torrents=False) for _ in range(2)]
    assert claimed == [True, False]
    for info_hash in HASHES[:5]:
        assert await store.dht_torrents.save_result(info_hash, (1, 2), now, all_torrents=False)
    assert await store.dht_torrents.looked_up_count() == len(await store.dht_torrents.last_lookups(0, 9)) == 5
    assert await store.dht_torrents.peers_found(HASHES[3:7], now) == {HASHES[3]: 2, HASHES[4]: 2}
    counted = await store.dht_torrents.participation(all_torrents=False)
    assert (counted.registered, counted.looked_at, counted.part) == (12, 12, 12)
    public, total = await store.dht_torrents.some_public(20)
    assert set(public) == set(HASHES) and total == 12
    swarm = await store.dht_torrents.swarm(HASHES[9], 4, all_torrents=False)
    assert swarm is not None and len(swarm.leechers) == 1
    assert await store.dht_torrents.some_peers(4, 2, all_torrents=False)
    await store.torrents.edit(HASHES[2], {"private": "1"})
    assert await store.dht_torrents.no_longer_part(HASHES[:4], all_torrents=False) == [HASHES[2]]


async def test_maintenance_covers_the_main_prefix_and_all_shards(registered: Store) -> None:
    store = registered
    stale = [f"{shard.keys.prefix}history:77" for shard in store.shards]
    for key in stale:
        await store.redis.rpush(key, "1 2 3 4 5")
    await store.redis.set(f"{store.keys.prefix}unknown", 1)
    progress: list[int] = []
    found = {each.kind: each for each in await store.maintenance.cleanup(False, progress.append)}
    assert not await store.redis.exists(*stale)
    assert sum(each.changed for each in found.values()) >= SHARDS
    assert await store.redis.exists(f"{store.keys.prefix}unknown")
    await store.redis.delete(*(shard.keys.index("name") for shard in store.shards))
    await store.redis.set(store.shards[1].keys.deny(hash_in(1, 99)), "no")
    kinds = {each.kind: each.changed for each in await store.maintenance.reindex()}
    assert kinds == {"denials that were not listed": 1}
    for shard in store.shards:
        await store.reapings[shard].heartbeat()
        await store.redis.set(shard.keys.stat("credit_cut"), 5)
    assert (await store.counters.totals())["credit_cut"] == 5 * SHARDS
    wiped = [number async for number in store.maintenance.wipe_statistics(uniques=True)]
    assert wiped[-1] >= SHARDS
    assert (await store.counters.totals())["credit_cut"] == 0


async def test_torrents_of_a_place_are_found_in_all_shards(registered: Store) -> None:
    events = [
        UniqueUserEvent(info_hash, f"192.0.2.{user}", LONDON)
        for number, info_hash in enumerate(HASHES[:5], 1)
        for user in range(number)
    ]
    await registered.unique_users.count(events, START)
    found = await registered.unique_users.torrents_at("countries", "GB")
    assert found == [(info_hash.hex(), number) for number, info_hash in reversed(list(enumerate(HASHES[:5], 1)))]


async def test_peers_by_family_and_protocol_are_the_sums_of_all_shards(registered: Store) -> None:
    """None until each shard was swept."""
    for number, info_hash in enumerate(HASHES[:SHARDS]):
        form = OWN_FAMILY if number == 0 else 0
        announce = update(number, "s", form=form, endpoint=endpoint(number, v6=number == 1))
        await registered.announce(announce._replace(info_hash=info_hash))
    for shard in registered.shards:
        assert await read_peer_counts(registered.shards) is None
        reaper = Reaper(registered, shard, lambda: 60, registered.clock)
        await reaper.sweep_once(hurry=True)
    assert await read_peer_counts(registered.shards) == PeerCounts(
        leechers=SHARDS, leechers_v4=SHARDS - 1, leechers_v6=1, leechers_udp=1
    )
