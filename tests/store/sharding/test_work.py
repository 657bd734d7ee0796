"""Projects of kind seeding on four shards: the project is under the main prefix, its torrents are in all shards."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.store.harness import ALICE, BOB, Store, endpoint, running, update
from tests.store.sharding.harness import SHARDS, hash_in
from tests.store.work.harness import add, check_work, claimed, project, refusal
from tracker.bittorrent import InfoHash
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.store.work.policy import Change
from tracker.workers.work import WorkPolicy, WorkVerification, save_sizes

HASHES = [hash_in(number % SHARDS, number) for number in range(12)]
HOUR = 3600


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    """Twelve torrents, three in each shard, and a project that wants all."""
    rules = SwarmRules(accounts="required", peer_memory=HOUR, max_gap=7200)
    async with running(Store(redis_url, Keys(prefix), rules, shards=SHARDS)) as store:
        await store.pass_time(0)
        await store.users.add("7", ALICE)
        await store.users.add("8", BOB)
        for number, info_hash in enumerate(HASHES):
            await store.torrents.add(info_hash, {"size": str(1000 * (number + 1))})
        yield store


async def seeding(store: Store, *hashes: InfoHash, **fields: Any) -> None:
    await project(store, kind="seeding", keep_done_days=30, **{"verify": "announce", **fields})
    await add(store, *(info_hash.hex() for info_hash in hashes))


async def check_claims(store: Store) -> None:
    await WorkVerification(store).handle()


async def verify(store: Store, seconds: int) -> None:
    """The job runs every minute."""
    for _ in range(seconds // 60):
        await store.pass_time(60)
        await check_claims(store)


async def test_torrents_of_all_shards_are_claimed_seeded_and_done(store: Store) -> None:
    """W1, W23."""
    await seeding(store, *HASHES, seed_hours=1, start_budget=13, budget=20)
    claims = [await claimed(store, "7") for _ in HASHES]
    assert {claim.item for claim in claims} == {info_hash.hex() for info_hash in HASHES}
    assert (await refusal(store, "7")).reason == "empty"
    rows = [await store.torrent(info_hash) for info_hash in HASHES]
    assert {row["user_downloaded"] for row in rows} == {"0"}  # counted from now on
    for info_hash in HASHES[:6]:
        await store.announce(update(1, "s", info_hash=info_hash, passkey=ALICE, bytes_left=0))
    for _ in range(3):
        await verify(store, 1800)
        for info_hash in HASHES[:6]:
            await store.announce(update(1, info_hash=info_hash, passkey=ALICE, bytes_left=0))
    await verify(store, 120)
    left = {claim.item for claim in await store.work.claims.of_claimant("proj", "7")}
    assert left == {info_hash.hex() for info_hash in HASHES[6:]}
    await check_work(store)


async def test_what_cannot_be_seeded_is_passed_over_in_every_shard(store: Store) -> None:
    """Also where a claim has to look at several pages of the queue."""
    many = [hash_in(number % SHARDS, 100 + number) for number in range(130)]
    await store.torrents.add_many([(info_hash, {}) for info_hash in many])
    await seeding(store, *many, *HASHES, start_budget=20)
    for info_hash in many:
        await store.torrents.deny(info_hash, "no")
    await store.torrents.edit(HASHES[0], {"enabled": "0"})
    await store.torrents.remove(HASHES[1])
    await store.announce(update(1, "s", info_hash=HASHES[2], passkey=ALICE, bytes_left=0))
    key = store.shard(HASHES[3]).keys.torrent(HASHES[3])
    await store.redis.unlink(key)
    await store.redis.set(key, "wrong type")
    found = set()
    for _ in range(4):
        found.add((await claimed(store, "7", free_bytes=8000)).item)
    assert found == {info_hash.hex() for info_hash in HASHES[4:8]}
    assert (await claimed(store, "8", free_bytes=3000)).item == HASHES[2].hex()


async def test_an_address_seeds_in_every_shard(store: Store) -> None:
    store.use_rules(SwarmRules(max_gap=7200))
    await seeding(store, *HASHES[:SHARDS], verify="address", start_budget=9)
    for info_hash in HASHES[:2]:
        await store.announce(update(7, "s", info_hash=info_hash, bytes_left=0))
    items = {(await claimed(store, "ada", endpoint=endpoint(7))).item for _ in range(2)}
    assert items == {info_hash.hex() for info_hash in HASHES[2:SHARDS]}  # the others are seeded there already
    await store.announce(update(7, "s", info_hash=HASHES[3], bytes_left=0))
    await verify(store, 120)
    seen = {claim.item: claim.seen_seconds for claim in await store.work.claims.of_claimant("proj", "ada")}
    assert seen == {HASHES[2].hex(): 0, HASHES[3].hex(): 120}


async def test_the_policy_visits_the_torrents_of_all_shards(store: Store) -> None:
    """W21: each weak torrent once, and a run goes on where the last one stopped."""
    for number, info_hash in enumerate(HASHES):
        row, keys = await store.torrent(info_hash), store.shard(info_hash).keys
        await store.redis.hset(keys.torrent(info_hash), mapping={"seeders": number % 3, "leechers": 1})
        await store.redis.zadd(keys.index("seeders"), {row["tid"]: number % 3})
        await store.redis.zadd(keys.index("leechers"), {row["tid"]: 1})
        points = [f"{int(store.clock.now) - HOUR * n} {number % 3} 1 0 0.5" for n in range(72, 0, -1)]
        await store.redis.rpush(keys.history(row["tid"]), *points)
    await project(store, "seeds", kind="seeding", target=3, verify="announce", order="weakest", keep_done_days=7)
    seeds = await store.work.projects.get("seeds")
    assert await store.work.policy.states.weak_count(seeds) == 12

    async def run(**limits: int) -> list[Change]:
        async def pause(_: float) -> None:
            pass

        policy = WorkPolicy(store.work.projects, store.work.policy, lambda: 0.5, pause, **limits)
        return [change async for change in policy.changes(seeds)]

    first, second = await run(max_weak=5), await run(max_weak=5)
    assert len(first) == len(second) == 5
    rest = await run()
    assert {change.info_hash for change in (*first, *second, *rest)} == set(HASHES)
    assert all(change.copies == 3 - HASHES.index(change.info_hash) % 3 for change in (*first, *second, *rest))
    assert await run() == []
    await check_work(store, "seeds")


async def test_points_are_added_to_histories_in_every_shard(store: Store) -> None:
    ids = [(await store.torrent(info_hash))["tid"] for info_hash in HASHES]
    await store.redis.delete(*(shard.keys.index("score") for shard in store.shards))
    await store.work.policy.states.note([*ids, "999999"])
    for info_hash, torrent_id in zip(HASHES, ids, strict=True):
        assert await store.redis.llen(store.shard(info_hash).keys.history(torrent_id)) == 1


async def test_the_sizes_of_all_shards_are_added_up(store: Store) -> None:
    await store.announce(update(1, "s", info_hash=HASHES[5], passkey=ALICE, bytes_left=0))
    await save_sizes(store.work.sizes)
    (day,) = await store.work.sizes.days()
    assert list(day.sums) == [1000 * sum(range(1, 13)) - 6000, 6000, 0, 0]
