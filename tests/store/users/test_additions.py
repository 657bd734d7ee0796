"""Additions to totals: beside announces, never below 0, and by a request that is repeated only once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.store.harness import ALICE, BOB, Store, update
from tests.store.sharding.harness import hash_in, one_and_several
from tracker.errors import ClientError
from tracker.store.users.importing import SavedUser


@pytest.fixture(params=["one", "several"])
async def store(redis_url: str, prefix: str, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """User 7, in one or in four shards."""
    async with one_and_several(redis_url, prefix, accounts="required", peer_memory=3600) as stores:
        store = stores[request.param == "several"]
        await store.users.add("7", ALICE)
        yield store


async def totals(store: Store, who: str = "7") -> tuple[int, int]:
    found = await store.users.find(who)
    return found.uploaded, found.downloaded


async def credit(store: Store, shard: int, uploaded: int) -> None:
    """An announce that credits this much in total, on the torrent of a shard."""
    store.clock.now += 1000
    await store.announce(update(1, info_hash=hash_in(shard, 0), passkey=ALICE, uploaded=uploaded, bytes_left=0))


async def test_additions_lose_nothing_that_announces_credit(store: Store) -> None:
    for shard in (0, 1):
        await store.announce(update(1, "s", info_hash=hash_in(shard, 0), passkey=ALICE, bytes_left=0))
    await asyncio.gather(
        *(credit(store, shard, 100) for shard in (0, 1)),
        *(store.users.edit("7", {"add_uploaded": 1000, "add_downloaded": 7}) for _ in range(5)),
        *(store.users.edit(ALICE, {"add_uploaded": "-1"}) for _ in range(5)),
    )
    assert await totals(store) == (5195, 35)
    await credit(store, 1, 150)
    assert await totals(store) == (5245, 35)


async def test_a_total_is_never_below_0_nor_too_large(store: Store) -> None:
    await store.announce(update(1, "s", info_hash=hash_in(1, 0), passkey=ALICE, bytes_left=0))
    await credit(store, 1, 100)
    await store.users.edit("7", {"add_uploaded": -150, "add_downloaded": -1})
    assert await totals(store) == (0, 0)
    await credit(store, 1, 130)
    assert await totals(store) == (30, 0)
    await store.users.edit("7", {"add_downloaded": 2**53 - 1})
    await store.users.edit("7", {"add_downloaded": 2**53 - 1})
    assert await totals(store) == (30, 2**53 - 1)


async def test_one_that_follows_a_total_that_was_set_adds_to_it(store: Store) -> None:
    await store.announce(update(1, "s", info_hash=hash_in(1, 0), passkey=ALICE, bytes_left=0))
    await credit(store, 1, 100)
    await store.users.edit("7", {"uploaded": 5000})
    await store.users.edit("7", {"add_uploaded": 1})
    assert await totals(store) == (5001, 0)


async def test_a_repeated_request_adds_once(store: Store) -> None:
    """Also one that got no reply, and one that comes twice at the same time."""
    gift = {"add_uploaded": 10, "can_leech": False}
    await asyncio.gather(*(store.users.edit("7", gift, "order-1") for _ in range(4)))
    assert await totals(store) == (10, 0)
    await store.users.edit("7", gift, "order-2")
    assert await totals(store) == (20, 0)
    assert await store.redis.ttl(store.keys.once("x")) == -2
    kept = [key async for key in store.redis.scan_iter(f"{store.keys.prefix}once:*")]
    assert len(kept) == 2 and all([0 < await store.redis.ttl(key) <= 7 * 86_400 for key in kept])


async def test_rows_of_a_repeated_batch_add_once(store: Store) -> None:
    """Those that a crash left out are applied by the next try."""
    rows: list[dict[str, str | int]] = [{"user_id": str(number), "add_uploaded": number} for number in range(1, 121)]
    await store.user_import.save(rows[:60], once="k")
    outcomes = await store.user_import.save(rows, once="k")
    saved = [each for each in outcomes if isinstance(each, SavedUser)]
    assert [each.totals for each in saved] == [(number, 0) for number in range(1, 121)]
    assert [each.new for each in saved] == [False] * 60 + [True] * 60
    for number in (1, 60, 61, 120):
        assert await totals(store, str(number)) == (number, 0)


@pytest.mark.parametrize(
    "fields",
    [{"add_uploaded": 1, "uploaded": 2}, {"add_uploaded": "x"}, {"add_downloaded": -(2**53)}, {"add_snatches": 1}],
)
async def test_an_invalid_addition_changes_nothing(store: Store, fields: dict[str, int | str]) -> None:
    before = await store.users.find("7")
    with pytest.raises(ClientError):
        await store.users.edit("7", fields)
    (outcome,) = await store.user_import.save([{"user_id": "7", **fields}])
    assert isinstance(outcome, ClientError)
    with pytest.raises(ClientError):
        await store.users.edit(BOB, {"add_uploaded": 1})
    assert await store.users.find("7") == before
