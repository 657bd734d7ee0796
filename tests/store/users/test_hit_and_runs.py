"""Hit and runs: the index behind the list, and clearing them (rows T16, T22)."""

import pytest

from loadtest.invariants import check_invariants
from tests.store.harness import ALICE, BOB, START, Store, info_hash, update
from tracker.errors import ClientError
from tracker.store.users import hit_and_runs
from tracker.store.users.hit_and_runs import HitAndRuns

OWED = 500
"""Bytes that make a hit and run in the fixture `private`."""


async def run_unavailable(store: Store, *torrents: int, passkey: str = ALICE, downloaded: int = OWED) -> None:
    """The user downloads and leaves at once, each torrent under a different peer ID."""
    for torrent in torrents:
        peer = torrent + (100 if passkey == BOB else 0)
        await store.announce(update(peer, "s", torrent, passkey=passkey))
        store.clock.now += 1
        await store.announce(update(peer, "x", torrent, passkey=passkey, downloaded=downloaded))


async def ids(store: Store, *torrents: int) -> list[str]:
    return [(await store.torrent(info_hash(torrent)))["tid"] for torrent in torrents]


async def test_users_with_the_highest_number_of_hit_and_runs_come_first(private: Store) -> None:
    await run_unavailable(private, 1)
    await run_unavailable(private, 1, 2, 3, passkey=BOB)
    assert await private.users.hit_and_runs() == [("8", 3), ("7", 1)]
    assert await private.users.hit_and_run_count() == 2
    assert await private.users.hit_and_runs(1, 1) == [("7", 1)]
    assert await private.users.hit_and_runs(2) == []
    await check_invariants(private.redis, private.keys)


async def test_leaving_twice_counts_once_and_seeding_clears_it(private: Store) -> None:
    """A reap counts as leaving."""
    await run_unavailable(private, 1)
    await run_unavailable(private, 1)
    assert await private.users.hit_and_runs() == [("7", 1)]
    await private.announce(update(2, "s", 2, passkey=ALICE))
    private.clock.now += 1
    await private.announce(update(2, "u", 2, passkey=ALICE, downloaded=OWED))
    assert await private.silence(update(2, torrent=2), (await ids(private, 2))[0]) == 1
    assert await private.users.hit_and_runs() == [("7", 2)]
    for torrent in (1, 2):
        await private.announce(update(9, "s", torrent, passkey=ALICE, bytes_left=0))
        private.clock.now += 1000
        await private.announce(update(9, "u", torrent, passkey=ALICE, bytes_left=0))
        await check_invariants(private.redis, private.keys)
    assert await private.users.hit_and_runs() == []
    assert await private.redis.exists(private.keys.hit_and_runs()) == 0


async def test_a_deleted_user_has_no_hit_and_runs(private: Store) -> None:
    await run_unavailable(private, 1, 2)
    await run_unavailable(private, 1, passkey=BOB)
    await private.users.delete("7")
    assert await private.users.hit_and_runs() == [("8", 1)]


async def test_an_index_of_another_type_fails_no_announce(private: Store) -> None:
    """The index is derived from the sets and rebuilt from them."""
    await private.redis.set(private.keys.hit_and_runs(), "x")
    await run_unavailable(private, 1, 2)
    assert await private.torrents_of("7", "hnr") == await ids(private, 1, 2)
    await private.users.forgive("7", "2")
    await private.users.delete("8")
    await private.redis.delete(private.keys.hit_and_runs())
    assert await private.users.reindex_hit_and_runs() == 1
    await check_invariants(private.redis, private.keys)


# Forgiving


async def test_one_hit_and_run_is_forgiven_and_does_not_return_at_once(private: Store) -> None:
    """Leaving again is no hit and run until the user has downloaded as much as makes one."""
    await run_unavailable(private, 1, 2)
    first, second = await ids(private, 1, 2)
    assert await private.users.forgive("7", first) == 1
    assert await private.torrents_of("7", "hnr") == [second]
    assert await private.users.hit_and_runs() == [("7", 1)]
    await run_unavailable(private, 1, downloaded=0)
    await run_unavailable(private, 1, downloaded=100)  # a client's counters restart with each start
    assert await private.torrents_of("7", "hnr") == [second]
    await run_unavailable(private, 1, downloaded=1)
    assert await private.users.hit_and_runs() == [("7", 2)]
    await check_invariants(private.redis, private.keys)


async def test_all_hit_and_runs_of_a_user_are_forgiven(private: Store) -> None:
    await run_unavailable(private, *range(1, 6))
    await run_unavailable(private, 1, passkey=BOB)
    assert await private.users.forgive("7") == 5
    assert await private.torrents_of("7", "hnr") == []
    assert await private.users.hit_and_runs() == [("8", 1)]
    await run_unavailable(private, *range(1, 6), downloaded=100)
    assert await private.users.hit_and_runs() == [("8", 1)]
    await check_invariants(private.redis, private.keys)


async def test_many_hit_and_runs_are_forgiven_in_pages(private: Store) -> None:
    """A site may have written them: without an account only the sets are written."""
    many = [str(n) for n in range(1, 2001)]
    await private.redis.sadd(private.keys.user_set(7, "hnr"), *many)
    before = set(await private.dump()) - {private.keys.user_set(7, "hnr").encode()}
    assert await private.users.reindex_hit_and_runs() == 1
    assert await private.users.hit_and_runs() == [("7", 2000)]
    assert await private.users.forgive("7") == 2000
    assert set(await private.dump()) == before


async def test_forgiving_a_user_without_hit_and_runs_does_nothing(private: Store) -> None:
    await private.announce(update(1, "s", passkey=ALICE, downloaded=OWED))
    before = await private.dump()
    assert await private.users.forgive("7", "1") == 0
    assert await private.users.forgive("7", "99") == 0
    assert await private.users.forgive("7") == 0
    assert await private.users.forgive("12345") == 0
    assert await private.dump() == before


async def test_forgiving_is_published(private: Store) -> None:
    """T23."""
    await run_unavailable(private, 1)
    async with private.connection.subscription(channels=[private.keys.channel("users")]) as messages:
        assert await private.users.forgive("8") == 0
        assert await private.users.forgive("7") == 1
        assert (await anext(messages))[1] == b"7"


# Rebuilding the index


async def test_an_older_store_gets_its_index(private: Store) -> None:
    """Wrong entries that another program wrote are removed."""
    await run_unavailable(private, 1, 2)
    await run_unavailable(private, 3, passkey=BOB)
    await private.redis.delete(private.keys.hit_and_runs())
    assert await private.users.reindex_hit_and_runs() == 2
    assert await private.users.hit_and_runs() == [("7", 2), ("8", 1)]
    await private.redis.zadd(private.keys.hit_and_runs(), {"7": 50, "99": 3, "who?": 1})
    assert await private.users.reindex_hit_and_runs() == 2
    await check_invariants(private.redis, private.keys)


async def test_reindexing_leaves_unrelated_keys_alone(private: Store) -> None:
    await run_unavailable(private, 1)
    await private.redis.set(private.keys.user_set(99, "hnr"), "not a set")
    await private.redis.sadd("other:" + private.keys.user_set(98, "hnr"), "1")
    try:
        assert await private.users.reindex_hit_and_runs() == 1
    finally:
        await private.redis.delete("other:" + private.keys.user_set(98, "hnr"))


# Details


async def test_sets_are_read_in_pages(private: Store) -> None:
    many = {str(n) for n in range(1, 2001)}
    await private.redis.sadd(private.keys.user_set(7, "complete"), *many)
    found: set[str] = set()
    cursor, pages = -1, 0
    while cursor:
        cursor, page = await private.users.torrents_page("7", "complete", max(cursor, 0), 100)
        found.update(page)
        pages += 1
    assert found == many and pages > 10
    assert await private.users.torrents_page("7", "hnr") == (0, [])
    assert await private.users.set_sizes("7") == {"active": 0, "complete": 2000, "incomplete": 0, "hnr": 0}
    with pytest.raises(ClientError, match="no such set"):
        await private.users.torrents_page("7", "t:1")


async def test_a_user_on_a_torrent_is_described(private: Store) -> None:
    await run_unavailable(private, 1)
    found = (await private.users.on_torrents("7", ["1"]))[0]
    assert (found["downloaded"], found["total_time"], found["peers"]) == (str(OWED), "1", "0")
    assert (found["from"], found["until"]) == (str(START), str(START + 1))
    assert (await private.users.on_torrents("8", ["1"]))[0] == {}
    await private.redis.set(private.keys.user_torrent(7, 3), "not a hash")
    rows = await private.users.on_torrents("7", ["2", "1", "3"])
    assert rows == [{}, found, {}]
    assert await private.users.on_torrents("7", []) == []


async def test_users_are_counted(private: Store) -> None:
    assert await private.users.count() == 2
    await private.users.delete("8")
    assert await private.users.count() == 1


def walker(store: Store) -> HitAndRuns:
    """A walk that begins at the first user."""
    return HitAndRuns(store.shards, store.rules, store.clock)


async def dropped(store: Store) -> int:
    """Removes them in one walk over all users who have any."""
    walk = walker(store)
    total = await walk.drop()
    while any(walk._cursors.values()):
        total += await walk.drop()
    return total


async def test_hit_and_runs_of_removed_torrents_are_removed(private: Store) -> None:
    """They can no longer be seeded. Torrent 3 still has a peer: its hit and runs stay until it is empty."""
    await run_unavailable(private, 1, 2, 3)
    await run_unavailable(private, 1, passkey=BOB)
    second, third = await ids(private, 2, 3)
    await private.announce(update(9, "s", 3, passkey=BOB))
    assert await dropped(private) == 0
    for torrent in (1, 3):
        assert await private.torrents.remove(info_hash(torrent))
    assert await dropped(private) == 2
    assert await private.torrents_of("7", "hnr") == sorted([second, third])
    assert await private.users.hit_and_runs() == [("7", 2)]
    await check_invariants(private.redis, private.keys)
    assert await private.silence(update(9, torrent=3), third) == 1
    assert await dropped(private) == 1
    assert await private.torrents_of("7", "hnr") == [second]
    await check_invariants(private.redis, private.keys)


async def test_a_walk_covers_many_users_and_torrents(private: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page of each at a time; a set of the wrong type stops no other."""
    monkeypatch.setattr(hit_and_runs, "USERS_PER_CALL", 10)
    private.hit_and_runs = walker(private)
    for user in range(1000, 1300):
        await private.redis.sadd(private.keys.user_set(user, "hnr"), *range(5000, 5000 + user % 7 + 1))
    await private.redis.sadd(private.keys.user_set(1001, "hnr"), *range(10_000, 10_700))
    await private.redis.set(private.keys.user_set(999, "hnr"), "x")
    await private.users.reindex_hit_and_runs()
    await private.redis.zadd(private.keys.hit_and_runs(), {"999": 1})
    assert await dropped(private) == 700 + sum(user % 7 + 1 for user in range(1000, 1300))
    assert await private.users.hit_and_runs() == [("999", 1)]
