"""Records of claims that a site has overwritten: they hold up no other claim, and their items come back."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.store.harness import Store, info_hash
from tests.store.work.harness import add, check_sums, check_work, claim_of, claimed, project, refusal, register, trusted
from tests.store.work.test_state_machine import NO_RECORDS
from tests.store.work.volunteers import ITEM, announce, seed, seeding_project
from tracker.workers.work import LeaseWorker


async def overwrite(store: Store, item: str, claimant: str, record: str) -> None:
    await store.redis.hset(store.keys.work_claims("proj"), f"{item} {claimant}", record)


async def three_claims(store: Store, copies: int = 2, **fields: Any) -> None:
    """Bob has `a` and `c`, Alice has `b`."""
    await store.pass_time(0)
    await project(store, order="weakest", lease_seconds=60, **fields)
    for place, name in enumerate("abc"):
        await add(store, name, queue="secondary", place=-place, copies=copies)
        claim = await claimed(store, "alice" if name == "b" else "bob", version="1")
        assert claim.item == name


@pytest.mark.parametrize("record", NO_RECORDS)
async def test_the_others_of_a_batch_lapse_too(store: Store, record: str) -> None:
    """Its item comes back as well, and nothing is held against its claimant. The worker logs it, once."""
    await three_claims(store)
    await overwrite(store, "b", "alice", record)
    await store.pass_time(100)
    worker = LeaseWorker(store)
    with capture_logs() as logs:
        assert [await worker.run_once() for _ in range(2)] == [3, 0]
    assert [(entry["project"], entry["claims"]) for entry in logs] == [("proj", 1)]
    found = await check_work(store)
    assert (found.wanted, found.out) == (6, 0)
    (stats,) = await store.work.statistics.read(["proj"])
    assert (stats.totals["lapsed"], stats.totals["repaired"]) == (2, 1)
    assert (await trusted(store, "proj", "alice"), await trusted(store, "proj", "bob")) == (None, 1)


@pytest.mark.parametrize(("copies", "first"), [(1, "b"), (2, "c")])
async def test_a_claim_that_finds_it_first_goes_on(store: Store, copies: int, first: str) -> None:
    """Each claim ends those whose lease ended. The item is in the queue where its other copies are, else in `todo`."""
    await three_claims(store, copies)
    await overwrite(store, "b", "alice", "{}")
    await store.pass_time(100)
    assert (await claimed(store, "carol")).item == first
    found = await check_work(store)
    assert (found.wanted, found.out) == (3 * copies - 1, 1)


async def test_its_claimant_and_an_admin_can_still_end_it(store: Store) -> None:
    await three_claims(store, start_budget=3)
    for name, who in (("a", "bob"), ("b", "alice"), ("c", "bob")):
        await overwrite(store, name, who, "x")
    claims = (await store.work.claims.page("proj")).entries
    assert [(each.item, each.claimant, each.state) for each in claims] == [
        *(("a", "bob", ""), ("b", "alice", ""), ("c", "bob", ""))
    ]
    token = next(each.token for each in claims if each.item == "c")
    assert await store.work.claims.extend("proj", "bob", "c", token) == store.clock.now + 60
    assert (await store.work.claims.done("proj", "bob", "c", token=token, reported={"data": 5})).counted
    assert await store.work.claims.release("proj", "alice", "b")
    assert await store.work.claims.release_all("proj") == 1
    found = await check_work(store)
    assert (found.wanted, found.out, found.done) == (5, 0, 1)
    await check_sums(store)


async def test_a_record_that_is_gone_is_as_good_as_overwritten(store: Store) -> None:
    await three_claims(store)
    await store.redis.hdel(store.keys.work_claims("proj"), "b alice")
    await store.pass_time(100)
    assert await store.work.claims.lapse("proj") == 3
    assert (await check_work(store)).wanted == 6


@pytest.mark.parametrize("name", ["no-such-item alice", "nospace", "a carol"])
async def test_a_lease_of_no_claim_brings_no_item(store: Store, name: str) -> None:
    """A site wrote the lease too. No claimant holds the item, so it was never taken out of its queue."""
    await three_claims(store)
    await store.redis.zadd(store.keys.work_out("proj"), {name: 1})
    await store.redis.hset(store.keys.work_claims("proj"), name, "x")
    await store.pass_time(100)
    await store.work.claims.lapse("proj")
    assert (await check_work(store)).wanted == 6


async def test_the_others_are_verified(private: Store) -> None:
    """It is not verified, and lapses when its lease ends."""
    await seeding_project(private)
    await register(private, info_hash(2).hex())
    await add(private, info_hash(2).hex(), place=0)
    first = await claimed(private, "8")
    await claimed(private, "7")
    name = f"{first.item} 8"
    await private.redis.hset(private.keys.work_claims("proj"), name, '{"queue":"todo","place":"0","endpoint":{}}')
    await announce(private, event="s", torrent=1 if first.item != ITEM else 2)
    await seed(private, 5, torrent=1 if first.item != ITEM else 2)
    assert await private.redis.zscore(private.keys.work_checks("proj"), name) is None
    assert len(await private.work.log.newest("proj")) == 1
    await private.pass_time(21_600)
    await private.work.claims.lapse("proj")
    assert await claim_of(private, "proj", "8", first.item) is None
    assert (await check_work(private)).wanted == 1


async def test_a_claim_is_not_offered_beside_it_and_does_not_fail(store: Store) -> None:
    """Where addresses are verified, a claim reads those of the same torrent."""
    await store.pass_time(0)
    await project(store, kind="seeding", verify="address", keep_done_days=1)
    await register(store, ITEM)
    await add(store, ITEM, copies=2)
    await claimed(store, "ada")
    await overwrite(store, ITEM, "ada", '{"endpoint": ["x"]}')
    assert (await claimed(store, "bob")).item == ITEM
    assert (await refusal(store, "carol")).reason == "empty"
