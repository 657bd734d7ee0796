"""Claims: the order of items, who gets none, and what counts as done (rows W2 to W10)."""

from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ResponseError

from tests.store.harness import START, Store, info_hash
from tests.store.work.harness import (
    Copies,
    add,
    check_sums,
    check_work,
    claim_of,
    claimed,
    project,
    refusal,
    register,
    trusted,
)
from tests.store.work.volunteers import announce
from tracker.errors import ClientError
from tracker.store.work.records import NewItem, Refusal, UnknownProject


async def test_a_claim_is_done_once(store: Store) -> None:
    await project(store)
    assert await add(store, "a") == 1
    claim = await claimed(store, "alice", address="192.0.2.1", version="1.2")
    assert (claim.item, claim.claimant, claim.queue, claim.address) == ("a", "alice", "todo", "192.0.2.1")
    assert (claim.claimed_at, claim.lease_ends) == (START, START + 604_800)
    claims = store.work.claims
    done = await claims.done("proj", "alice", "a", token=claim.token, reported={"data": 5}, id_text="x")
    assert done.counted
    assert (await claims.done("proj", "alice", "a", token=claim.token)).outcome == "duplicate"
    assert (await check_work(store)).done == 1
    await check_sums(store)
    assert await store.redis.zscore(store.keys.work_ranking("proj", "downloader_bytes"), "alice") == 5


async def test_the_list_of_claims_shows_who_has_what_since_when_and_until_when(store: Store) -> None:
    """W4."""
    await project(store)
    await add(store, "a", "b")
    for claimant, address in (("alice", "192.0.2.1"), ("bob", "2001:db8::1")):
        await claimed(store, claimant, address=address)
        store.clock.now += 60
    found = (await store.work.claims.page("proj")).entries
    rows = [(each.claimant, each.address, each.claimed_at, each.lease_ends) for each in found]
    assert rows == [
        ("alice", "192.0.2.1", START, START + 604_800),
        ("bob", "2001:db8::1", START + 60, START + 60 + 604_800),
    ]
    assert {each.item for each in found} == {"a", "b"}


async def lapsed(store: Store, **fields: Any) -> str:
    """The token of alice's claim of item a, whose lease has ended."""
    await project(store, lease_seconds=60, start_budget=4, **fields)
    await store.pass_time(0)
    await add(store, "a")
    token = (await claimed(store, "alice")).token
    await store.pass_time(61)
    assert await store.work.claims.lapse("proj") == 1
    return token


@pytest.mark.parametrize("has_token", [False, True])
async def test_what_is_done_after_the_lease_ended_counts_once(store: Store, has_token: bool) -> None:
    """The work is not lost, nor given out again, and the claimant may have as many claims as before."""
    token = await lapsed(store)
    assert await trusted(store, "proj", "alice") == 2
    done = [await store.work.claims.done("proj", "alice", "a", token=token * has_token) for _ in range(2)]
    assert [each.outcome for each in done] == ["done", "duplicate"]
    assert await trusted(store, "proj", "alice") == 5
    assert await refusal(store, "bob") == Refusal("empty")
    assert (await check_work(store)).done == 1
    await check_sums(store)


@pytest.mark.parametrize("has_token", [False, True])
async def test_who_finishes_late_spares_the_next_one_the_work(store: Store, has_token: bool) -> None:
    token = await lapsed(store)
    other = await claimed(store, "bob")
    assert (await store.work.claims.done("proj", "alice", "a", token=token * has_token)).counted
    assert await store.work.claims.extend("proj", "bob", "a", other.token) is None
    assert (await store.work.claims.done("proj", "bob", "a")).outcome == "stranger"
    assert (await check_work(store)).done == 1


async def test_what_another_has_finished_does_not_count_late(store: Store) -> None:
    token = await lapsed(store)
    await claimed(store, "bob")
    assert (await store.work.claims.done("proj", "bob", "a")).counted
    for each in (token, ""):
        assert (await store.work.claims.done("proj", "alice", "a", token=each)).outcome == "stranger"
    assert await trusted(store, "proj", "alice") == 2


async def test_a_late_report_takes_a_copy_that_is_wanted(store: Store) -> None:
    await project(store)
    await add(store, "a", copies=3)
    await claimed(store, "alice")
    assert (await store.work.claims.done("proj", "bob", "a")).counted
    assert await check_work(store) == Copies(1, 1, 1, 3)


async def test_a_late_report_of_wrong_domains_changes_no_claim(store: Store) -> None:
    await project(store, domains=("data",))
    await add(store, "a")
    await claimed(store, "alice")
    result = await store.work.claims.done("proj", "bob", "a", reported={"x": 1})
    assert result.outcome == "domains" and await claim_of(store, "proj", "alice", "a")
    assert len(await store.work.blocks.log("proj")) == 1


async def test_a_lease_has_a_default_by_kind_and_a_maximum(store: Store) -> None:
    assert (await project(store)).lease_seconds == 7 * 86_400
    seeding = await project(store, "seeds", kind="seeding", verify="announce", keep_done_days=1)
    assert seeding.lease_seconds == 6 * 3600
    edit = store.work.projects.edit
    assert (await edit("proj", {"lease_seconds": 60})).lease_seconds == 60
    assert (await edit("proj", {"lease_seconds": 0})).lease_seconds == 7 * 86_400
    with pytest.raises(ClientError):
        await edit("proj", {"lease_seconds": 367 * 86_400})


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


async def test_a_thousand_own_copies_at_the_head_of_a_queue_hide_nothing_for_ever(store: Store) -> None:
    """In the order of places, a claim looks at 1,000 items, and at 1,000 more, further on each time."""
    await project(store, order="weakest", start_budget=10_000, budget=10_000)
    own = [f"item{number:04}" for number in range(3500)]
    await store.work.items.add("proj", [NewItem(name, copies=2, place=1.0) for name in own])
    at = {f"{name} alice": 1 for name in own}
    await store.redis.zadd(store.keys.work_done_by("proj"), at)
    await add(store, "last", place=2)
    assert [(await refusal(store, "alice")).reason for _ in range(2)] == ["empty", "empty"]
    assert (await claimed(store, "alice")).item == "last"
    await add(store, "first", place=0)
    assert (await claimed(store, "alice")).item == "first"
    assert [(await refusal(store, "alice")).reason for _ in range(9)] == ["empty"] * 9
    assert (await claimed(store, "bob")).item == own[0]


async def test_who_seeds_a_torrent_is_not_offered_it(private: Store) -> None:
    """It would be credit without a new seeder. Who stopped, or still downloads, may have it."""
    await project(private, kind="seeding", verify="announce", keep_done_days=1, order="weakest")
    await register(private, *(info_hash(n).hex() for n in (1, 2, 3)))
    for number in (1, 2, 3):
        await add(private, info_hash(number).hex(), place=number)
    await announce(private, event="s")
    await announce(private, event="s", torrent=2)
    await announce(private, event="s", torrent=3, bytes_left=100)
    assert (await claimed(private, "7")).item == info_hash(3).hex()
    assert (await refusal(private, "7")).reason == "empty"
    assert (await claimed(private, "8")).item == info_hash(1).hex()
    await announce(private, event="x", torrent=2)
    assert (await claimed(private, "7")).item == info_hash(2).hex()
    await check_work(private)


async def test_who_may_not_download_gets_only_what_its_own_queue_holds(private: Store) -> None:
    await project(private, kind="seeding", verify="announce", keep_done_days=1)
    await register(private, *(info_hash(n).hex() for n in (1, 2)))
    await add(private, info_hash(1).hex())
    assert (await refusal(private, "7", may_download=False)).reason == "empty"
    await add(private, info_hash(2).hex(), claimants=("7",))
    assert (await claimed(private, "7", may_download=False)).item == info_hash(2).hex()
    assert (await refusal(private, "7", may_download=False)).reason == "empty"
    assert (await claimed(private, "7")).item == info_hash(1).hex()


async def test_what_no_announce_can_use_is_passed_over(private: Store) -> None:
    """A program overwrote the torrent, or the account of the user there, with a key of a wrong type."""
    await project(private, kind="seeding", verify="announce", keep_done_days=1, order="weakest")
    await register(private, *(info_hash(n).hex() for n in (1, 2, 3)))
    for number in (1, 2, 3):
        await add(private, info_hash(number).hex(), place=number)
    for key in (private.keys.torrent(info_hash(1)), f"{private.keys.prefix}u:7:t:2"):
        await private.redis.unlink(key)
        await private.redis.set(key, "wrong type")
    assert (await claimed(private, "7")).item == info_hash(3).hex()
    assert (await refusal(private, "7")).reason == "empty"
    assert (await claimed(private, "8")).item == info_hash(2).hex()
    await check_work(private)


WRONG_TYPES = [
    (call, key)
    for call in ("claim", "done", "release", "lapse", "complete")
    for key in ("w:proj:out", "w:proj:out:tokens", "w:proj:claims", "w:proj:by:7", "w:proj:holders")
]
WRONG_TYPES += [("claim", "lease"), ("claim", "w:proj:checks"), ("complete", "w:proj:checks")]


@pytest.mark.parametrize(("call", "key"), WRONG_TYPES)
async def test_keys_of_claims_of_a_wrong_type_fail_before_the_first_write(store: Store, call: str, key: str) -> None:
    claims = store.work.claims
    await project(
        store, kind="seeding", verify="none" if call == "done" else "announce", keep_done_days=1, lease_seconds=60
    )
    await store.pass_time(0)
    await register(store, "1" * 40, "2" * 40)
    await add(store, "1" * 40, "2" * 40)
    claim = await claimed(store, "7")
    if call == "lapse":
        await store.pass_time(100)
    await store.redis.unlink(store.keys.prefix + key)
    await store.redis.set(store.keys.prefix + key, "wrong type")
    before = await store.dump()
    calls: dict[str, Callable[[], Any]] = {
        "claim": lambda: claims.claim("proj", "7"),
        "done": lambda: claims.done("proj", "7", claim.item),
        "release": lambda: claims.release("proj", "7", claim.item),
        "lapse": lambda: claims.lapse("proj"),
        "complete": lambda: claims.complete("proj", "7", claim.item, seconds=9),
    }
    with pytest.raises(ResponseError, match=r"WRONGTYPE|not an integer"):
        await calls[call]()
    assert await store.dump() == before
