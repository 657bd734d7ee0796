"""The repairs of the sweep and their limits (behind rows T9, T10 and T19)."""

import pytest

from loadtest.invariants import check_invariants
from tests.store.harness import Store, endpoint, info_hash, peer_id, timeout_key, update
from tracker.store.swarms.reaping import SweepStep

LARGE = 60
BUDGET = 20


async def sweep(store: Store, budget: int = 200) -> SweepStep:
    """Runs a whole sweep; returns the sums of its calls."""
    _, ids = await store.reaping.page(0, 1000)
    position, sums = "", [0, 0, 0, 0]
    while ids:
        step = await store.reaping.sweep(ids, position, budget)
        ids, position = ids[step.done :], step.position
        sums = [
            a + b for a, b in zip(sums, (step.reaped, step.repairs, step.forgotten, step.seen), strict=True)
        ]
    return SweepStep(0, "", *sums)


async def fill(store: Store, peers: int = LARGE) -> None:
    """Seeders and leechers: some partial, some on both families."""
    for n in range(peers):
        event = "p" if n % 5 == 0 else "s"
        await store.announce(update(n, event, bytes_left=n % 3, key_digest=b"k" * 8))
        if n % 4 == 0:
            await store.announce(
                update(n, event, bytes_left=n % 3, key_digest=b"k" * 8, endpoint=endpoint(n, v6=True))
            )


@pytest.mark.parametrize("budget", [BUDGET, 200], ids=["slices", "one call"])
@pytest.mark.parametrize(
    "damage",
    ["count", "both counts", "paused", "array", "slot", "member", "stray member", "ranking", "total"],
)
async def test_damage_is_repaired_once(store: Store, damage: str, budget: int) -> None:
    """One sweep makes a damaged swarm consistent again, whatever was damaged."""
    await fill(store)
    redis, keys, ih = store.redis, store.keys, info_hash(1)
    match damage:
        case "count":
            await redis.hincrby(keys.torrent(ih), "seeders", 7)
        case "both counts":
            await redis.hincrby(keys.torrent(ih), "seeders", 1)
            await redis.hincrby(keys.torrent(ih), "leechers", -1)
        case "paused":
            await redis.hincrby(keys.torrent(ih), "paused", 3)
        case "array":
            await redis.unlink(f"{keys.prefix}swarm:{ih.hex()}:l4", f"{keys.prefix}swarm:{ih.hex()}:l4i")
        case "slot":
            await redis.setrange(f"{keys.prefix}swarm:{ih.hex()}:s4i", 0, b"x" * 20)
        case "member":
            await redis.srem(keys.swarm_peers(ih), peer_id(3).hex())
        case "stray member":
            await redis.sadd(keys.swarm_peers(ih), peer_id(999).hex())
        case "ranking":
            await redis.zadd(keys.index("leechers"), {"1": 999})
        case "total":
            await redis.incrby(keys.stat("seeders"), 5)
    repairs = (await sweep(store, budget)).repairs + await store.reaping.check_totals()
    assert repairs >= 1
    assert await check_invariants(redis, keys) == LARGE
    assert (await sweep(store, budget)).repairs + await store.reaping.check_totals() == 0


async def test_slices_visit_every_peer_while_peers_come_and_go(store: Store) -> None:
    await fill(store, 100)
    _, ids = await store.reaping.page(0, 10)
    position, n = "", 1000
    for _ in range(200):
        step = await store.reaping.sweep(ids, position, BUDGET)
        assert step.repairs == 0
        if step.done:
            break
        position = step.position
        await store.announce(update(n, "s", bytes_left=n % 2))
        await store.announce(update(n - 1000, "x", key_digest=b"k" * 8))
        n += 1
    assert step.done == 1
    await check_invariants(store.redis, store.keys)


async def test_a_torrent_removed_between_page_and_visit_is_no_repair(store: Store) -> None:
    for n in (1, 2):
        await store.torrents.add(info_hash(n))
    _, ids = await store.reaping.page(0, 10)
    await store.torrents.remove(info_hash(2))
    step = await store.reaping.sweep(ids, "", 200)
    assert (step.done, step.repairs) == (2, 0)


@pytest.mark.parametrize("how", ["removed", "renumbered"])
async def test_an_id_reused_for_another_torrent_stays_with_it(store: Store, how: str) -> None:
    """The site reused the ID of a torrent that had become empty."""
    await store.redis.set(store.keys.info_hash(info_hash(1)), "5")
    await store.announce(update(1, "s"))
    await store.announce(update(1, "x"))
    await store.redis.set(store.keys.info_hash(info_hash(2)), "5")
    await store.announce(update(2, "s", torrent=2, bytes_left=0))
    if how == "removed":
        await store.torrents.remove(info_hash(1))
    else:
        await store.redis.set(store.keys.info_hash(info_hash(1)), "6")
        await store.announce(update(1, "s"))
        await store.announce(update(1, "x"))
    assert await store.redis.zscore(store.keys.index("seeders"), "5") == 1
    assert await store.reaping.check_totals() == 0
    assert await check_invariants(store.redis, store.keys) == 1


async def test_a_self_registered_torrent_is_forgotten_when_empty_for_long(store: Store) -> None:
    """T3: with all its keys. A torrent that an operator registered stays."""
    await store.torrents.add(info_hash(2), {"name": "kept"})
    for torrent in (1, 2):
        await store.announce(update(1, "s", torrent=torrent))
        await store.announce(update(1, "x", torrent=torrent))
    assert (await sweep(store)).forgotten == 0
    await store.pass_time(store.rules.current.forget_after)
    assert (await sweep(store)).forgotten == 1
    left = [key async for key in store.redis.scan_iter(f"{store.keys.prefix}*{info_hash(1).hex()}*")]
    assert left == []
    assert await store.torrents.get(info_hash(2)) is not None


async def test_keys_of_the_wrong_type_do_not_stop_the_rest(store: Store) -> None:
    for torrent in (1, 2):
        await store.announce(update(torrent, "s", torrent=torrent))
    await store.redis.set(store.keys.swarm_peers(info_hash(1)), "a string")
    await store.redis.delete(timeout_key(store.keys, "2", peer_id(2)))
    assert (await sweep(store)).reaped == 1
