"""Jobs from enqueueing to their end, on a clock that the test moves (section Q)."""

import asyncio
from collections.abc import Callable

import pytest
from redis.exceptions import OutOfMemoryError, ResponseError

from loadtest.servers import Server
from tests.store.conftest import MakeStore
from tests.store.harness import Store, running
from tests.store.jobs.harness import Metrics, check_queue_is_sound, claim, claim_one, end, jobs_of, number_of, status_of
from tracker.errors import ClientError
from tracker.store.jobs.jobs import MAX_BATCH, QueueFull
from tracker.store.jobs.records import Outcome, Result
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules


async def test_a_job_holds_its_fields(store: Store) -> None:
    """Q1."""
    jobs, now = jobs_of(store), store.clock.now
    id, _ = await jobs.enqueue("q", {"b": 1, "a": "ü"}, priority=3, deadline=now + 90, max_retries=5)
    job = await jobs.get(id)
    assert job is not None
    assert (job.id, job.queue, job.status, job.payload) == (id, "q", "pending", '{"a":"\\u00fc","b":1}')
    assert (job.retries, job.max_retries, job.priority) == (0, 5, 3)
    assert (job.run_after, job.deadline, job.created) == (now, now + 90, now)
    assert (job.started, job.finished, job.error, len(job.fingerprint)) == (None, None, "", 32)
    store.clock.now += 1
    claimed = await claim_one(jobs)
    job = await jobs.get(id)
    assert job is not None and (job.status, job.started, job.finished) == ("running", now + 1, None)
    store.clock.now += 1
    await end(jobs, claimed, "fatal", "no")
    job = await jobs.get(id)
    assert job is not None and (job.status, job.finished, job.error) == ("failed", now + 2, "no")
    assert (await jobs.get("99"), await jobs.get("x:y")) == (None, None)


async def test_jobs_are_listed_in_pages(store: Store) -> None:
    """Q1: waiting jobs in their order, finished ones newest first."""
    jobs = jobs_of(store)
    await jobs.enqueue_many("q", [{"n": number} for number in range(25)])
    assert await jobs.queues() == ["q"]
    pages = [[job.id for job in page] async for page in jobs.pages("q", "pending", 10)]
    assert [len(page) for page in pages] == [10, 10, 5]
    assert {id for page in pages for id in page} == {str(number) for number in range(1, 26)}
    for _ in range(3):
        store.clock.now += 1
        await end(jobs, await claim_one(jobs))
    assert [job.id for job in await jobs.page("q", "completed", 0, 2)] == ["3", "2"]
    assert await jobs.sizes("q") == {"pending": 22, "running": 0, "retry": 0, "completed": 3, "failed": 0}


async def test_the_same_payload_is_one_job_until_it_is_finished(store: Store) -> None:
    """Q2: while pending, running or waiting to retry. Afterwards it is allowed again."""
    jobs = jobs_of(store)
    first = await jobs.enqueue("q", {"a": 1, "b": [1.0]})
    assert await jobs.enqueue("q", {"b": [1], "a": 1.0}) == (first.id, False)
    assert (await jobs.enqueue("r", {"a": 1, "b": [1]})).new
    claimed = await claim_one(jobs)
    assert await jobs.enqueue("q", {"a": 1, "b": [1]}) == (first.id, False)
    assert await end(jobs, claimed, "failed", delay=5) == "retry"
    assert await jobs.enqueue("q", {"a": 1, "b": [1]}) == (first.id, False)
    store.clock.now += 5
    assert await end(jobs, await claim_one(jobs)) == "completed"
    again = await jobs.enqueue("q", {"a": 1, "b": [1]})
    assert again.new and again.id != first.id
    await end(jobs, await claim_one(jobs), "fatal")
    assert (await jobs.enqueue("q", {"a": 1, "b": [1]})).new
    await check_queue_is_sound(store, jobs)


async def test_a_hundred_concurrent_requests_for_one_job_make_one_job(make_store: MakeStore) -> None:
    """Q2: over the connections of several processes."""
    trackers = [jobs_of(await make_store()) for _ in range(4)]
    made = await asyncio.gather(*(trackers[n % 4].enqueue("q", {"x": 1}) for n in range(100)))
    assert sum(job.new for job in made) == 1
    assert len({job.id for job in made}) == 1


async def test_a_batch_enqueues_each_job_once(store: Store) -> None:
    jobs = jobs_of(store)
    made = await jobs.enqueue_many("q", [{"n": number % 700} for number in range(MAX_BATCH * 2 + 1)])
    assert sum(job.new for job in made) == 700
    assert made[0].id == made[700].id
    await check_queue_is_sound(store, jobs)


async def test_a_queue_holds_a_bounded_number_of_jobs(store: Store) -> None:
    jobs = jobs_of(store, max_waiting=3)
    with pytest.raises(QueueFull):
        await jobs.enqueue_many("q", [{"n": number} for number in range(5)])
    assert await jobs.waiting("q") == 3
    assert not (await jobs.enqueue("q", {"n": 1})).new
    await claim(jobs, limit=2)
    await jobs.enqueue_many("q", [{"n": number} for number in range(5)])
    assert await jobs.waiting("q") == 3


@pytest.mark.parametrize("priority", [11, -11])
async def test_an_invalid_job_is_refused(store: Store, priority: int) -> None:
    with pytest.raises(ValueError, match="a priority"):
        await jobs_of(store).enqueue("q", priority=priority)
    with pytest.raises(ValueError, match="name"):
        await jobs_of(store).enqueue("q:x")


async def test_a_job_runs_max_retries_plus_one_times(store: Store) -> None:
    """Q4: then it has failed, with the error of the last run."""
    for limit in (0, 2, 5):
        jobs, runs = jobs_of(store, max_retries=limit), 0
        id, _ = await jobs.enqueue("q", {"limit": limit})
        while claimed := await claim(jobs):
            runs += 1
            status = await end(jobs, claimed[0], "failed", f"run {runs}")
            assert status == ("retry" if runs <= limit else "failed")
        job = await jobs.get(id)
        assert job is not None and (runs, job.retries, job.error) == (limit + 1, limit, f"run {limit + 1}")
    await check_queue_is_sound(store, jobs)


async def test_a_retry_waits_for_its_backoff(store: Store) -> None:
    """Q4."""
    jobs = jobs_of(store)
    id, _ = await jobs.enqueue("q")
    await end(jobs, await claim_one(jobs), "failed", delay=10)
    store.clock.now += 9.999
    assert not await claim(jobs)
    assert await status_of(jobs, id) == "retry"
    store.clock.now += 0.001
    assert (await claim_one(jobs)).retries == 1


async def test_a_failed_job_can_be_retried_manually(store: Store) -> None:
    """Q4: with all of its runs. Not beside the same job, nor while it runs."""
    jobs = jobs_of(store, max_retries=0)
    id, _ = await jobs.enqueue("q", {"x": 1}, deadline=store.clock.now + 10)
    with pytest.raises(ClientError, match="pending already"):
        await jobs.retry(id)
    claimed = await claim_one(jobs)
    with pytest.raises(ClientError, match="running already"):
        await jobs.retry(id)
    await end(jobs, claimed, "failed", "no")
    same, _ = await jobs.enqueue("q", {"x": 1})
    with pytest.raises(ClientError, match="the same job"):
        await jobs.retry(id)
    await end(jobs, await claim_one(jobs))
    with pytest.raises(ClientError, match="completed already"):
        await jobs.retry(same)
    store.clock.now += 20
    await jobs.retry(id)
    assert (await claim_one(jobs)).id == id
    with pytest.raises(ClientError, match="unknown"):
        await jobs.retry("99")
    await check_queue_is_sound(store, jobs)


async def test_a_job_waiting_to_retry_can_be_run_at_once(store: Store) -> None:
    """Q4."""
    jobs = jobs_of(store)
    id, _ = await jobs.enqueue("q")
    await end(jobs, await claim_one(jobs), "failed", delay=1000)
    await jobs.retry(id)
    job = await claim_one(jobs)
    assert (job.id, job.retries) == (id, 0)
    await check_queue_is_sound(store, jobs)


@pytest.mark.parametrize("kind", ["ready", "delayed", "retry"])
async def test_a_job_past_its_deadline_fails_without_running(store: Store, kind: str) -> None:
    """Q5: at once, even if there is no free slot to run it."""
    jobs, now = jobs_of(store), store.clock.now
    run_after = now + 50 if kind == "delayed" else None
    id, _ = await jobs.enqueue("q", deadline=now + 10, run_after=run_after)
    if kind == "retry":
        await end(jobs, await claim_one(jobs), "failed", "first", delay=60)
    store.clock.now += 9.999
    assert not await claim(jobs, concurrency=0)
    assert await status_of(jobs, id) in ("pending", "retry")
    store.clock.now += 0.001
    assert not await claim(jobs, concurrency=0)
    job = await jobs.get(id)
    assert job is not None and job.status == "failed" and "deadline passed" in job.error
    assert ("first" in job.error) == (kind == "retry")
    await check_queue_is_sound(store, jobs)


async def test_any_number_of_jobs_past_their_deadline_fail_without_running(store: Store) -> None:
    """Q5: more than one claim fails in a call."""
    jobs = jobs_of(store)
    await jobs.enqueue_many("q", [{"n": n} for n in range(300)], deadline=store.clock.now + 1)
    store.clock.now += 1
    for _ in range(3):
        assert not await claim(jobs, limit=50)
    assert (await jobs.sizes("q"))["failed"] == 300
    await check_queue_is_sound(store, jobs)


async def test_a_running_job_may_outlive_its_deadline(store: Store) -> None:
    """Q5 applies to waiting jobs."""
    jobs = jobs_of(store)
    await jobs.enqueue("q", deadline=store.clock.now + 5)
    claimed = await claim_one(jobs)
    store.clock.now += 10
    await claim(jobs)
    assert await end(jobs, claimed) == "completed"


async def test_a_job_enqueued_past_its_deadline_never_runs(store: Store) -> None:
    """Q5."""
    jobs = jobs_of(store)
    id, _ = await jobs.enqueue("q", deadline=store.clock.now)
    assert not await claim(jobs)
    assert await status_of(jobs, id) == "failed"


async def test_a_store_that_lost_its_last_second_issues_no_token_twice(store: Store) -> None:
    """Q7: it restarted without the claim, and the next claim gets the same number."""
    jobs = jobs_of(store)
    await jobs.enqueue("q")
    kept = {key: await store.redis.dump(key) for key in await store.redis.keys(f"{store.keys.prefix}*")}
    lost = await claim_one(jobs)
    await store.redis.delete(*await store.redis.keys(f"{store.keys.prefix}*"))
    for key, value in kept.items():
        await store.redis.restore(key, 0, value)
    store.clock.now += 0.5
    ours = await claim_one(jobs)
    assert number_of(ours.token) == number_of(lost.token)
    assert await jobs.extend([lost, ours]) == [None, store.clock.now + jobs.limits.lease_seconds]
    assert await end(jobs, lost) == ""
    assert await end(jobs, ours) == "completed"


async def test_a_lapsed_lease_gives_the_job_to_the_next_worker(store: Store) -> None:
    """Q7: the token voids the first worker's result."""
    ours, theirs = jobs_of(store, lease_seconds=30), jobs_of(store, lease_seconds=30)
    id, _ = await ours.enqueue("q")
    late = await claim_one(ours)
    store.clock.now += 29.9
    assert not await claim(theirs)
    store.clock.now += 0.1
    taken = await claim_one(theirs)
    assert (taken.id, taken.retries) == (id, 1)
    assert number_of(taken.token) > number_of(late.token)
    assert await ours.extend([late]) == [None]
    assert not await ours.save_cursor(late, "5")
    outcomes: tuple[Outcome, ...] = ("completed", "failed", "fatal", "returned", "postponed")
    for outcome in outcomes:
        assert await end(ours, late, outcome) == ""
    assert await status_of(ours, id) == "running"
    assert await end(theirs, taken) == "completed"
    assert await end(theirs, taken, "failed") == ""
    await check_queue_is_sound(store, ours)


async def test_a_lease_set_by_a_clock_that_was_ahead_ends_in_time(store: Store) -> None:
    """Q7, Q8: it does not block the queue's only slot either. Clocks a few minutes apart respect each other's
    leases."""
    jobs = jobs_of(store, lease_seconds=30)
    id, _ = await jobs.enqueue("q")
    right = store.clock.now
    store.clock.now = right + 600
    await claim_one(jobs)
    store.clock.now = right
    assert not await claim(jobs)
    store.clock.now = right + 86_400
    await claim_one(jobs)
    store.clock.now = right + 700
    taken = await claim_one(jobs)
    assert (taken.id, taken.retries) == (id, 2)
    await check_queue_is_sound(store, jobs)


async def test_a_heartbeat_keeps_the_lease(store: Store) -> None:
    """Q7."""
    jobs = jobs_of(store, lease_seconds=30)
    await jobs.enqueue("q")
    job = await claim_one(jobs)
    for _ in range(10):
        store.clock.now += 20
        assert await jobs.extend([job]) == [store.clock.now + 30]
        assert not await claim(jobs)
    assert await end(jobs, job) == "completed"


async def test_a_job_that_kills_its_workers_fails_at_last(store: Store) -> None:
    """Q7: a lapse counts as a run, so no loop is endless."""
    jobs, runs = jobs_of(store, lease_seconds=30, max_retries=2), 0
    id, _ = await jobs.enqueue("q")
    while await claim(jobs):
        runs += 1
        store.clock.now += 30
    job = await jobs.get(id)
    assert job is not None and (runs, job.status) == (3, "failed") and "stopped responding" in job.error


async def test_a_late_result_counts_if_no_other_run_began(store: Store) -> None:
    """Q7: the work is done, and no other worker is affected."""
    jobs = jobs_of(store, lease_seconds=30)
    await jobs.enqueue("q")
    job = await claim_one(jobs)
    store.clock.now += 100
    assert await end(jobs, job) == "completed"
    assert not await claim(jobs)


async def test_a_returned_job_keeps_its_place(store: Store) -> None:
    """Q13: it counts as no run, and no other job overtakes it."""
    jobs = jobs_of(store)
    first, _ = await jobs.enqueue("q", {"n": 1})
    store.clock.now += 1
    await jobs.enqueue("q", {"n": 2})
    for _ in range(5):
        job = await claim_one(jobs)
        assert (job.id, job.retries) == (first, 0)
        assert await end(jobs, job, "returned") == "pending"
    await end(jobs, await claim_one(jobs), "failed")
    retry = next(job for job in await claim(jobs, limit=2) if job.id == first)
    assert await end(jobs, retry, "returned") == "retry"
    assert retry.retries == 1
    await check_queue_is_sound(store, jobs)


async def test_a_postponed_job_runs_again_at_its_time(store: Store) -> None:
    """It counts as no run, even if the job has no retries left."""
    jobs = jobs_of(store)
    await jobs.enqueue("q", {"n": 1}, max_retries=0)
    for _ in range(5):
        job = await claim_one(jobs)
        assert (await jobs.finish([Result(job, "postponed", delay=5)])) == ["pending"]
        store.clock.now += 4.9
        assert not await claim(jobs)
        store.clock.now += 0.1
    assert (await claim_one(jobs)).retries == 0
    await check_queue_is_sound(store, jobs)


async def test_a_delayed_job_is_never_early(store: Store) -> None:
    """Q9: to the millisecond, rounded up."""
    jobs, now = jobs_of(store), store.clock.now
    await jobs.enqueue("q", run_after=now + 10.0004)
    for at in (0, 9.999, 10, 10.0009):
        store.clock.now = now + at
        assert not await claim(jobs)
    store.clock.now = now + 10.0011
    await claim_one(jobs)


async def test_a_missing_or_broken_job_stops_no_other(store: Store) -> None:
    """Q10: a hash that is missing or of another type, in every place a job can be in."""
    jobs = jobs_of(store, lease_seconds=30)
    made = await jobs.enqueue_many("q", [{"n": number} for number in range(3)])
    made += await jobs.enqueue_many("q", [{"d": 1}, {"d": 2}], run_after=store.clock.now + 5)
    made += await jobs.enqueue_many("q", [{"e": 1}, {"e": 2}], deadline=store.clock.now + 5)
    good, _ = await jobs.enqueue("q", {"good": 1}, run_after=store.clock.now + 10)
    await claim(jobs, limit=1)
    for number, job in enumerate(made):
        await store.redis.delete(store.keys.job(job.id))
        if number % 2:
            await store.redis.set(store.keys.job(job.id), "x")
    found = []
    for _ in range(5):
        store.clock.now += 10
        for each in await claim(jobs, limit=3):
            found.append(each.id)
            await end(jobs, each)
    assert found == [good]
    assert (await jobs.enqueue("q", {"n": 1})).new


async def test_other_programs_keys_among_the_queues_are_ignored(store: Store) -> None:
    """Q10, Q11: impossible queue names are left out, and a broken queue does not stop another from being purged."""
    jobs = jobs_of(store, keep_seconds=10)
    await jobs.enqueue("q")
    await end(jobs, await claim_one(jobs))
    await store.redis.sadd(store.keys.queues(), "a", "B:x", b"\xff")
    await store.redis.set(store.keys.queue_jobs("a", "completed"), "x")
    assert await jobs.queues() == ["a", "q"]
    store.clock.now += 11
    assert await jobs.expire() == 1
    assert (await jobs.sizes("q"))["completed"] == 0


async def test_keys_of_another_type_stop_only_their_queue(store: Store) -> None:
    """Q10: nothing is written in part."""
    jobs = jobs_of(store)
    await jobs.enqueue("q")
    await jobs.enqueue("r")
    job = await claim_one(jobs, "q")
    for name in ("ready", "failed", "fingerprints", "running:tokens"):
        key = f"{store.keys.prefix}q:q:{name}"
        kept = await store.redis.dump(key)
        await store.redis.set(key, "x")
        before = await store.dump()
        with pytest.raises(ResponseError):
            await jobs.enqueue("q", {"n": 1})
        assert await end(jobs, job) == "wrong"
        assert await store.dump() == before
        (other,) = await jobs.claim({"q": (1, 1), "r": (1, 1)})
        assert other.queue == "r"
        await end(jobs, other, "returned")
        await store.redis.delete(key)
        if kept:
            await store.redis.restore(key, 0, kept)
    assert await end(jobs, job) == "completed"


async def test_finished_jobs_are_removed_after_their_time(store: Store) -> None:
    """Q11."""
    jobs = jobs_of(store, keep_seconds=100)
    outcomes: tuple[Outcome, ...] = ("completed", "fatal")
    for number, outcome in enumerate(outcomes):
        await jobs.enqueue("q", {"n": number})
        await end(jobs, await claim_one(jobs), outcome)
    await jobs.enqueue("q", {"n": 2})
    store.clock.now += 99
    assert await jobs.expire() == 0
    store.clock.now += 1
    assert await jobs.expire() == 2
    assert [await status_of(jobs, id) for id in "123"] == ["", "", "pending"]
    await check_queue_is_sound(store, jobs)


async def test_a_bounded_number_of_finished_jobs_is_kept(store: Store) -> None:
    """Q11: whatever their age, memory is bounded."""
    jobs = jobs_of(store, max_kept=5)
    await jobs.enqueue_many("q", [{"n": number} for number in range(20)])
    for _ in range(20):
        store.clock.now += 1
        await end(jobs, await claim_one(jobs))
    assert [job.id for job in await jobs.page("q", "completed", 0, 100)] == ["20", "19", "18", "17", "16"]
    assert await status_of(jobs, "15") == ""


@pytest.mark.parametrize("status", ["pending", "retry", "completed", "failed"])
async def test_jobs_are_purged_by_queue_and_status(store: Store, status: str) -> None:
    """Q11: in batches, and no other job is removed."""
    jobs = jobs_of(store)
    for queue in ("q", "r"):
        await jobs.enqueue_many(queue, [{"n": number} for number in range(MAX_BATCH + 9)])
        first, second, third = await claim(jobs, queue, limit=3)
        await end(jobs, first)
        await end(jobs, second, "failed", delay=5)
        await end(jobs, third, "fatal")
    before = await jobs.sizes("q")
    assert await jobs.purge("q", status) == before[status]
    assert await jobs.sizes("q") == {**before, status: 0}
    assert await jobs.sizes("r") == before
    await check_queue_is_sound(store, jobs)
    with pytest.raises(ClientError, match="cannot be purged"):
        await jobs.purge("q", "running")


async def test_events_of_jobs_are_counted(store: Store) -> None:
    """Q12: by queue and status, with the waiting times."""
    metrics = Metrics()
    jobs = jobs_of(store, metrics, max_retries=1)
    await jobs.enqueue("q", {"n": 1})
    await jobs.enqueue("q", {"n": 1})
    store.clock.now += 2.5
    await end(jobs, await claim_one(jobs), "failed", delay=0)
    await end(jobs, await claim_one(jobs), "failed")
    await jobs.enqueue("r", {"n": 2}, run_after=store.clock.now + 60)
    await jobs.enqueue("r", {"n": 3}, deadline=store.clock.now + 1)
    store.clock.now += 61
    await end(jobs, await claim_one(jobs, "r"))
    assert metrics.counts == {
        "jobs.q.pending": 1,
        "jobs.q.running": 2,
        "jobs.q.retry": 1,
        "jobs.q.failed": 1,
        "jobs.r.pending": 2,
        "jobs.r.running": 1,
        "jobs.r.completed": 1,
        "jobs.r.failed": 1,
    }
    assert metrics.values["jobs.q.wait_seconds"] == [2.5, 0]
    assert metrics.values["jobs.r.wait_seconds"] == [1]
    assert len(metrics.values["jobs.q.run_seconds"]) == 2


async def test_a_cursor_is_kept_for_the_next_run(store: Store) -> None:
    """Q14."""
    jobs = jobs_of(store, lease_seconds=30)
    await jobs.enqueue("q")
    job = await claim_one(jobs)
    assert job.cursor == "" and await jobs.save_cursor(job, "page 7")
    store.clock.now += 30
    assert (await claim_one(jobs)).cursor == "page 7"


async def test_a_time_slot_has_one_job(store: Store) -> None:
    """Also if another process enqueues it before or after its run. A clock that was far ahead blocks it only for a
    time."""
    ours, theirs, start = jobs_of(store), jobs_of(store), store.clock.now
    assert await ours.enqueue_slot("sweep", start, 60) == ("1", True)
    assert await theirs.enqueue_slot("sweep", start, 60) is None
    await end(ours, await claim_one(ours, "sweep"))
    assert await theirs.enqueue_slot("sweep", start, 60) is None
    assert await theirs.enqueue_slot("sweep", start + 60, 60) == ("2", True)
    assert await ours.enqueue_slot("sweep", start, 60) is None
    assert await ours.enqueue_slot("sweep", start + 600_000, 60) == ("2", False)
    await end(ours, await claim_one(ours, "sweep"))
    assert await ours.enqueue_slot("sweep", start + 120, 60) == ("3", True)


async def test_a_job_without_a_worker_fails_at_last(store: Store) -> None:
    """Q10: jobs of a queue that is unknown here."""
    jobs, now = jobs_of(store), store.clock.now
    await jobs.enqueue("gone", {"n": 1})
    await jobs.enqueue("gone", {"n": 2}, run_after=now + 50)
    store.clock.now += 100
    assert await jobs.abandon("gone", 100) == 1
    job = await jobs.get("1")
    assert job is not None and (job.status, job.error) == ("failed", "no worker serves this queue")
    store.clock.now += 50
    assert await jobs.abandon("gone", 100) == 1
    await check_queue_is_sound(store, jobs, "gone")


async def test_jobs_run_in_a_full_store(start_server: Callable[..., Server]) -> None:
    """Some jobs free memory."""
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys("t:"), SwarmRules())) as store:
        jobs = jobs_of(store)
        await jobs.enqueue("q", {"n": 1})
        await store.redis.config_set("maxmemory", "1")
        with pytest.raises(OutOfMemoryError):
            await jobs.enqueue("q", {"n": 2})
        assert await jobs.enqueue_slot("sweep", store.clock.now, 60) == ("2", True)
        for queue in ("q", "sweep"):
            job = await claim_one(jobs, queue)
            assert await jobs.extend([job]) != [None]
            assert await end(jobs, job) == "completed"
        assert await jobs.purge("q", "completed") == 1
