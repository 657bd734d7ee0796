"""Claims whose lease ended are back in their queue (row W12)."""

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from loadtest.servers import Server
from tests.store.harness import Clock, Store, running
from tests.store.work.harness import add, check_work, claimed, project
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.work import LEASES_EVERY_SECONDS, LeaseWorker


@pytest.fixture
def server(start_server: Callable[..., Server]) -> Server:
    return start_server("--appendfsync", "always")


async def test_a_lapsed_claim_is_back_after_a_kill_and_a_restart(server: Server) -> None:
    clock = Clock()
    for round_number in range(2):
        async with running(Store(server.url, Keys("x:"), SwarmRules(), clock)) as store:
            worker = LeaseWorker(store)
            await store.reaping.heartbeat()
            if round_number == 0:
                await project(store, lease_seconds=100)
                await add(store, "a", "b", queue="secondary", place=0.5)
                claim = await claimed(store, "alice")
                server.kill()
                server.start()
                continue
            assert await worker.run_once() == 0
            await store.pass_time(100 + LEASES_EVERY_SECONDS)
            assert await worker.run_once() == 1
            status = await store.work.items.status("proj", claim.item)
            assert (status.status, status.copies) == ("todo", 1)
            assert (await check_work(store)).wanted == 2


async def test_an_outage_extends_all_leases_once(server: Server) -> None:
    """A lease that ended during the outage, and one that would end soon after it."""
    async with running(Store(server.url, Keys("x:"), SwarmRules())) as store:
        worker = LeaseWorker(store)
        await project(store, lease_seconds=1000)
        await add(store, "a", "b")
        await store.reaping.heartbeat()
        for claimant in ("alice", "bob"):
            await claimed(store, claimant)
            await store.pass_time(100)
        store.clock.now += 7200
        for _ in range(2):
            assert await worker.run_once() == 0
            await store.reaping.heartbeat()
        await store.pass_time(790)
        assert await worker.run_once() == 0
        await store.pass_time(20)
        assert await worker.run_once() == 1
        await store.pass_time(100)
        assert await worker.run_once() == 1


async def test_a_project_that_fails_does_not_hold_up_others(store: Store) -> None:
    """A site has written a key of a wrong type."""
    worker = LeaseWorker(store)
    await store.pass_time(0)
    for name in ("a", "b", "c"):
        await project(store, name, lease_seconds=60)
        await add(store, "item", project=name)
        await claimed(store, "alice", name)
    await store.redis.set(store.keys.work_done("b"), "x")
    await store.pass_time(100)
    with capture_logs() as logs:
        assert await worker.run_once() == 2
    assert [entry["project"] for entry in logs] == ["b"]


async def test_leaderboards_are_updated_by_each_run(store: Store) -> None:
    worker = LeaseWorker(store)
    await project(store, start_budget=200, budget=200)
    await add(store, *(f"item {number}" for number in range(120)))
    for _ in range(120):
        assert (await store.work.claims.done("proj", "alice", (await claimed(store, "alice")).item)).counted
    assert await store.work.leaderboard.top("proj") == []
    await worker.run_once()
    assert await store.work.leaderboard.top("proj") == [("alice", 120)]


async def test_many_claims_that_end_together_are_ended_in_one_run(server: Server) -> None:
    async with running(Store(server.url, Keys("x:"), SwarmRules())) as store:
        worker = LeaseWorker(store)
        await project(store, lease_seconds=10, start_budget=500, budget=500)
        await add(store, *(f"item {number}" for number in range(450)))
        await store.reaping.heartbeat()
        for _ in range(450):
            await claimed(store, "alice")
        await store.pass_time(11)
        assert await worker.run_once() == 450
        assert (await check_work(store)).wanted == 450
