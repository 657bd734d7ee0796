"""Rows of users on torrents that a site brings along."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.store.harness import ALICE, BOB, START, Store, info_hash, peer_id, running, update
from tracker.errors import ClientError
from tracker.store.schema.keys import Keys
from tracker.store.schema.record import shown
from tracker.store.swarms.rules import SwarmRules
from tracker.store.users.history import _SETS_A_ROUND, PeerThere

RULES = SwarmRules(accounts="required", peer_memory=3600, hnr_min_bytes=3, hnr_threshold=600, max_changes=1000)
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
    account = (await store.users.on_torrents("7", [torrent_id]))[0]
    assert (account["uploaded"], account["downloaded"], account["seed_time"]) == ("1005", "500", "1000")
    assert (account["extra_up"], account["extra_dn"]) == ("1000", "-500")
    assert (account["first_seen"], account["completed_at"]) == ("1600000000", "1700000000")
    assert await store.torrents_of("7", "complete") == [torrent_id]


async def test_a_row_changes_totals_where_that_is_asked_for_and_only_once(store: Store) -> None:
    row = {**ROW, "torrent_id": await known(store)}
    for _ in range(2):
        await store.user_history.save([row], add_to_totals=True)
        await store.user_sums.save(["7"])
    user = await store.users.by_id("7")
    assert user is not None and (user.uploaded, user.downloaded, user.snatches) == (2010, 20, 1)


async def test_an_immune_torrent_makes_no_hit_and_run_and_one_that_is_brought_along_is_known(store: Store) -> None:
    first, second = await known(store, 1), await known(store, 2)
    rows = [
        {"user_id": "7", "torrent_id": first, "immune": True},
        {"user_id": "7", "torrent_id": second, "hit_and_run": True},
    ]
    assert await store.user_history.save(rows) == [True, True]
    assert await store.torrents_of("7", "hnr") == [second]
    await store.announce(update(1, "s", passkey=ALICE))
    await store.pass_time(10)
    await store.announce(update(1, "x", passkey=ALICE, downloaded=1000, bytes_left=0))
    assert await store.torrents_of("7", "hnr") == [second]
    assert await store.user_history.save([{**rows[1], "hit_and_run": False}]) == [False]
    assert not await store.torrents_of("7", "hnr")


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
        "unknown user: add it first",
        "unknown torrent: register it first, with this id",
        "uploaded is a whole number up to 9007199254740991",
        "a user on a torrent has no such field",
        "torrent_id must be a positive number",
    ]
    assert last is True


async def rows_of(store: Store, after: str = "0") -> list[dict[str, Any]]:
    parts = [part async for _, part in store.user_history.parts(after)]
    return sorted((shown(row) for part in parts for row in part), key=str)


async def test_rows_are_read_as_announces_left_them_and_come_back_after_a_wipe(store: Store) -> None:
    """Of more sets than one round looks into, of a hit-and-run, an immune torrent, and one with another credit."""
    ids = [await known(store, number) for number in range(1, 4)]
    users = [str(number) for number in range(100, 100 + _SETS_A_ROUND + 5)]
    await store.user_import.save([{"user_id": each} for each in users])
    await store.user_history.save([{"user_id": each, "torrent_id": ids[2], "uploaded": 1} for each in users])
    await store.users.edit("7", {"upload_multiplier": "3"})
    await store.announce(update(1, "s", passkey=ALICE, torrent=1))
    await store.announce(update(2, "s", passkey=ALICE, torrent=2, bytes_left=0))
    await store.pass_time(100)
    await store.announce(update(1, "x", passkey=ALICE, torrent=1, uploaded=50, downloaded=80))
    await store.announce(update(2, "u", passkey=ALICE, torrent=2, uploaded=7, bytes_left=0))
    await store.user_history.save([{"user_id": "7", "torrent_id": ids[1], "immune": True}])
    found = await rows_of(store)
    first, second = (
        next(row for row in found if (row["user_id"], row["torrent_id"]) == ("7", each)) for each in ids[:2]
    )
    assert first == {
        "user_id": "7",
        "torrent_id": ids[0],
        "uploaded": 50,
        "downloaded": 80,
        "credited_uploaded": 150,
        "credited_downloaded": 80,
        "seed_seconds": 0,
        "total_seconds": 100,
        "completed_at": 0,
        "first_seen": START,
        "last_seen": START + 100,
        "hit_and_run": True,
        "immune": False,
    }
    assert (second["seed_seconds"], second["immune"], second["hit_and_run"]) == (100, True, False)
    assert len(found) == 2 + len(users) and await rows_of(store, "7") == [row for row in found if row["user_id"] != "7"]
    for shard in store.shards:
        await store.redis.delete(*[shard.keys.user_torrent("7", each) for each in ids])
        await store.redis.delete(*[shard.keys.user_set("7", name) for name in ("complete", "incomplete", "hnr")])
    assert len(await rows_of(store)) == len(users)
    assert set(await store.user_history.save([row for row in found if row["user_id"] == "7"])) == {True}
    assert await rows_of(store) == found


async def test_a_row_that_was_never_completed_says_so_and_an_end_of_zero_is_none(store: Store) -> None:
    torrent_id = await known(store)
    row = {"user_id": "7", "torrent_id": torrent_id, "completed_at": 0, "downloaded": 5}
    assert await store.user_history.save([row], add_to_totals=True) == [True]
    assert await store.torrents_of("7", "incomplete") == [torrent_id]
    await store.user_sums.save(["7"])
    user = await store.users.by_id("7")
    assert user is not None and user.snatches == 0
    await store.announce(update(1, "s", passkey=ALICE))
    await store.announce(update(1, "c", passkey=ALICE, bytes_left=0))
    account = (await store.users.on_torrents("7", [torrent_id]))[0]
    assert account["completed_at"] == str(START)


async def test_rows_on_removed_torrents_are_left_out(store: Store) -> None:
    torrent_id = await known(store)
    await store.user_history.save([{"user_id": "7", "torrent_id": torrent_id, "uploaded": 5}])
    await store.torrents.remove(info_hash(1))
    assert await rows_of(store) == []


async def test_peers_of_a_former_tracker_count_on_from_there(store: Store) -> None:
    """Active ones that are new here. Those that are known here do with ``again`` only: they may announce meanwhile."""
    await store.users.add("8", BOB)
    torrent_id, keys = await known(store), store.shard(info_hash(1)).keys
    await store.announce(update(4, "s", passkey=ALICE, uploaded=50, bytes_left=0))
    now = int(store.clock.now)

    def there(number: int, *, user: str = "7", torrent: str = torrent_id, active: int = 1) -> PeerThere:
        return PeerThere(user, torrent, peer_id(number).hex(), 1000, 0, 0, now, active)

    async def credited(number: int, up: int) -> int:
        before = (await store.users.find("7")).uploaded
        await store.announce(update(number, "u", passkey=ALICE, uploaded=up, bytes_left=0))
        return (await store.users.find("7")).uploaded - before

    rows = [there(1), there(2, active=0), there(3, user="9"), there(4), there(5, torrent="99"), there(6, user="8")]
    await store.redis.set(keys.peer(torrent_id, peer_id(6)), "of another program")
    await store.user_history.remember_peers(rows, again=False)
    await store.pass_time(60)
    absent = [keys.peer(torrent_id, peer_id(number)) for number in (2, 3)] + [keys.peer("99", peer_id(5))]
    assert [await store.redis.exists(key) for key in absent] == [0, 0, 0]
    assert 0 < await store.redis.ttl(keys.peer(torrent_id, peer_id(1))) <= RULES.peer_memory
    assert [await credited(number, 1100) for number in (1, 2, 4)] == [100, 0, 1050]
    assert await store.redis.hget(keys.torrent(info_hash(1)), "snatches") == b"0"
    await store.user_history.remember_peers([there(1), there(4), there(2, user="8")], again=True)
    await store.pass_time(60)
    assert [await credited(number, 1100) for number in (1, 2, 4)] == [100, 0, 100]


async def test_a_peer_is_remembered_of_a_user_who_has_not_announced_in_its_shard(store: Store) -> None:
    row = PeerThere("7", await known(store), peer_id(1).hex(), 1000, 0, 0, int(store.clock.now), 1)
    await store.user_history.remember_peers([row], again=False)
    await store.pass_time(60)
    await store.announce(update(1, "u", passkey=ALICE, uploaded=1100, bytes_left=0))
    assert (await store.users.find("7")).uploaded == 10 + 100


async def test_without_accounts_no_peer_is_remembered(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), SwarmRules(peer_memory=3600))) as store:
        await store.users.add("7", ALICE)
        row = PeerThere("7", await known(store), peer_id(1).hex(), 1000, 0, 0, int(store.clock.now), 1)
        await store.user_history.remember_peers([row], again=False)
        assert not await store.redis.exists(store.keys.peer(row.torrent_id, peer_id(1)))


async def test_all_users_are_walked_although_one_is_deleted_meanwhile(private: Store) -> None:
    """A walk by the number of users before would pass over the next one."""
    seen: list[str] = []
    async for ids in private.user_history.user_ids(1):
        seen += ids
        await private.users.delete(ids[0])
    assert seen == ["7", "8"]
