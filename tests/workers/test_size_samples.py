"""Samples of the numbers of peers, torrents and users."""

import asyncio
from functools import partial

from tests.store.harness import Store, endpoint, update
from tests.waiting import eventually, in_background
from tracker.store.jobs.lease import Lease
from tracker.store.stats.slices import SAMPLED, SAMPLED_PARTS
from tracker.store.swarms.codec import OWN_FAMILY
from tracker.workers.reaper import Reaper
from tracker.workers.samples import sample_once, sample_sizes


async def sampled(store: Store) -> dict[str, tuple[int, float]]:
    """(number of samples, last mean) by distribution."""
    await store.counters.flush()
    found = {}
    for name in (*SAMPLED, *SAMPLED_PARTS):
        slices, total = await store.counters.distribution(name, 1)
        if total is not None:
            found[name] = (total.count, slices[-1][1].mean)
    return found


async def test_sizes_are_sampled(store: Store) -> None:
    for peer, bytes_left in ((1, 0), (2, 5), (3, 5)):
        await store.announce(update(peer, bytes_left=bytes_left))
    await store.users.add()
    assert await sample_once(store)
    assert await sampled(store) == {"seeders": (1, 1), "leechers": (1, 2), "torrents": (1, 1), "users": (1, 1)}


async def test_peers_are_sampled_by_family_and_protocol_once_the_sweep_has_counted_them(store: Store) -> None:
    for peer, bytes_left, form, v6 in ((1, 0, 0, False), (2, 0, OWN_FAMILY, True), (3, 5, OWN_FAMILY, False)):
        where = endpoint(peer, v6=v6)
        await store.announce(update(peer, "s", bytes_left=bytes_left, form=form, endpoint=where))
    assert await sample_once(store)
    assert set(await sampled(store)) == set(SAMPLED)
    reaper = Reaper(store, store.shards.main, lambda: 2700, store.clock)
    await reaper.sweep_once(hurry=True)
    assert 8000 < await store.redis.ttl(store.keys.peer_counts()) <= 8100  # three reap intervals
    assert await sample_once(store)
    found = await sampled(store)
    assert {name: found[name] for name in SAMPLED_PARTS} == {
        "seeders.v4": (1, 1),
        "seeders.v6": (1, 1),
        "seeders.http": (1, 1),
        "seeders.udp": (1, 1),
        "leechers.v4": (1, 1),
        "leechers.v6": (1, 0),
        "leechers.http": (1, 0),
        "leechers.udp": (1, 1),
        "seeders.ws": (1, 0),
        "leechers.ws": (1, 0),
    }


async def test_counts_that_another_program_wrote_are_not_sampled(store: Store) -> None:
    for text in ("1 2 3", "-1" + 9 * " 0", "a b c d e f g h i j", "", "9" * 400 + 9 * " 0"):
        await store.redis.set(store.keys.peer_counts(), text)
        assert await sample_once(store)
    await store.redis.delete(store.keys.peer_counts())
    await store.redis.rpush(store.keys.peer_counts(), "1")
    assert await sample_once(store)
    assert set(await sampled(store)) == set(SAMPLED)


async def test_one_of_two_trackers_samples_and_the_other_takes_over(store: Store) -> None:
    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    async def samples() -> int:
        return (await sampled(store)).get("seeders", (0, 0.0))[0]

    async def sampled_again(before: int) -> bool:
        return await samples() > before

    async with in_background(sample_sizes(store, no_pause)):
        async with in_background(sample_sizes(store, no_pause)):
            await eventually(partial(sampled_again, 0))
            lease = Lease(store.scripts, "samples", "sizes", 15, store.clock)
            assert not await lease.hold()
        await eventually(partial(sampled_again, await samples()))
        assert not await lease.hold()


async def test_a_tracker_that_ends_releases_the_lease(store: Store) -> None:
    rounds = 0
    done = asyncio.Event()

    async def sleep(seconds: float) -> None:
        nonlocal rounds
        store.clock.now += seconds
        rounds += 1
        if rounds == 3:
            done.set()
            await asyncio.Event().wait()

    async with in_background(sample_sizes(store, sleep)):
        await done.wait()
    assert (await sampled(store))["torrents"] == (3, 0)
    assert await Lease(store.scripts, "samples", "sizes", 1, store.clock).hold()


async def test_errors_of_the_store_do_not_end_it(store: Store) -> None:
    """A key of another type; it is repaired later."""
    key, done = store.keys.leases("samples"), asyncio.Event()
    await store.redis.set(key, "text")

    async def sleep(seconds: float) -> None:
        if await store.redis.type(key) == b"string":
            await store.redis.delete(key)
        else:
            done.set()
            await asyncio.Event().wait()

    async with in_background(sample_sizes(store, sleep)):
        await done.wait()
    assert (await sampled(store))["users"] == (1, 0)
