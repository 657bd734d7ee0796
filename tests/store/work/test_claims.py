"""Claims: the order of items, who gets none, and what counts as done (rows W2 to W10)."""

import pytest

from tests.store.harness import START, Store
from tests.store.work.harness import add, check_sums, check_work, claimed, project, refusal
from tracker.errors import ClientError
from tracker.store.work.records import Refusal, UnknownProject


async def test_a_claim_is_done_once(store: Store) -> None:
    await project(store)
    assert await add(store, "a") == 1
    claim = await claimed(store, "alice", address="192.0.2.1", version="1.2")
    assert (claim.item, claim.claimant, claim.queue, claim.address) == ("a", "alice", "todo", "192.0.2.1")
    assert (claim.claimed_at, claim.lease_ends) == (START, START + 21_600)
    claims = store.work.claims
    done = await claims.done("proj", "alice", "a", token=claim.token, reported={"data": 5}, id_text="x")
    assert done.counted
    assert (await claims.done("proj", "alice", "a", token=claim.token)).outcome == "duplicate"
    assert (await check_work(store)).done == 1
    await check_sums(store)
    assert await store.redis.zscore(store.keys.work_ranking("proj", "downloader_bytes"), "alice") == 5


async def test_a_released_item_is_given_out_again(store: Store) -> None:
    await project(store)
    await add(store, "a", copies=2)
    for _ in range(2):
        claim = await claimed(store, "alice")
        assert await store.work.claims.release("proj", "alice", "a", token=claim.token)
    assert not await store.work.claims.release("proj", "alice", "a")
    assert (await check_work(store)).wanted == 2


async def test_an_unknown_project_is_an_error(store: Store) -> None:
    with pytest.raises(UnknownProject):
        await store.work.claims.claim("none", "alice")
    with pytest.raises(UnknownProject):
        await store.work.projects.get("../x")


async def test_no_item_and_bad_numbers(store: Store) -> None:
    await project(store)
    assert await refusal(store, "alice") == Refusal("empty")
    for wrong in (-1, 1.5, True, 2**53, "1", None):
        with pytest.raises(ClientError, match="bytes"):
            await store.work.claims.done("proj", "alice", "a", reported={"data": wrong})


async def test_who_finished_much_still_gets_the_rest_of_a_queue(store: Store) -> None:
    """Copies that others shall have may fill the head of a queue."""
    await project(store, order="weakest")
    await add(store, *(f"item{number:02}" for number in range(60)), copies=2, place=1)
    for _ in range(60):
        claim = await claimed(store, "alice")
        assert (await store.work.claims.done("proj", "alice", claim.item)).counted
    assert await refusal(store, "alice") == Refusal("empty")
    assert (await check_work(store)).wanted == 60
