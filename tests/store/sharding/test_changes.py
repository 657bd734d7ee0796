"""The change feeds of four shards as one."""

from collections.abc import Awaitable
from operator import attrgetter
from typing import Any

import pytest

from tests.store.harness import ALICE, Store, update
from tests.store.sharding.harness import SHARDS, hash_in
from tests.waiting import eventually
from tracker.errors import Conflict
from tracker.store.changes.changes import FIRST

TORRENT = attrgetter("info_hash")


async def join(store: Store, numbers: range) -> list[str]:
    """Peers join torrents of all shards, one after the other. Returns the info hashes in this order."""
    hashes = [hash_in(number % SHARDS, number) for number in numbers]
    for number, info_hash in zip(numbers, hashes, strict=True):
        await store.announce(update(number, "s", info_hash=info_hash))
    return [info_hash.hex() for info_hash in hashes]


async def settled(store: Store) -> None:
    """Returns when the server's clock is past the millisecond of the last change."""
    last = max(int(change.id.partition("-")[0]) for change in await store.changes.newest(1))
    while True:
        seconds, micros = await store.redis.time()
        if 1000 * seconds + micros // 1000 > last:
            return


async def test_the_feed_is_in_order_and_continues_at_any_position(store: Store) -> None:
    expected = await join(store, range(20))
    await settled(store)
    page = await store.changes.after(FIRST, 100)
    assert not page.gap
    joined = [change.info_hash for change in page.changes]
    assert sorted(map(str, joined)) == sorted(expected)
    times = [int(change.id.partition("-")[0]) for change in page.changes]
    assert times == sorted(times)
    for shard in range(SHARDS):  # of one shard also within a millisecond
        own = [info_hash for info_hash in joined if info_hash and int(info_hash[:2], 16) % SHARDS == shard]
        assert own == [info_hash for info_hash in expected if int(info_hash[:2], 16) % SHARDS == shard]
    assert len({change.id for change in page.changes}) == 20
    for number, change in enumerate(page.changes):
        rest = await store.changes.after(change.id, 3)
        assert [each.info_hash for each in rest.changes] == joined[number + 1 : number + 4]
        assert not rest.gap
        assert rest.next == (rest.changes[-1].id if rest.changes else change.id)
    assert [change.info_hash for change in await store.changes.newest(5)] == joined[-5:]
    assert await store.changes.size() == 20


async def test_deleted_changes_of_one_shard_make_a_gap(store: Store) -> None:
    await join(store, range(8))
    await settled(store)
    (first, *_) = (await store.changes.after(FIRST, 100)).changes
    await store.redis.xtrim(store.shards[2].keys.changes(), maxlen=1, approximate=False)
    page = await store.changes.after(first.id, 100)
    assert page.gap and len(page.changes) == 6
    assert not (await store.changes.after(page.changes[-1].id, 100)).gap


async def test_a_feed_that_lost_the_position_says_so_once(store: Store) -> None:
    await join(store, range(8))
    await settled(store)
    last = (await store.changes.after(FIRST, 100)).next
    milliseconds, _, number = last.partition("-")
    later = f"{int(milliseconds)}-{int(number) + SHARDS}"
    page = await store.changes.after(later, 100)
    assert page.gap and (page.changes, page.next) == ([], last)
    assert not (await store.changes.after(page.next, 100)).gap


async def test_torrents_of_all_shards_that_changed_since_a_time(store: Store) -> None:
    await join(store, range(8))
    await settled(store)
    joined = [change.info_hash for change in await store.changes.newest(100)]
    since = min(change.at for change in await store.changes.newest(100))
    with pytest.raises(Conflict):  # the feed began within this second
        await store.changes.updated(TORRENT, str(since), "", 3)
    oldest = []
    for place, shard in enumerate(store.shards):
        ((id, _),) = await store.redis.xrange(shard.keys.changes(), count=1)
        milliseconds, number = map(int, id.split(b"-"))
        oldest.append((milliseconds, number * (2 * SHARDS + 1) + place))
    found, cursor = list[str](), "{}-{}".format(*min(oldest))
    while cursor:
        names, cursor, _ = await store.changes.updated(TORRENT, str(since), cursor, 3)
        found += names
    assert found == joined[1:]


async def test_a_page_is_right_if_one_shard_has_most_changes(store: Store) -> None:
    written = [(1000 + number, 1) for number in range(100)] + [(1050 + 3 * n, n % SHARDS) for n in range(30)]
    expected = sorted({(at, 0 * SHARDS + shard) for at, shard in written})
    for at, shard in sorted(set(written)):
        key = store.shards[shard].keys.changes()
        await store.redis.xadd(key, {"change": "joined", "info_hash": f"{at}"}, id=f"{at}-0")
    ids = [f"{at}-{place}" for at, place in expected]
    for limit in (1, 60, 100, 500):
        assert [change.id for change in await store.changes.newest(limit)] == ids[-limit:]
        found, position = list[str](), FIRST
        while changes := (await store.changes.after(position, limit)).changes:
            found += [change.id for change in changes]
            position = found[-1]
            assert len(changes) <= limit
        assert found == ids


async def test_the_feed_of_all_shards_is_deleted(store: Store) -> None:
    await join(store, range(4))
    await store.changes.delete()
    assert await store.changes.size() == 0


async def test_a_new_webhook_starts_at_the_newest_change(store: Store) -> None:
    await join(store, range(4))
    held = await store.webhooks.hold("url", "token")
    (newest,) = await store.changes.newest(1)
    assert held is not None and held.position == newest.id
    await join(store, range(4, 6))
    await settled(store)
    again = await store.webhooks.hold("url", "token", {"delivered": 1})
    assert again is not None and again.position == newest.id
    assert len((await store.changes.after(again.position, 10)).changes) == 2


async def test_edits_are_among_what_was_updated(store: Store) -> None:
    """Edits of torrents are in their shards, those of users under the main prefix."""
    info_hash = hash_in(3, 90)
    await join(store, range(4))
    await settled(store)
    since = max(change.at for change in await store.changes.newest(1))
    for shard in store.shards:  # the feed is older
        await store.redis.delete(shard.keys.changes())
        await store.redis.xadd(shard.keys.changes(), {"change": "joined"}, id=f"{1000 * since - 5000}-0")
    await store.torrents.add(info_hash, {"name": "new"})
    await store.users.add("7", ALICE)
    (torrent,) = await store.torrents.get_all([info_hash])
    await store.user_history.save([{"user_id": "7", "torrent_id": torrent.torrent_id, "uploaded": 5}])

    async def on_torrents() -> list[Any]:
        pair = attrgetter("user_id", "info_hash")
        found, *_ = await store.changes.updated(pair, str(since), "", 100)
        return [each for each in found if all(each)]

    async def named(kind: Any) -> list[str]:
        return (await store.changes.updated(attrgetter(kind), str(since), "", 100))[0]

    await eventually(lambda: _holds(named("info_hash"), [info_hash.hex()]))
    await eventually(lambda: _holds(named("user_id"), ["7"]))
    await eventually(lambda: _holds(on_torrents(), [("7", info_hash.hex())]))


async def _holds(reading: Awaitable[list[Any]], expected: list[Any]) -> bool:
    return await reading == expected
