"""The bytes of registered torrents by their number of seeders, and the walk that adds them up."""

import pytest

from tests.store.harness import Store, info_hash
from tests.store.work.policy import DAY, HOUR, swarm
from tracker.store.work.sizes import MAX_DAYS, SLICE, DaySizes
from tracker.workers.work import save_sizes

MIDNIGHT = 20_000 * DAY


async def walk(store: Store) -> list[float]:
    """One run of the job. Returns its pauses."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    await save_sizes(store.work.sizes, pause)
    return pauses


async def sums(store: Store) -> list[list[int]]:
    return [list(day.sums) for day in await store.work.sizes.days()]


async def test_sizes_are_added_up_by_the_number_of_seeders(store: Store) -> None:
    """Torrents of unknown size and unregistered ones are left out."""
    assert await store.work.sizes.days() == []
    for number, seeders in enumerate((0, 1, 3, 4, 10, 11, 5000)):
        await swarm(store, number, [seeders], size=str(10**number))
    await swarm(store, 20, [2])
    for number, size in enumerate(("-5", "1e3", "many", "0x10", "", "9" * 300)):
        ih = await swarm(store, 30 + number, [2])
        await store.redis.hset(store.keys.torrent(ih), "size", size)
    gone = await swarm(store, 40, [2], size="7")
    await store.redis.delete(store.keys.info_hash(gone))
    wrong = await swarm(store, 41, [2], size="7")
    await store.redis.delete(store.keys.torrent(wrong))
    await store.redis.set(store.keys.torrent(wrong), "no hash")
    await store.redis.zadd(store.keys.index("seeders"), {"999": 2})
    await walk(store)
    assert await sums(store) == [[1, 110, 11_000, 1_100_000]]


async def test_the_sums_are_exact_beyond_what_a_double_holds(store: Store) -> None:
    for number in range(1, 301):
        await store.torrents.add(info_hash(number), {"size": "40000000000001"})
    pauses = await walk(store)
    assert await sums(store) == [[300 * 40_000_000_000_001, 0, 0, 0]]
    assert len(pauses) >= 300 / (2 * SLICE), "a pause after each slice"


async def test_the_last_walk_of_a_day_stays(store: Store) -> None:
    store.clock.now = MIDNIGHT + DAY - HOUR
    ih = await swarm(store, 1, [2], size="5")
    await walk(store)
    await store.redis.hset(store.keys.torrent(ih), "size", "6")
    store.clock.now += HOUR - 1
    await walk(store)
    assert await store.work.sizes.days() == [DaySizes(MIDNIGHT, [0, 6, 0, 0])]
    store.clock.now += 1
    await store.redis.hset(store.keys.torrent(ih), "size", "7")
    await walk(store)
    assert await store.work.sizes.days() == [DaySizes(MIDNIGHT, [0, 6, 0, 0]), DaySizes(MIDNIGHT + DAY, [0, 7, 0, 0])]


async def test_old_days_and_entries_of_others_are_left_out(store: Store) -> None:
    await store.redis.hset(store.keys.work_bytes(), mapping={"some day": "1 2 3 4", "2024-01-01": "1 2"})
    for day in range(MAX_DAYS + 3):
        store.clock.now = MIDNIGHT + day * DAY
        await store.work.sizes.save([day, 0, 0, 0])
    found = await store.work.sizes.days()
    assert await store.redis.hlen(store.keys.work_bytes()) == MAX_DAYS
    assert found[-1] == DaySizes(MIDNIGHT + (MAX_DAYS + 2) * DAY, [MAX_DAYS + 2, 0, 0, 0])


async def test_an_interrupted_walk_stores_nothing(store: Store) -> None:
    class Interrupted(Exception):
        pass

    async def stop(_: float) -> None:
        raise Interrupted

    await swarm(store, 1, [2], size="5")
    with pytest.raises(Interrupted):
        await save_sizes(store.work.sizes, stop)
    assert await store.work.sizes.days() == []
