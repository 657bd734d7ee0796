"""A project with 100,000 items, 10,000 claims and 1,000 claimants: pages and statistics read indexes (row W16)."""

from typing import Any

import pytest

from tests.admin.api.api_client import program, swarms_of
from tests.admin.conftest import Admin
from tests.admin.pages.page import get
from tests.store.harness import Store
from tests.store.torrents.test_lists_at_scale import calls
from tests.store.work.harness import claimed, project, rank
from tracker.store.work.records import NewItem

ITEMS, CLAIMS, CLAIMANTS = 100_000, 10_000, 1_000
PROJ = "/work/projects/proj"
MAX_STORE_SECONDS = 0.1


async def fill(store: Store) -> None:
    await project(store, start_budget=CLAIMS, budget=CLAIMS)
    await store.work.items.add("proj", [NewItem(f"item {number:06}") for number in range(ITEMS)])
    for number in range(CLAIMS):
        claim = await claimed(store, f"claimant{number % CLAIMANTS:04}", address="192.0.2.1")
        if number < CLAIMANTS:
            await store.work.claims.done("proj", claim.claimant, claim.item, reported={"data": number})
    await rank(store)


async def store_seconds(store: Store) -> float:
    """Time that the server spent on commands since the last reset."""
    stats = await store.redis.info("commandstats")
    return sum(float(each["usec"]) for each in stats.values()) / 1e6


@pytest.mark.slow
@pytest.mark.serial
async def test_pages_and_statistics_of_a_large_project_are_fast(admin: Admin, redis_url: str) -> None:
    """W16: below 100 ms of the server's time, without SCAN and KEYS."""
    async with swarms_of(admin, redis_url) as store, program(admin) as asking, admin.browser("admin") as browser:
        await fill(store)

        async def measured(request: Any) -> Any:
            await store.redis.config_resetstat()
            reply = await request
            made = await calls(store)
            assert not made.keys() & {"keys", "scan", "hscan", "sscan", "zscan"}, made
            assert await store_seconds(store) < MAX_STORE_SECONDS, made
            return reply

        found = await measured(asking.get(PROJ))
        assert (found["items"]["todo"], found["items"]["out"]) == (ITEMS - CLAIMS, CLAIMS - CLAIMANTS)
        assert found["claimants"] == CLAIMANTS
        assert (await measured(asking.get("/work/projects")))["items"][0]["totals"]["done"] == CLAIMANTS
        for status in ("todo", "done"):
            page = await measured(asking.get(f"{PROJ}/items", list=status, limit=500))
            assert len(page["items"]) == 500
        assert len((await measured(asking.get(f"{PROJ}/claims", limit=500)))["items"]) == 500
        board = await measured(asking.get(f"{PROJ}/leaderboard", by="bytes", cursor=500, limit=500))
        assert (board["total"], len(board["items"])) == (CLAIMANTS, 500)
        assert len((await measured(asking.get(f"{PROJ}/log", limit=500)))["items"]) == 500
        metrics = await measured(asking.session.get("/metrics"))
        assert 'tracker_work_items{project="proj",state="out"} 9000.0' in await metrics.text()
        for path in ("", "?by=bytes&page=10", "/items", "/items?list=done", "/claims", "/blocked", "/settings"):
            await measured(get(browser, f"/work/proj{path}"))
        await measured(get(browser, "/work"))
        released = await measured(asking.ask("POST", f"{PROJ}/claims/release", json={"claimant": "claimant0007"}))
        assert released["released"] == CLAIMS // CLAIMANTS - 1
