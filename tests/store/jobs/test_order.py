"""The order of jobs and their concurrency: by rule, against a model, and with many workers (rows Q3, Q8)."""

import asyncio
import random

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import Store
from tests.store.jobs.harness import check_queue_is_sound, claim, claim_one, end, jobs_of
from tracker.errors import ClientError
from tracker.store.jobs.jobs import Jobs
from tracker.store.jobs.records import Claimed, QueueLimits

POINT, RETRY_PENALTY = 60.0, 21 * 60.0
"""Seconds of waiting that equal a point of priority, and the penalty of a retry (s)."""


async def order(jobs: Jobs, limit: int = 100) -> list[str]:
    return [job.id for job in await claim(jobs, limit=limit)]


async def test_a_larger_priority_goes_first_then_the_earlier_job(store: Store) -> None:
    """Q3: in any order of arrival, within one call of claim and over several."""
    jobs, now = jobs_of(store), store.clock.now
    expected = []
    for priority, delay in [(0, 3), (5, 2), (-5, 1), (5, 1), (0, 1), (-5, 3), (10, 4)]:
        id, _ = await jobs.enqueue("q", {"n": [priority, delay]}, priority=priority, run_after=now + delay)
        expected.append((-priority, delay, id))
    store.clock.now += 5
    found = [(await claim_one(jobs)).id for _ in range(3)] + await order(jobs)
    assert found == [id for _, _, id in sorted(expected)]


async def test_equal_jobs_run_in_the_order_of_arrival(store: Store) -> None:
    """Q3: within one call and over several in the same millisecond."""
    jobs = jobs_of(store)
    for first in (0, 20, 40):
        await jobs.enqueue_many("q", [{"n": number} for number in range(first, first + 20)])
    assert await order(jobs) == [str(number) for number in range(1, 61)]


@pytest.mark.parametrize("priority", [-10, 0, 10])
async def test_retries_run_after_new_jobs(store: Store, priority: int) -> None:
    """Q3: even after later jobs of the minimum priority."""
    jobs = jobs_of(store)
    retry, _ = await jobs.enqueue("q", {"n": 0}, priority=priority)
    await end(jobs, await claim_one(jobs), "failed", delay=1)
    store.clock.now += 30
    fresh = [(await jobs.enqueue("q", {"n": n}, priority=p)).id for n, p in ((1, -10), (2, 10))]
    assert await order(jobs) == [*reversed(fresh), retry]


async def test_waiting_time_adds_to_the_priority(store: Store) -> None:
    """Q3: exactly a point a minute."""
    jobs = jobs_of(store)
    old, _ = await jobs.enqueue("q", {"n": 0}, priority=2)
    store.clock.now += 3 * POINT - 0.1
    higher, _ = await jobs.enqueue("q", {"n": 1}, priority=5)
    store.clock.now += 0.2
    late, _ = await jobs.enqueue("q", {"n": 2}, priority=5)
    assert await order(jobs) == [higher, old, late]


async def test_no_job_starves(store: Store) -> None:
    """Q3: a job of the minimum priority runs, although one of the maximum priority arrives every 20 s, the full
    capacity."""
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


async def test_a_run_after_time_in_the_past_gives_no_advantage(store: Store) -> None:
    """Q3: the job has waited since it was enqueued."""
    jobs = jobs_of(store)
    first, _ = await jobs.enqueue("q", {"n": 1})
    store.clock.now += 1
    second, _ = await jobs.enqueue("q", {"n": 2}, run_after=0)
    assert await order(jobs) == [first, second]


class Model:
    """The expected queue, in a few lines."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.waiting: dict[str, tuple[int, float, bool]] = {}
        self.running: dict[str, tuple[Claimed, int]] = {}

    def next(self, now: float, limit: int) -> list[str]:
        def due(id: str) -> float:
            priority, run_after, retry = self.waiting[id]
            return run_after - priority * POINT + retry * RETRY_PENALTY

        ripe = [id for id, (_, run_after, _) in self.waiting.items() if run_after <= now]
        return sorted(ripe, key=lambda id: (due(id), int(id)))[:limit]


@pytest.mark.parametrize("seed", range(6))
async def test_random_use_agrees_with_the_model(store: Store, seed: int) -> None:
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
    limit = model.rng.randint(1, 5)
    expected = model.next(now, limit)
    claimed = await claim(jobs, limit=limit)
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


async def test_concurrency_is_limited_over_all_workers(make_store: MakeStore) -> None:
    """Q8: many concurrent claims reach the limit at once and never exceed it."""
    store = await make_store()
    queues = [jobs_of(await make_store(), clock=store.clock) for _ in range(4)] * 5
    await queues[0].enqueue_many("q", [{"n": number} for number in range(100)])
    done: set[str] = set()
    while len(done) < 100:
        taken = await asyncio.gather(*(claim(jobs, limit=3, concurrency=7) for jobs in queues))
        claimed = [job for each in taken for job in each]
        assert len(claimed) == min(7, 100 - len(done))
        assert not await claim(queues[0], concurrency=7)
        assert not done & {job.id for job in claimed}
        done |= {job.id for job in claimed}
        await asyncio.gather(*(end(jobs, job) for jobs, job in zip(queues, claimed, strict=False)))


async def test_queues_take_no_slots_of_each_other(store: Store) -> None:
    """Q8."""
    jobs = jobs_of(store)
    for queue in ("a", "b", "c"):
        await jobs.enqueue_many(queue, [{"n": number} for number in range(5)])
    claimed = await jobs.claim({"a": (2, 9), "b": (9, 1), "c": (3, 0), "d": (5, 5)})
    assert [job.queue for job in claimed] == ["a", "a", "b"]


async def test_many_due_jobs_are_all_started(store: Store) -> None:
    """Q9: more than one call of the script takes."""
    jobs = jobs_of(store)
    await jobs.enqueue_many("q", [{"n": n} for n in range(1200)], run_after=store.clock.now + 5)
    store.clock.now += 5
    ids: list[str] = []
    while found := await claim(jobs, limit=400, concurrency=1200):
        ids += (job.id for job in found)
    assert len(set(ids)) == 1200


async def test_a_queue_has_limits_of_its_own(store: Store) -> None:
    """The store's limits go before those of the settings; jobs that wait keep their priority."""
    jobs = jobs_of(store, priorities={"q": 4})
    first, _ = await jobs.enqueue("q", {"n": 0})
    assert await jobs.limits_of("q") == QueueLimits()
    assert await jobs.set_limits("q", {"concurrency": 3, "priority": "-5"}) == QueueLimits(3, -5)
    second, _ = await jobs.enqueue("q", {"n": 1})
    slot = await jobs.enqueue_slot("q", store.clock.now, 60)
    own, _ = await jobs.enqueue("q", {"n": 2}, priority=7)
    other, _ = await jobs.enqueue("other", {})
    ids = (first, second, slot.id if slot else "", own, other)
    found = [await jobs.get(id) for id in ids]
    assert [job.priority for job in found if job] == [4, -5, -5, 7, 0]
    taken = await jobs.claim({"q": (1, 1), "other": (1, 1)})
    assert sorted(job.id for job in taken) == sorted([own, first, second, other])
    assert await jobs.claim({"q": (1, -2)}) == []
    with pytest.raises(ClientError, match="concurrency is"):
        await jobs.set_limits("q", {"concurrency": 0})
    assert await jobs.set_limits("q", {}) == QueueLimits()
    assert await jobs.claim({"q": (3, 0)}) == []
