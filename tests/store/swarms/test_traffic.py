"""Effects of announces beyond the swarm: which torrents are scored (B1), and how many bytes moved."""

from tests.store.conftest import MakeStore
from tests.store.harness import Store, endpoint, info_hash, update
from tracker.store.swarms.codec import PeerUpdate

START_SCORE = 1.0


async def scores(store: Store) -> dict[str, tuple[float, float]]:
    """Torrent ID -> (score, time of the last scoring or of the entry)."""
    score = dict(await store.redis.zrange(store.keys.index("score"), 0, -1, withscores=True))
    times = dict(await store.redis.zrange(store.keys.processed(), 0, -1, withscores=True))
    assert score.keys() == times.keys()
    return {tid.decode(): (score[tid], times[tid]) for tid in score}


async def test_a_torrent_begins_at_1_with_its_first_peer(store: Store) -> None:
    """B1."""
    await store.announce(update(1, "s", torrent=1))
    await store.announce(update(1, "s", torrent=2))
    assert await scores(store) == {tid: (START_SCORE, store.clock()) for tid in ("1", "2")}


async def test_a_torrent_begins_at_1_when_it_is_registered(store: Store) -> None:
    """B1."""
    tid, _ = await store.torrents.add(info_hash(1))
    assert await scores(store) == {tid: (START_SCORE, store.clock())}


async def test_announces_and_a_second_registration_keep_a_score(store: Store) -> None:
    """B6."""
    await store.announce(update(1, "s"))
    began = store.clock()
    await store.redis.zadd(store.keys.index("score"), {"1": 2.5})
    store.clock.now += 100
    await store.announce(update(1))
    await store.announce(update(2, "s"))
    await store.torrents.add(info_hash(1), {"name": "known"})
    assert await scores(store) == {"1": (2.5, began)}


async def test_a_torrent_that_dropped_out_returns_with_its_next_join(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.redis.delete(store.keys.index("score"), store.keys.processed())
    store.clock.now += 100
    await store.announce(update(1))
    assert await scores(store) == {}
    await store.announce(update(2, "s"))
    assert await scores(store) == {"1": (START_SCORE, store.clock())}


async def test_a_torrent_that_is_renumbered_keeps_its_score(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.redis.zadd(store.keys.index("score"), {"1": 0.25})
    await store.announce(update(1, "x"))
    await store.redis.set(store.keys.info_hash(info_hash(1)), "77")
    store.clock.now += 10
    await store.announce(update(1, "s"))
    assert await scores(store) == {"77": (0.25, store.clock())}


async def test_a_removed_torrent_is_not_scored(store: Store) -> None:
    await store.torrents.add(info_hash(1))
    await store.torrents.remove(info_hash(1))
    assert await scores(store) == {}


async def moved(store: Store, *updates: PeerUpdate) -> tuple[int, ...]:
    """The bytes reported by a batch of announces: up and down over IPv4, up and down over IPv6."""
    _, totals = await store.announce_together(*updates)
    return totals[:4]


async def test_a_batch_reports_the_bytes_its_peers_moved(make_store: MakeStore) -> None:
    """The first announce reports nothing; later ones report the difference, capped by the rate."""
    store = await make_store(max_credit=1000)
    assert await moved(store, update(1, "s", uploaded=500, downloaded=500)) == (0, 0, 0, 0)
    store.clock.now += 10
    assert await moved(store, update(1, uploaded=600, downloaded=9_000)) == (100, 8_500, 0, 0)
    store.clock.now += 10
    assert await moved(store, update(1, uploaded=10**15, downloaded=9_000)) == (10_000, 0, 0, 0)
    assert await moved(store, update(1, "x", uploaded=7, downloaded=9_300)) == (0, 300, 0, 0)


async def test_bytes_count_for_the_address_family_of_the_announce(store: Store) -> None:
    for peer, v6 in ((1, False), (2, True)):
        await store.announce(update(peer, "s", endpoint=endpoint(peer, v6=v6)))
    store.clock.now += 10
    second = update(2, uploaded=3, downloaded=2, endpoint=endpoint(2, v6=True))
    assert await moved(store, update(1, uploaded=7, downloaded=5), second) == (7, 5, 3, 2)


async def test_a_client_announcing_anothers_peer_id_moves_no_bytes(store: Store) -> None:
    await store.announce(update(1, "s"))
    store.clock.now += 10
    stranger = update(1, uploaded=10**9)._replace(endpoint=update(2).endpoint)
    (outcome,), totals = await store.announce_together(stranger)
    assert outcome.outcome == "stranger" and totals[:4] == (0, 0, 0, 0)
