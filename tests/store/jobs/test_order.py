"""Which job comes next, and how many at a time: by rule, by chance against a model, and in a crowd (rows Q3, Q8)."""

import asyncio
import random

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import Store
from tests.store.jobs import check_queue_is_sound, claim, claim_one, end, jobs_of
from tracker.store.job import Claimed
from tracker.store.jobs import Jobs

POINT, AFTER_FRESH = 60.0, 21 * 60.0
"""Seconds of waiting that a point of priority is worth, and that a retry comes after fresh jobs."""


async def order(jobs: Jobs, most: int = 100) -> list[str]:
    return [job.id for job in await claim(jobs, most=most)]


async def test_a_larger_priority_goes_first_then_the_earlier(store: Store) -> None:
    """Q3: whatever the order they came in, within a call of claim and over several."""
    jobs, now = jobs_of(store), store.clock.now
    expected = []
    for priority, delay in [(0, 3), (5, 2), (-5, 1), (5, 1), (0, 1), (-5, 3), (10, 4)]:
        id, _ = await jobs.enqueue("q", {"n": [priority, delay]}, priority=priority, run_after=now + delay)
        expected.append((-priority, delay, id))
    store.clock.now += 5
    found = [(await claim_one(jobs)).id for _ in range(3)] + await order(jobs)
    assert found == [id for _, _, id in sorted(expected)]


async def test_equals_go_in_the_order_they_came(store: Store) -> None:
    """Q3: of one call and of several within the same millisecond."""
    jobs = jobs_of(store)
    for first in (0, 20, 40):
        await jobs.enqueue_many("q", [{"n": number} for number in range(first, first + 20)])
    assert await order(jobs) == [str(number) for number in range(1, 61)]


@pytest.mark.parametrize("priority", [-10, 0, 10])
async def test_retries_go_after_fresh_ones(store: Store, priority: int) -> None:
    """Q3: even after those that came later, and of the least priority."""
    jobs = jobs_of(store)
    retry, _ = await jobs.enqueue("q", {"n": 0}, priority=priority)
    await end(jobs, await claim_one(jobs), "failed", delay=1)
    store.clock.now += 30
    fresh = [(await jobs.enqueue("q", {"n": n}, priority=p)).id for n, p in ((1, -10), (2, 10))]
    assert await order(jobs) == [*reversed(fresh), retry]


async def test_waiting_makes_up_for_priority(store: Store) -> None:
    """Q3: a point a minute, exactly."""
    jobs = jobs_of(store)
    old, _ = await jobs.enqueue("q", {"n": 0}, priority=2)
    store.clock.now += 3 * POINT - 0.1
    higher, _ = await jobs.enqueue("q", {"n": 1}, priority=5)
    store.clock.now += 0.2
    late, _ = await jobs.enqueue("q", {"n": 2}, priority=5)
    assert await order(jobs) == [higher, old, late]


async def test_nothing_starves(store: Store) -> None:
    """Q3: the least of jobs runs, though one of the most priority comes every 20 s, which is all that can run."""
    jobs = jobs_of(store)
    lowest, _ = await jobs.enqueue("q", {"low": 1}, priority=-10)
    await jobs.enqueue_many("q", [{"backlog": n} for n in range(3)], priority=10)
    waited = 0
    while True:
        store.clock.now += 20
        waited += 20
        await jobs.enqueue("q", {"n": waited}, priority=10)
        job = await claim_one(jobs)
        await end(jobs, job)
        if job.id == lowest:
            break
        assert waited < 22 * POINT
    assert waited >= 20 * POINT


async def test_run_after_in_the_past_overtakes_nobody(store: Store) -> None:
    """Q3: it has waited since it was enqueued."""
    jobs = jobs_of(store)
    first, _ = await jobs.enqueue("q", {"n": 1})
    store.clock.now += 1
    second, _ = await jobs.enqueue("q", {"n": 2}, run_after=0)
    assert await order(jobs) == [first, second]


class Model:
    """What the queue should do, in a few lines."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.waiting: dict[str, tuple[int, float, bool]] = {}
        self.running: dict[str, tuple[Claimed, int]] = {}

    def next(self, now: float, most: int) -> list[str]:
        def due(id: str) -> float:
            priority, run_after, retry = self.waiting[id]
            return run_after - priority * POINT + retry * AFTER_FRESH

        ripe = [id for id, (_, run_after, _) in self.waiting.items() if run_after <= now]
        return sorted(ripe, key=lambda id: (due(id), int(id)))[:most]


@pytest.mark.parametrize("seed", range(6))
async def test_by_chance_it_does_what_the_model_does(store: Store, seed: int) -> None:
    """Q3, Q9: random arrivals, delays, priorities, failures, returns and claims."""
    rng = random.Random(seed)
    jobs, model = jobs_of(store, max_retries=3, lease_seconds=1e6), Model(rng)
    for step in range(120):
        store.clock.now += rng.choice([0, 0, 1, 7, 60])
        now = store.clock.now
        match rng.choice(["enqueue", "enqueue", "claim", "end"]):
            case "enqueue":
                priority, delay = rng.randint(-10, 10), rng.choice([0, 0, 5, 100])
                payloads = [{"n": [step, number]} for number in range(rng.randint(1, 4))]
                made = await jobs.enqueue_many("q", payloads, priority=priority, run_after=now + delay)
                model.waiting |= {job.id: (priority, now + delay, False) for job in made}
            case "claim":
                await claim_as_expected(jobs, model, now)
            case "end" if model.running:
                await end_somehow(jobs, model, now)
    await check_queue_is_sound(store, jobs)


async def claim_as_expected(jobs: Jobs, model: Model, now: float) -> None:
    most = model.rng.randint(1, 5)
    expected = model.next(now, most)
    claimed = await claim(jobs, most=most)
    assert [job.id for job in claimed] == expected
    for job in claimed:
        priority, run_after, _ = model.waiting.pop(job.id)
        assert job.run_after == run_after
        model.running[job.id] = (job, priority)


async def end_somehow(jobs: Jobs, model: Model, now: float) -> None:
    id = model.rng.choice(list(model.running))
    job, priority = model.running.pop(id)
    delay = model.rng.choice([0, 30])
    match model.rng.choice(["completed", "failed", "returned"]):
        case "completed":
            assert await end(jobs, job) == "completed"
        case "returned":
            model.waiting[id] = (priority, job.run_after, job.retries > 0)
            assert await end(jobs, job, "returned") == ("retry" if job.retries else "pending")
        case _ if job.retries < 3:
            model.waiting[id] = (priority, now + delay, True)
            assert await end(jobs, job, "failed", delay=delay) == "retry"
        case _:
            assert await end(jobs, job, "failed") == "failed"


async def test_concurrency_holds_over_all_workers(make_store: MakeStore) -> None:
    """Q8: reached at once, never exceeded, by many that claim at the same time."""
    store = await make_store()
    crowd = [jobs_of(await make_store(), clock=store.clock) for _ in range(4)] * 5
    await crowd[0].enqueue_many("q", [{"n": number} for number in range(100)])
    done: set[str] = set()
    while len(done) < 100:
        taken = await asyncio.gather(*(claim(jobs, most=3, concurrency=7) for jobs in crowd))
        claimed = [job for each in taken for job in each]
        assert len(claimed) == min(7, 100 - len(done))
        assert not await claim(crowd[0], concurrency=7)
        assert not done & {job.id for job in claimed}
        done |= {job.id for job in claimed}
        await asyncio.gather(*(end(jobs, job) for jobs, job in zip(crowd, claimed, strict=False)))


async def test_queues_do_not_take_each_others_slots(store: Store) -> None:
    """Q8."""
    jobs = jobs_of(store)
    for queue in ("a", "b", "c"):
        await jobs.enqueue_many(queue, [{"n": number} for number in range(5)])
    claimed = await jobs.claim({"a": (2, 9), "b": (9, 1), "c": (3, 0), "d": (5, 5)})
    assert [job.queue for job in claimed] == ["a", "a", "b"]


async def test_many_due_at_once_are_all_let_in(store: Store) -> None:
    """Q9: more than one call of the script takes."""
    jobs = jobs_of(store)
    await jobs.enqueue_many("q", [{"n": n} for n in range(1200)], run_after=store.clock.now + 5)
    store.clock.now += 5
    ids: list[str] = []
    while found := await claim(jobs, most=400, concurrency=1200):
        ids += (job.id for job in found)
    assert len(set(ids)) == 1200
