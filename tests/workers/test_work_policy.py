"""The runs of the policy: which torrents each visits, and where the next one goes on (row W21)."""

from typing import Any

import pytest

from tests.store.harness import Store, info_hash, one_shard
from tests.store.work.harness import check_work, project
from tests.store.work.policy import HOUR, completed, seeding, swarm, wanted
from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument
from tracker.store.sharding.shards import Shard
from tracker.store.work import policy as policies
from tracker.store.work.policy import Policy
from tracker.store.work.records import Project, UnknownProject
from tracker.store.work.torrent_states import TorrentStates
from tracker.workers.work import WorkPolicy

WEAK = [1] * 72


class Calls(Connection):
    """The connection, which notes what each call to the store consists of."""

    def __init__(self, connection: Connection) -> None:
        self.__dict__.update(connection.__dict__)
        self.commands: list[int] = []
        self.words: list[int] = []
        self.scripts: list[int] = []

    async def command(self, *args: Argument) -> Any:
        (self.scripts if args[0] == "EVALSHA" else self.words).append(len(args))
        return await super().command(*args)

    async def pipeline(self, *commands: tuple[Argument, ...]) -> list[Any]:
        self.commands.append(len(commands))
        self.words.append(sum(map(len, commands)))
        return await super().pipeline(*commands)


def policy_of(store: Store, policy: Policy | None = None, **limits: Any) -> tuple[WorkPolicy, list[float]]:
    """The policy with a fixed chance, and its pauses."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    return WorkPolicy(store.work.projects, policy or store.work.policy, lambda: 0.5, pause, **limits), pauses


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
    assert len(pauses) == 3, "after the visits to nothing, a look at the ranking, and the visits to what was found"
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


async def test_the_neediest_of_all_win_the_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order in which runs find them."""
    await seeding(store)
    for number in range(1, 21):
        await swarm(store, number, WEAK, leechers=number * 7 % 20)
    monkeypatch.setattr(policies, "MAX_MANAGED", 5)
    policy, _ = policy_of(store, max_weak=4, max_enqueued=3)
    runs = [await run(store, policy) for _ in range(10)]
    assert max(map(len, runs)) == 5
    assert runs[-1] == {number for number in range(1, 21) if number * 7 % 20 >= 15}


async def test_a_run_enqueues_the_neediest_that_it_finds(store: Store) -> None:
    await seeding(store)
    for number in range(1, 11):
        await swarm(store, number, WEAK, leechers=number)
    policy, _ = policy_of(store, max_enqueued=3)
    assert await run(store, policy) == {10, 9, 8}
    assert await run(store, policy) == {10, 9, 8, 7, 6, 5}


@pytest.mark.parametrize(("max_weak", "verify"), [(None, "announce"), (7, "announce"), (None, "address")])
async def test_a_pass_takes_every_torrent_into_account(store: Store, max_weak: int | None, verify: str) -> None:
    """What the runs want is what visits to all torrents want, and a dry run shows it."""
    settings: dict[str, Any] = {"min_size": 100, "max_size": 1000, "verify": verify}
    for name in ("seeds", "all"):
        await project(store, name, kind="seeding", keep_done_days=7, order="weakest", **settings)
    numbers = range(1, 121)
    for n in numbers:
        history = [] if n % 11 == 0 else [n % 4, n % 3] * (2 if n % 13 == 0 else 36)
        fields: dict[str, Any] = {"labels": "nowork"} if n % 17 == 0 else {"private": "1"} if n % 3 == 0 else {}
        await swarm(
            store, n, history, ranked=n % 5 > 0, leechers=n % 2, now=n % 3, size=str(n * 10) if n % 7 else "", **fields
        )
        if n % 4 == 0:
            await completed(store, n, 10 + n % 6, 20)
        if n % 23 == 0:
            await store.torrents.deny(info_hash(n), "no")
    await store.redis.zremrangebyscore(store.keys.users(), 12, 13)
    policy, _ = policy_of(store, max_weak=max_weak)
    weak = await seeds(store)
    for _ in range(1 if max_weak is None else 120 // max_weak + 1):
        shown = [change async for change in policy.changes(weak, dry_run=True)]
        assert shown == [change async for change in policy.changes(weak)]
        await check_work(store, "seeds")
    await store.work.policy.fill("all", [info_hash(n) for n in numbers], [0.5] * len(numbers))
    expected = await store.redis.hgetall(store.keys.work_wanted("all"))
    assert len(expected) > 20
    assert await store.redis.hgetall(store.keys.work_wanted("seeds")) == expected
    assert await store.work.policy.fill("seeds", [info_hash(n) for n in numbers], [0.5] * len(numbers)) == []


async def test_abandoned_torrents_are_remembered_until_they_have_peers(store: Store) -> None:
    """Of a million torrents most have no peer, and nobody completed them: a look costs less then."""
    await seeding(store)
    weak = await seeds(store)

    async def cost() -> int:
        return (await store.work.policy.states.weak(weak, 0, 500, 10**9)).cost

    for number in range(1, 11):
        await swarm(store, number, [])
    await completed(store, 10, 7)
    assert [await cost(), await cost()] == [10 + 30 + 6, 10 + 3 + 6]
    await swarm(store, 1, [], now=1)
    await cost()
    await swarm(store, 1, [])
    await completed(store, 1, 7)
    assert await cost() == 10 + 6 + 12
    store.clock.now += 24 * HOUR
    assert await cost() == 10 + 30 + 12


async def test_a_run_costs_a_limited_amount_and_the_next_goes_on(store: Store) -> None:
    await seeding(store)
    for number in range(1, 1201):
        await swarm(store, number, [5] * 3, now=1)
    policy, _ = policy_of(store, max_cost=2000)
    ranks = []
    for _ in range(4):
        await run(store, policy)
        ranks.append((await store.work.policy.stored_position("seeds")).rank)
    assert ranks == [500, 1000, 1200, 500], "a page of 500 costs 3,500 where histories are read"


async def test_no_call_makes_announces_wait_for_a_millisecond(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 short keys take about 0.6 ms, and a visit in a script about 30 µs."""
    await seeding(store)
    for number in range(1, 701):
        await swarm(store, number, [1] * 30, now=0 if number % 2 else 1)
        if number % 2:
            await completed(store, number, 7, 8)
    calls = Calls(store.connection)
    shards = one_shard(calls, store.keys.prefix)
    main = Shard(0, calls, shards.main.scripts, store.keys)
    states = TorrentStates(shards, store.work.projects, store.clock)
    monkeypatch.setattr(policies, "MAX_MANAGED", 400)
    policy, _ = policy_of(store, Policy(main, store.clock, states))
    for _ in range(2):
        assert len(await run(store, policy)) == 400
    assert calls.scripts and max(calls.scripts) <= 10 + 8 * 20
    assert max(calls.commands) <= 101
    assert max(calls.words) <= 1_010


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
