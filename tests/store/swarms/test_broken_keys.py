"""A broken value or key affects its own torrent only."""

from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.harness import Store, due_deadline, info_hash, peer_id, text, timeout_key, update
from tests.store.swarms.test_sweep import sweep
from tracker.store.swarms.codec import Refused


def changed(before: dict[bytes, Any], after: dict[bytes, Any]) -> set[bytes]:
    return {key for key in before | after if before.get(key) != after.get(key)}


@pytest.mark.parametrize("found_by", ["event", "due list", "sweep"])
async def test_an_invalid_count_does_not_stop_other_peers_from_being_reaped(store: Store, found_by: str) -> None:
    silent = [("1", update(1, "p")), ("2", update(2, "s", torrent=2))]
    for torrent, peer in silent:
        await store.announce(peer)
        await store.redis.delete(timeout_key(store.keys, torrent, peer.peer_id))
    await store.announce(update(3, "s"))
    await store.redis.hset(store.keys.torrent(info_hash(1)), "paused", "some")
    if found_by == "event":
        assert await store.reaping.reap([(torrent, p.peer_id.hex()) for torrent, p in silent]) == 2
    elif found_by == "due list":
        deadline = due_deadline(store.clock.now + 1, 2700)
        assert await store.reaping.reap_due(deadline, 0, 100, 100) == (3, 2)
    else:
        assert (await sweep(store)).reaped == 2
    await sweep(store)
    assert await check_invariants(store.redis, store.keys) == 1


@pytest.mark.parametrize("damage", ["no number", "another type"])
async def test_an_invalid_sum_fails_no_announce(store: Store, damage: str) -> None:
    total = store.keys.stat("leechers")
    if damage == "no number":
        await store.redis.set(total, "some")
    else:
        await store.redis.hset(total, "some", "thing")
    assert (await store.announce(update(1, "s"))).outcome == "join"
    assert await store.reaping.check_totals() == 1
    assert await check_invariants(store.redis, store.keys) == 1


@pytest.mark.parametrize("array", ["endpoints", "ids"])
async def test_a_failed_stop_changes_nothing(store: Store, array: str) -> None:
    for n in (1, 2):
        await store.announce(update(n, "s"))
    key = f"{store.keys.prefix}swarm:{info_hash(1).hex()}:{'l4' if array == 'endpoints' else 'l4i'}"
    await store.redis.delete(key)
    await store.redis.rpush(key, "another program's")
    before = await store.dump()
    assert await store.swarms.announce(update(1, "x")) == Refused("error", "")
    assert changed(before, await store.dump()) == set()


async def test_a_broken_list_of_its_torrents_keeps_no_peer_in_a_swarm(store: Store) -> None:
    await store.announce(update(1, "s"))
    theirs = f"{store.keys.prefix}p:{peer_id(1).hex()}:torrents"
    await store.redis.set(theirs, "another program's")
    assert (await store.announce(update(1, "x"))).outcome == "leave"
    await store.redis.delete(theirs)
    assert await check_invariants(store.redis, store.keys) == 0


async def test_a_peer_can_leave_after_its_torrent_was_deleted(store: Store) -> None:
    for n in (1, 2):
        await store.announce(update(n, "s"))
    await store.redis.delete(store.keys.torrent(info_hash(1)))
    assert (await store.announce(update(2, bytes_left=0))).outcome == "update"
    assert text(await store.redis.hgetall(store.keys.torrent(info_hash(1))))["seeders"] == "1"
    assert (await store.announce(update(1, "x"))).outcome == "leave"
    assert not await store.peer(update(1))
