"""Rows of users on torrents that a site brings along."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.store.harness import ALICE, Store, info_hash, running, update
from tracker.errors import ClientError
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

RULES = SwarmRules(
    accounts="required", peer_memory=3600, hnr_min_bytes=3, hnr_threshold=600, max_changes=1000
)
ROW: dict[str, Any] = {
    "user_id": "7",
    "uploaded": 1000,
    "downloaded": 500,
    "credited_uploaded": 2000,
    "credited_downloaded": 0,
    "seed_seconds": 900,
    "total_seconds": 1000,
    "completed_at": 1_700_000_000,
    "first_seen": 1_600_000_000,
    "last_seen": 1_700_000_500,
}


@pytest.fixture(params=[1, 4])
async def store(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> AsyncIterator[Store]:
    """ALICE is user 7."""
    async with running(Store(redis_url, Keys(prefix), RULES, shards=request.param)) as store:
        await store.users.add("7", ALICE, uploaded=10, downloaded=20)
        yield store


async def known(store: Store, number: int = 1) -> str:
    """The id of a registered torrent."""
    (added,) = await store.torrents.add_many([(info_hash(number), {})])
    assert not isinstance(added, ClientError)
    return added[0]


async def test_announces_add_to_it_and_totals_stay(store: Store) -> None:
    torrent_id = await known(store)
    row = {**ROW, "torrent_id": torrent_id}
    assert await store.user_history.save([row]) == [True]
    assert await store.user_history.save([row]) == [False]
    user = await store.users.by_id("7")
    assert user is not None and (user.uploaded, user.downloaded, user.snatches) == (10, 20, 0)
    await store.announce(update(1, "s", passkey=ALICE, bytes_left=0))
    await store.pass_time(100)
    await store.announce(update(1, "u", passkey=ALICE, bytes_left=0, uploaded=5))
    account = await store.users.torrent("7", torrent_id)
    assert account is not None
    assert (account["uploaded"], account["downloaded"], account["seed_time"]) == ("1005", "500", "1000")
    assert (account["extra_up"], account["extra_dn"]) == ("1000", "-500")
    assert (account["first_seen"], account["completed_at"]) == ("1600000000", "1700000000")
    assert await store.users.torrents("7", "complete") == [torrent_id]


async def test_a_row_changes_totals_where_that_is_asked_for_and_only_once(store: Store) -> None:
    row = {**ROW, "torrent_id": await known(store)}
    for _ in range(2):
        await store.user_history.save([row], add_to_totals=True)
        await store.user_sums.save(["7"])
    user = await store.users.by_id("7")
    assert user is not None and (user.uploaded, user.downloaded, user.snatches) == (2010, 20, 1)


async def test_an_immune_torrent_makes_no_hit_and_run_and_one_that_is_brought_along_is_known(
    store: Store,
) -> None:
    first, second = await known(store, 1), await known(store, 2)
    rows = [
        {"user_id": "7", "torrent_id": first, "immune": True},
        {"user_id": "7", "torrent_id": second, "hit_and_run": True},
    ]
    assert await store.user_history.save(rows) == [True, True]
    assert await store.users.torrents("7", "hnr") == [second]
    await store.announce(update(1, "s", passkey=ALICE))
    await store.pass_time(10)
    await store.announce(update(1, "x", passkey=ALICE, downloaded=1000, bytes_left=0))
    assert await store.users.torrents("7", "hnr") == [second]
    assert await store.user_history.save([{**rows[1], "hit_and_run": False}]) == [False]
    assert not await store.users.torrents("7", "hnr")


async def test_an_invalid_row_changes_nothing_and_the_others_are_written(store: Store) -> None:
    torrent_id = await known(store)
    rows = [
        {"user_id": "9", "torrent_id": torrent_id, "uploaded": 1},
        {"user_id": "7", "torrent_id": "999", "uploaded": 1},
        {"user_id": "7", "torrent_id": torrent_id, "uploaded": -1},
        {"user_id": "7", "torrent_id": torrent_id, "color": 1},
        {"user_id": "7", "uploaded": 1},
        {"user_id": "7", "torrent_id": torrent_id, "uploaded": 1},
    ]
    *errors, last = await store.user_history.save(rows)
    assert [each.text for each in errors if isinstance(each, ClientError)] == [
        "unknown user",
        "unknown torrent",
        "uploaded is a whole number up to 9007199254740991",
        "a user on a torrent has no such field",
        "torrent_id must be a positive number",
    ]
    assert last is True
