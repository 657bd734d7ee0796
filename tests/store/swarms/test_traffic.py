"""What announces tell besides who is in a swarm: which torrents are scored (B1), and how many bytes moved."""

import asyncio

from tests.store.conftest import MakeStore
from tests.store.harness import Store, endpoint, info_hash, update
from tracker.store.swarms import Moved

START_SCORE = 1.0


async def scores(store: Store) -> dict[str, tuple[float, float]]:
    """Torrent id -> (score, when it was last scored or entered)."""
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


async def test_announces_and_a_second_registration_leave_a_score_alone(store: Store) -> None:
    """B6."""
    await store.announce(update(1, "s"))
    began = store.clock()
    await store.redis.zadd(store.keys.index("score"), {"1": 2.5})
    store.clock.now += 100
    await store.announce(update(1))
    await store.announce(update(2, "s"))
    await store.torrents.add(info_hash(1), {"name": "known"})
    assert await scores(store) == {"1": (2.5, began)}


async def test_a_torrent_that_dropped_out_comes_back_with_its_next_join(store: Store) -> None:
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


async def test_each_batch_says_what_its_peers_have_moved(make_store: MakeStore) -> None:
    """The first announce moves nothing, later ones their difference, at most what a line can carry."""
    store = await make_store(max_credit=1000)
    heard: list[tuple[int, Moved]] = []
    store.swarms._on_batch = lambda *batch: heard.append(batch)
    await store.announce(update(1, "s", uploaded=500, downloaded=500))
    store.clock.now += 10
    await store.announce(update(1, uploaded=600, downloaded=9_000))
    store.clock.now += 10
    await store.announce(update(1, uploaded=10**15, downloaded=9_000))
    await store.announce(update(1, "x", uploaded=7, downloaded=9_300))
    assert heard == [
        (1, (0, 0, 0, 0)),
        (1, (100, 8_500, 0, 0)),
        (1, (10_000, 0, 0, 0)),
        (1, (0, 300, 0, 0)),
    ]


async def test_bytes_are_told_by_the_family_they_were_announced_over(store: Store) -> None:
    heard: list[tuple[int, Moved]] = []
    store.swarms._on_batch = lambda *batch: heard.append(batch)
    for peer, v6 in ((1, False), (2, True)):
        await store.announce(update(peer, "s", endpoint=endpoint(peer, v6=v6)))
    store.clock.now += 10
    await asyncio.gather(
        store.announce(update(1, uploaded=7, downloaded=5)),
        store.announce(update(2, uploaded=3, downloaded=2, endpoint=endpoint(2, v6=True))),
    )
    assert [sum(figures) for figures in zip(*(moved for _, moved in heard), strict=True)] == [7, 5, 3, 2]


async def test_a_stranger_moves_nothing(store: Store) -> None:
    heard: list[tuple[int, Moved]] = []
    store.swarms._on_batch = lambda *batch: heard.append(batch)
    await store.announce(update(1, "s"))
    store.clock.now += 10
    stranger = update(1, uploaded=10**9)._replace(endpoint=update(2).endpoint)
    assert (await store.announce(stranger)).outcome == "stranger"
    assert heard == [(1, (0, 0, 0, 0)), (1, (0, 0, 0, 0))]
