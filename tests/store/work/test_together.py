"""Many claimants at once, each with connections of its own (rows W3 and W5)."""

import asyncio
from collections import Counter

from tests.store.conftest import MakeStore
from tests.store.harness import Store
from tests.store.work.harness import add, check_sums, check_work, claimed, project
from tracker.store.work.records import Claim

CROWD = 8
ITEMS = 60
COPIES = 3


async def test_eight_claimants_get_each_copy_once(make_store: MakeStore) -> None:
    """W3: and no claimant gets the same item twice."""
    stores = [await make_store() for _ in range(CROWD)]
    await project(stores[0], start_budget=ITEMS, budget=ITEMS)
    await add(stores[0], *(f"item{number}" for number in range(ITEMS)), copies=COPIES)

    async def take_all(number: int, store: Store) -> list[str]:
        items = list[str]()
        while isinstance(reply := await store.work.claims.claim("proj", f"claimant{number}"), Claim):
            items.append(reply.item)
        return items

    taken = await asyncio.gather(*(take_all(number, store) for number, store in enumerate(stores)))
    assert all(len(set(items)) == len(items) for items in taken)
    found = Counter(item for items in taken for item in items)
    assert len(found) == ITEMS and set(found.values()) == {COPIES}
    assert sum(map(bool, taken)) > 1  # several got some
    assert (await check_work(stores[0])).out == ITEMS * COPIES


async def test_a_report_repeated_a_hundred_times_at_once_counts_once(make_store: MakeStore) -> None:
    """W5: the others are duplicates."""
    stores = [await make_store() for _ in range(CROWD)]
    await project(stores[0])
    await add(stores[0], "a")
    claim = await claimed(stores[0], "alice")
    reports = (
        stores[number % CROWD].work.claims.done("proj", "alice", "a", token=claim.token, reported={"data": 5})
        for number in range(100)
    )
    outcomes = Counter(result.outcome for result in await asyncio.gather(*reports))
    assert outcomes == {"done": 1, "duplicate": 99}
    await check_sums(stores[0])
    assert (await stores[0].work.leaderboard.top("proj", "bytes"))[0][1] == 5
