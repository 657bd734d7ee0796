"""Renaming places of unique users at the start: once, by one process, before counting."""

import asyncio

from tests.store.harness import Store, info_hash
from tests.workers.user_counting import UserCounting
from tracker.geoip import COUNTRY_NAMES
from tracker.store.stats.place_names import PlaceNameMigration
from tracker.workers.place_names import PlaceRenamer


def renamer_of(store: Store) -> PlaceRenamer:
    return PlaceRenamer(
        PlaceNameMigration(store.connection, store.scripts, store.keys, COUNTRY_NAMES), store.connection
    )


async def test_one_of_several_processes_renames_and_all_finish(store: Store) -> None:
    prefix = store.keys.prefix
    await store.redis.set(f"{prefix}countries.GB.users", 7)
    await store.redis.zadd(f"{prefix}i:unique:countries:all", {"GB": 7})
    renamers = [renamer_of(store) for _ in range(3)]
    async with asyncio.timeout(20):
        await asyncio.gather(*(renamer.run() for renamer in renamers))
    assert all(renamer.done.is_set() for renamer in renamers)
    assert await store.unique_users.top("countries") == [("United_Kingdom", 7)]
    assert not await store.redis.exists(store.keys.unique_renaming())


async def test_counting_waits_for_the_renaming(store: Store) -> None:
    """Otherwise an address counted under the earlier name would count again."""
    await store.torrents.add(info_hash(1))
    ready = asyncio.Event()
    work = UserCounting(store, ready=ready)
    async with work.at_work():
        work.add(1)
        flush = asyncio.Task(work.counter.flush())
        for _ in range(20):
            await store.redis.ping()
        assert await work.counts_of(f"torrents.{info_hash(1).hex()}.users") == [0]
        ready.set()
        await flush
    assert await work.counts_of(f"torrents.{info_hash(1).hex()}.users") == [1]


async def test_a_process_waits_for_the_process_that_renames(store: Store) -> None:
    """Until it finishes, or its claim expires."""
    renamer = renamer_of(store)
    lease = store.keys.unique_renaming()
    await store.redis.set(lease, "1")
    running = asyncio.Task(renamer.run())
    for _ in range(20):
        await store.redis.ping()
    assert not renamer.done.is_set()
    await store.redis.delete(lease)
    async with asyncio.timeout(20):
        await running
    assert renamer.done.is_set()
