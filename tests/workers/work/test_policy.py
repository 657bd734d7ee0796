"""The runs of the policy: which torrents each visits, and where the next one goes on (row W21)."""

import pytest

from tests.store.harness import Store, info_hash
from tests.store.work.harness import check_work, project
from tests.store.work.policy import HOUR, completed, seeding, swarm, wanted
from tracker.app.background import PERIODIC_SECONDS, WORK_POLICY
from tracker.store.work.records import Project, UnknownProject
from tracker.workers.work.policy import WorkPolicy

WEAK = [1] * 72


def policy_of(store: Store, **limits: int) -> tuple[WorkPolicy, list[float]]:
    """The policy with a fixed chance, and its pauses."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    return WorkPolicy(store.work.projects, store.work.policy, lambda: 0.5, pause, **limits), pauses


async def run(store: Store, policy: WorkPolicy) -> set[int]:
    """One run of the job; the torrents that are wanted then."""
    await policy.handle({})
    await check_work(store, "seeds")
    return set(await wanted(store))


async def seeds(store: Store) -> Project:
    return await store.work.projects.get("seeds")


async def test_a_run_visits_weak_torrents_and_what_it_enqueued(store: Store) -> None:
    await seeding(store)
    for number in range(1, 31):
        await swarm(store, number, WEAK if number <= 25 else [5] * 72)
    policy, pauses = policy_of(store)
    assert await run(store, policy) == set(range(1, 26))
    assert len(pauses) == 4, "slices of 10 torrents, and one without any"
    for number in (1, 2):
        await swarm(store, number, [5] * 72)
    assert await run(store, policy) == set(range(3, 26))


async def test_a_dry_run_shows_all_changes_and_writes_nothing(store: Store) -> None:
    await seeding(store)
    for number in (1, 2, 3):
        await swarm(store, number, WEAK)
    policy, _ = policy_of(store)
    before = await store.dump()
    shown = [change async for change in policy.changes(await seeds(store), dry_run=True)]
    assert await store.dump() == before
    assert shown == [change async for change in policy.changes(await seeds(store))]
    assert sorted(change.info_hash for change in shown) == [info_hash(n) for n in (1, 2, 3)]


async def test_the_next_run_goes_on_where_one_stopped(store: Store) -> None:
    """A run visits a limited number of torrents. All are visited in turn, weakest first."""
    await seeding(store)
    for number in range(1, 11):
        await swarm(store, number, WEAK, leechers=1, now=1 if number > 4 else 0)
        await completed(store, number, 7)
    policy, _ = policy_of(store, max_weak=4)
    assert len(await run(store, policy)) == 4
    assert (await store.work.policy.stored_position("seeds")).rank == 4
    assert len(await run(store, policy)) == 8
    assert len(await run(store, policy)) == 10
    for number in range(1, 11):
        await swarm(store, number, WEAK, now=1)
    assert len(await run(store, policy)) == 10, "the walk begins again at the weakest"


async def test_what_is_enqueued_is_visited_in_turn(store: Store) -> None:
    await seeding(store)
    count = 1500
    for number in range(1, count + 1):
        await swarm(store, number, WEAK)
    policy, _ = policy_of(store, max_managed=500)
    assert len(await run(store, policy)) == count
    await store.redis.zremrangebyscore(store.keys.index("seeders"), 0, 2)
    await store.redis.delete(*(store.keys.info_hash(info_hash(n)) for n in range(1, count + 1)))
    left = [len(await run(store, policy)) for _ in range(5)]
    assert left[0] < count and left == sorted(left, reverse=True)
    assert left[-1] == 0


async def test_a_position_beyond_the_end_begins_again(store: Store) -> None:
    await seeding(store)
    await swarm(store, 1, WEAK)
    await store.redis.hset(store.keys.work_project("seeds"), "policy_at", "99 7")
    policy, _ = policy_of(store)
    assert await run(store, policy) == {1}
    await store.redis.hset(store.keys.work_project("seeds"), "policy_at", "x")
    assert await run(store, policy) == {1}


async def test_torrents_without_an_info_hash_do_not_stop_the_walk(store: Store) -> None:
    await seeding(store)
    await store.redis.zadd(store.keys.index("seeders"), {str(n): 0 for n in range(1000, 1030)})
    await swarm(store, 1, WEAK)
    policy, _ = policy_of(store, max_weak=10)
    for _ in range(3):
        assert await run(store, policy) == set()
    assert await run(store, policy) == {1}


async def test_other_projects_and_deleted_ones_are_left_alone(store: Store) -> None:
    await project(store, "hand")
    await seeding(store)
    gone = await seeds(store)
    policy, _ = policy_of(store)
    assert await run(store, policy) == set()
    await store.redis.delete(store.keys.work_project("seeds"))
    with pytest.raises(UnknownProject):
        assert [change async for change in policy.changes(gone)] == []
    await policy.handle({})


async def test_two_projects_have_a_policy_each(store: Store) -> None:
    await seeding(store)
    await project(store, "more", kind="seeding", keep_done_days=7, verify="announce", target=5)
    await swarm(store, 1, [4] * 72)
    policy, _ = policy_of(store)
    assert await run(store, policy) == set()
    assert await store.redis.hgetall(store.keys.work_wanted("more")) == {info_hash(1).hex().encode(): b"1"}


def test_the_policy_runs_every_ten_minutes() -> None:
    assert PERIODIC_SECONDS[WORK_POLICY] == HOUR / 6
