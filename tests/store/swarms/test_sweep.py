"""The repairs of the sweep and their limits (behind rows T9, T10 and T19)."""

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, Store, endpoint, info_hash, peer_id, timeout_key, update
from tracker.store.swarms.codec import OWN_FAMILY
from tracker.store.swarms.reaping import NO_PEERS, PeerCounts, SweepStep

LARGE = 60
BUDGET = 20


async def sweep(store: Store, budget: int = 200) -> SweepStep:
    """Runs a whole sweep; returns the sums of its calls."""
    _, ids = await store.reaping.page(0, 1000)
    position, sums, peers = "", [0, 0, 0, 0], NO_PEERS
    while ids:
        step = await store.reaping.sweep(ids, position, budget)
        ids, position, peers = ids[step.done :], step.position, peers.plus(step.peers)
        sums = [a + b for a, b in zip(sums, (step.reaped, step.repairs, step.forgotten, step.seen), strict=True)]
    reaped, repairs, forgotten, seen = sums
    return SweepStep(0, "", reaped, repairs, forgotten, seen, peers)


async def fill(store: Store, peers: int = LARGE) -> None:
    """Seeders and leechers: some partial, some on both families."""
    for n in range(peers):
        event = "p" if n % 5 == 0 else "s"
        await store.announce(update(n, event, bytes_left=n % 3, key=b"k" * 8))
        if n % 4 == 0:
            await store.announce(update(n, event, bytes_left=n % 3, key=b"k" * 8, endpoint=endpoint(n, v6=True)))


@pytest.mark.parametrize("budget", [BUDGET, 200], ids=["slices", "one call"])
@pytest.mark.parametrize(
    "damage", ["count", "both counts", "paused", "array", "slot", "member", "stray member", "ranking", "total"]
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


@pytest.mark.parametrize("budget", [BUDGET, 200], ids=["slices", "one call"])
async def test_peers_are_counted_by_family_and_protocol(store: Store, budget: int) -> None:
    """A peer on both families counts in each, and over UDP if it joined so."""
    await fill(store)  # every third is a seeder, but for partial seeds; every fourth is on both families
    for n in range(100, 107):
        v6 = n % 2 == 1
        await store.announce(
            update(n, "s", bytes_left=n % 4, form=OWN_FAMILY, endpoint=endpoint(n, v6=v6), torrent=1 + n % 2)
        )
    seeders = len([n for n in range(LARGE) if n % 3 == 0])
    expected = PeerCounts(
        seeders=seeders + 2,
        leechers=LARGE - seeders + 5,
        seeders_v4=seeders + 2,
        leechers_v4=LARGE - seeders + 2,
        seeders_v6=len([n for n in range(0, LARGE, 4) if n % 3 == 0]),
        leechers_v6=len([n for n in range(0, LARGE, 4) if n % 3]) + 3,
        seeders_udp=2,
        leechers_udp=5,
    )
    step = await sweep(store, budget)
    assert (step.repairs, step.peers) == (0, expected)
    await store.redis.hincrby(store.keys.torrent(info_hash(1)), "seeders", 7)
    step = await sweep(store, budget)
    assert step.repairs == 1
    assert step.peers._replace(seeders_udp=0, leechers_udp=0) == expected._replace(seeders_udp=0, leechers_udp=0)


async def test_a_swarm_that_shrinks_while_it_is_visited_counts_once(store: Store) -> None:
    for n in range(BUDGET + 1):
        await store.announce(update(n, "s"))
    step = await store.reaping.sweep(["1"], "", BUDGET)
    counted = step.peers
    while step.position.startswith("m:"):
        step = await store.reaping.sweep(["1"], step.position, BUDGET)
        counted = counted.plus(step.peers)
    assert step.position
    for n in range(2):
        await store.announce(update(n, "x"))
    step = await store.reaping.sweep(["1"], step.position, BUDGET)
    assert step.done == 1
    assert counted.plus(step.peers).leechers == BUDGET + 1


async def test_a_peer_that_rejoins_over_http_is_not_over_udp(make_store: MakeStore) -> None:
    """The hash of a user's peer is kept after it has left."""
    store = await make_store(accounts="required", peer_memory=3600)
    await store.users.add("7", ALICE)
    for form, udp in ((OWN_FAMILY, 1), (0, 0), (OWN_FAMILY, 1)):
        await store.announce(update(1, "s", passkey=ALICE, form=form))
        await store.announce(update(1, passkey=ALICE, form=0))  # an update changes nothing about it
        counted = (await sweep(store)).peers
        assert (counted.leechers, counted.leechers_udp, counted.leechers_http) == (1, udp, 1 - udp)
        await store.announce(update(1, "x", passkey=ALICE))


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
        await store.announce(update(n - 1000, "x", key=b"k" * 8))
        n += 1
    assert step.done == 1
    await check_invariants(store.redis, store.keys)


async def test_only_peers_that_come_or_leave_explain_other_counts_between_two_slices(store: Store) -> None:
    """And no announces that change no peer, many as they are."""
    await fill(store)
    redis, keys = store.redis, store.keys
    step = await store.reaping.sweep(["1"], "", BUDGET)
    for name, by in (("seeders", 1), ("leechers", -1)):
        await redis.hincrby(keys.torrent(info_hash(1)), name, by)
        await redis.zincrby(keys.index(name), by, "1")
        await redis.incrby(keys.stat(name), by)
    await store.announce_together(*(update(n, bytes_left=n % 3, key=b"k" * 8) for n in (1, 2, 4)))
    await store.announce_counts.flush()
    repairs = step.repairs
    while step.position:
        step = await store.reaping.sweep(["1"], step.position, BUDGET)
        repairs += step.repairs
    assert repairs == 1
    assert await check_invariants(redis, keys) == LARGE


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


@pytest.mark.parametrize(
    ("forget_after", "addresses", "seconds"), [(7200, 1, 3600), (7200, 2, 7200), (600, 1, 600), (600, 2, 600)]
)
async def test_a_torrent_of_one_address_is_forgotten_after_an_hour_or_sooner(
    make_store: MakeStore, forget_after: int, addresses: int, seconds: int
) -> None:
    store = await make_store(forget_after=forget_after)
    for event in "sx":
        for peer in range(addresses):
            await store.announce(update(peer, event))
    assert (await sweep(store)).forgotten == 0
    await store.pass_time(seconds - 1)
    assert (await sweep(store)).forgotten == 0
    await store.pass_time(1)
    assert (await sweep(store)).forgotten == 1


async def test_keys_of_the_wrong_type_do_not_stop_the_rest(store: Store) -> None:
    for torrent in (1, 2):
        await store.announce(update(torrent, "s", torrent=torrent))
    await store.redis.set(store.keys.swarm_peers(info_hash(1)), "a string")
    await store.redis.delete(timeout_key(store.keys, "2", peer_id(2)))
    assert (await sweep(store)).reaped == 1
