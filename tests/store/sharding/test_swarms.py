"""Announces and scrapes over several shards."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from tests.store.harness import Store, update
from tests.store.sharding.harness import SHARDS, hash_in
from tests.waiting import in_background
from tracker.errors import StoreOverloaded, StoreUnavailable
from tracker.store.client.connection import Connection, connect
from tracker.store.store import Store as PlainStore
from tracker.store.store import StoreOptions
from tracker.store.swarms import announce_counts
from tracker.store.swarms.swarms import MAX_BATCH


async def test_a_scrape_of_several_shards_keeps_the_order(store: Store) -> None:
    hashes = [hash_in(3), hash_in(0), hash_in(3, 1), hash_in(1), hash_in(0, 5)]
    for number, info_hash in enumerate(hashes[:4]):
        for peer in range(number + 1):
            await store.announce(update(peer, "s", info_hash=info_hash))
    files = await store.swarms.scrape(hashes)
    assert isinstance(files, dict)
    assert list(files) == hashes
    assert [each.leechers for each in files.values()] == [1, 2, 3, 4, 0]
    assert await store.swarms.scrape([]) == {}
    assert await store.swarms.scrape([hashes[0]]) == {hashes[0]: files[hashes[0]]}


async def test_announces_of_all_shards_are_settled_with_the_totals_of_their_calls(store: Store) -> None:
    settled: list[Any] = []
    done = asyncio.Event()

    def settle(outcomes: Iterable[tuple[Any, Any]], totals: Any) -> None:
        settled.extend(outcomes)
        assert totals is not None
        if len(settled) == 40:
            done.set()

    for number in range(40):
        info_hash = hash_in(number % SHARDS)
        store.swarms.submits[info_hash[0]](update(number, "s", info_hash=info_hash), settle, number)
    assert store.swarms.waiting == store.swarms.in_flight == 40
    await done.wait()
    assert sorted(number for number, _ in settled) == list(range(40))
    assert {outcome[-1] for _, outcome in settled} == {"join"}
    assert store.swarms.in_flight == 0


def ignore(outcomes: Iterable[tuple[Any, Any]], totals: Any) -> None:
    del outcomes, totals


async def test_the_bound_of_waiting_announces_holds_for_all_shards_together(redis_url: str) -> None:
    """Without this, a store with many shards would let many times as many wait."""
    connection = Connection(connect(redis_url, connect_timeout=5, timeout=5))
    store = PlainStore(connection, "x:", StoreOptions(shards=SHARDS, max_waiting=4 * MAX_BATCH))

    def submit(number: int) -> None:
        info_hash = hash_in(number % SHARDS)
        store.swarms.submits[info_hash[0]](update(1, info_hash=info_hash), ignore, None)

    with pytest.raises(StoreOverloaded):
        list(map(submit, range(100 * MAX_BATCH)))
    waiting = store.swarms.waiting
    assert 4 * MAX_BATCH <= waiting <= (4 + SHARDS) * MAX_BATCH
    await connection.close()


async def test_an_overloaded_shard_fails_the_scrape(redis_url: str, prefix: str) -> None:
    """Its torrents are not left out: clients have to come back later."""
    connection = Connection(connect(redis_url, connect_timeout=5, timeout=5))
    store = PlainStore(connection, prefix, StoreOptions(shards=SHARDS, max_waiting=2))
    for _ in range(2):
        store.swarms.submit_scrape([hash_in(3)], "", ignore, None)
    with pytest.raises(StoreOverloaded):
        async with in_background(store.swarms.run()):
            await store.swarms.scrape([hash_in(3), hash_in(0)])
    await connection.close()


async def test_a_scrape_whose_shards_are_all_unavailable_fails_once(redis_url: str) -> None:
    connection = Connection(connect(redis_url, connect_timeout=5, timeout=5))
    connection.unavailable = True
    store = PlainStore(connection, "x:", StoreOptions(shards=SHARDS))
    with pytest.raises(StoreUnavailable):
        await store.swarms.scrape([hash_in(0), hash_in(1), hash_in(2)])
    await connection.close()


async def test_counts_of_announces_are_written_without_pauses_while_those_of_all_shards_are_too_many(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announce_counts, "MAX_WAITING", 350)
    waiting = list[int]()

    def add(shard: int, torrents: range) -> None:
        store.announce_counts.of(store.shards[shard]).update(hash_in(shard, number) for number in torrents)

    async def pause(seconds: float) -> None:
        if seconds == announce_counts.CALL_PAUSE_SECONDS:
            waiting.append(len(store.announce_counts))
            add(SHARDS - 1, range(1000 * len(waiting), 1000 * len(waiting) + 100))
        elif waiting:
            raise asyncio.CancelledError

    for shard in range(SHARDS):
        add(shard, range(400))
    with pytest.raises(asyncio.CancelledError):
        await store.announce_counts.run(pause=pause)
    assert waiting == [0, 100, 200, 300]
