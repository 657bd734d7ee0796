"""Announces are counted for their torrent some seconds later, and only while it exists."""

import asyncio

import pytest

from loadtest.servers import Server
from tests.store.client.proxy import Proxy
from tests.store.conftest import MakeStore
from tests.store.harness import Store, endpoint, info_hash, one_shard, update
from tests.waiting import eventually, in_background, loop_turns
from tracker.bittorrent import InfoHash
from tracker.store.client.connection import Connection, connect
from tracker.store.swarms import announce_counts
from tracker.store.swarms.announce_counts import AnnounceCounts


async def announces(store: Store, number: int = 1) -> int:
    return int((await store.torrent(info_hash(number))).get("announces", -1))


async def test_announces_are_written_together(store: Store) -> None:
    """All that were applied: not the last one, which is of another client."""
    for number in (1, 2):
        await store.announce(update(1, "s", torrent=number))
    for _ in range(3):
        await store.announce_together(update(1), update(1, torrent=2))
    await store.announce(update(1))
    await store.announce(update(2, "s"))
    await store.announce(update(1, "c", bytes_left=0))
    await store.announce(update(1, endpoint=endpoint(9)))
    assert (await announces(store), await announces(store, 2)) == (0, 0)
    await store.announce_counts.flush()
    assert (await announces(store), await announces(store, 2)) == (7, 4)
    await store.announce_counts.flush()  # nothing is left
    assert (await announces(store), await announces(store, 2)) == (7, 4)


async def test_they_are_written_by_themselves(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.announce(update(1))
    async with in_background(store.announce_counts.run(pause_seconds=0.001)):
        await eventually(lambda: _has(store, 2))
        await store.announce(update(1))
        await eventually(lambda: _has(store, 3))


async def _has(store: Store, number: int) -> bool:
    return await announces(store) == number


async def test_a_deleted_torrent_does_not_come_back(store: Store) -> None:
    for number in (1, 2):
        await store.announce(update(1, "s", torrent=number))
        await store.announce(update(1, torrent=number))
    assert await store.torrents.remove(info_hash(1))
    await store.redis.delete(store.keys.torrent(info_hash(1)))
    before = await store.dump()
    await store.announce_counts.flush()
    after = await store.dump()
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    assert changed == {store.keys.torrent(info_hash(2)).encode()}


async def test_several_processes_add_up(make_store: MakeStore) -> None:
    ours, theirs = await make_store(), await make_store()
    await ours.announce(update(1, "s"))
    for store in (ours, theirs, theirs):
        await store.announce(update(1))
    await asyncio.gather(ours.announce_counts.flush(), theirs.announce_counts.flush())
    assert await announces(ours) == 4


async def test_another_value_fails_no_other_torrent(store: Store) -> None:
    """Of another program: no number, too large a number, no hash at all."""
    for number in range(1, 5):
        await store.announce(update(1, "s", torrent=number))
        await store.announce(update(1, torrent=number))
    await store.redis.hset(store.keys.torrent(info_hash(1)), "announces", "many")
    await store.redis.hset(store.keys.torrent(info_hash(2)), "announces", 2**63 - 1)
    await store.redis.set(store.keys.torrent(info_hash(3)), "text")
    await store.announce_counts.flush()
    assert await announces(store) == 2 and await announces(store, 2) == 2**53 - 1
    assert await store.redis.get(store.keys.torrent(info_hash(3))) == b"text"
    assert await announces(store, 4) == 2


async def test_many_torrents_are_written_before_their_time(store: Store) -> None:
    counts = store.announce_counts
    hashes = [InfoHash(n.to_bytes(20, "big")) for n in range(1, announce_counts.MAX_WAITING + 2)]
    await store.torrents.add(hashes[0])
    counts.of(store.shards[0]).update(hashes)
    async with in_background(counts.run(pause_seconds=600, look_seconds=0.001)):
        await eventually(lambda: len(counts) == 0)
    assert await announces(store) == 1


async def test_announces_of_many_torrents_are_written_in_calls_with_pauses_between(store: Store) -> None:
    """What is announced meanwhile waits for the next time, and what is not yet written when it ends stays."""
    counts, pauses = store.announce_counts, list[float]()
    hashes = [info_hash(number) for number in range(1, 251)]
    for each in hashes:
        await store.torrents.add(each)
    counts.of(store.shards[0]).update(hashes)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        counts.of(store.shards[0]).update([hashes[0]])
        if len(pauses) == 2:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await counts.flush(pause)
    assert pauses == [announce_counts.CALL_PAUSE_SECONDS] * 2
    written = [int((await store.torrent(each)).get("announces", 0)) for each in hashes]
    assert written == [1] * 200 + [0] * 50 and len(counts) == 51
    await counts.flush()
    assert await announces(store) == 3 and await announces(store, 250) == 1 and len(counts) == 0


async def test_there_are_no_pauses_between_calls_while_too_many_torrents_wait(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More torrents could be announced than are written with pauses."""
    monkeypatch.setattr(announce_counts, "MAX_WAITING", 350)
    counts, waiting = store.announce_counts, list[int]()

    async def pause(seconds: float) -> None:
        if seconds == announce_counts.CALL_PAUSE_SECONDS:
            waiting.append(len(counts))
            counts.of(store.shards[0]).update(info_hash(1000 * len(waiting) + number) for number in range(200))
        elif waiting:
            raise asyncio.CancelledError

    counts.of(store.shards[0]).update(info_hash(number) for number in range(1000))
    with pytest.raises(asyncio.CancelledError):
        await counts.run(pause=pause)
    assert waiting == [0, 200] and len(counts) == 400


async def test_many_torrents_leave_the_event_loop_free_while_the_store_is_unavailable(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announce_counts, "MAX_WAITING", 10)
    store.announce_counts.of(store.shards[0]).update(info_hash(number) for number in range(20))
    monkeypatch.setattr(store.connection, "unavailable", True)
    async with in_background(store.announce_counts.run(pause_seconds=0.01)):
        await loop_turns(100)
    assert len(store.announce_counts) == 20


async def test_counts_wait_for_the_store_and_a_lost_call_is_not_repeated(store: Store, any_server: Server) -> None:
    """The store may have counted them."""
    await store.announce(update(1, "s"))
    await store.announce_counts.flush()
    async with Proxy(any_server) as proxy:
        connection = Connection(connect(proxy.url, connect_timeout=1, timeout=20))
        shards = one_shard(connection, store.keys.prefix)
        counts = AnnounceCounts(shards)
        counts.of(shards.main).update([info_hash(1)])
        await counts.flush()
        assert await announces(store) == 2
        proxy.swallow_answers()
        counts.of(shards.main).update([info_hash(1)])
        await counts.flush()
        assert connection.unavailable and len(counts) == 0 and await announces(store) == 3
        counts.of(shards.main).update([info_hash(1)])
        await counts.flush()
        assert len(counts) == 1
        async with in_background(connection.watch()):
            await eventually(lambda: not connection.unavailable)
            await counts.flush()
        assert len(counts) == 0 and await announces(store) == 4
        await connection.close()
