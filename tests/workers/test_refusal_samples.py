"""Samples of refused announces: how many are taken and kept, and what happens to them while the store is
unavailable."""

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from loadtest.servers import Server
from tests.store.harness import ALICE, START, Store, info_hash, peer_id, running
from tests.waiting import eventually, in_background
from tracker.bittorrent import PeerId
from tracker.errors import StoreUnavailable
from tracker.store.schema.keys import Keys
from tracker.store.stats.refusal_samples import LIFETIME_SECONDS, MAX_KEPT, RefusedAnnounce
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.samples import MAX_REASONS, RefusalSampler

QB = PeerId(b"-qB5020-abcdefghijkl")


def sampler(store: Store) -> RefusalSampler:
    return RefusalSampler(store)


async def test_refused_announces_are_kept_by_reason_newest_first(store: Store) -> None:
    worker = sampler(store)
    worker.add("denied", info_hash(1), QB)
    store.clock.now += 2.5
    worker.add("denied", info_hash(2), PeerId(b"\xff" * 20))
    worker.add("unknown torrent", info_hash(3), QB)
    await worker.send()
    assert await store.refusal_samples.last("denied") == [
        RefusedAnnounce(START + 2, info_hash(2), "unknown"),
        RefusedAnnounce(START, info_hash(1), "qBittorrent 5.0.2"),
    ]
    assert len(await store.refusal_samples.last("unknown torrent")) == 1
    assert await store.refusal_samples.last("other") == []
    assert 0 < await store.redis.ttl(store.keys.refused("denied")) <= LIFETIME_SECONDS


async def test_a_sample_names_the_user_of_the_passkey(store: Store) -> None:
    """Read when the samples are sent, so no announce waits for it. No passkey is kept."""
    await store.users.add("7", ALICE)
    await store.redis.hset(store.keys.passkey("b" * 20), "user_id", "<b>")
    worker = sampler(store)
    for passkey in (ALICE, "b" * 20, "nobody" * 4, "?", ""):
        worker.add("denied", info_hash(1), QB, passkey)
    await worker.send()
    assert [each.user_id for each in await store.refusal_samples.last("denied")] == ["", "", "", "", "7"]
    kept = await store.redis.lrange(store.keys.refused("denied"), 0, -1)
    assert not [entry for entry in kept if ALICE.encode() in entry or b"nobody" in entry]


async def test_a_flood_takes_a_bounded_number(store: Store) -> None:
    """In the process by reason and interval, and in the store by reason."""
    worker = sampler(store)
    for interval in range(2):
        for number in range(3 * MAX_KEPT):
            worker.add("denied", info_hash(1 + number % 250), QB)
        store.clock.now += 5
        await worker.send()
        assert len(await store.refusal_samples.last("denied")) == MAX_KEPT, interval
    assert await store.redis.llen(store.keys.refused("denied")) == MAX_KEPT
    assert {each.at for each in await store.refusal_samples.last("denied")} == {START + 5}


async def test_the_number_of_reasons_is_bounded(store: Store) -> None:
    worker = sampler(store)
    for number in range(MAX_REASONS + 5):
        worker.add(f"reason {number}", info_hash(1), QB)
    await worker.send()
    kept = [number for number in range(MAX_REASONS + 5) if await store.refusal_samples.last(f"reason {number}")]
    assert kept == list(range(MAX_REASONS))


async def test_samples_wait_while_the_store_is_unavailable(start_server: Callable[..., Server], prefix: str) -> None:
    server = start_server()
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        worker = sampler(store)
        worker.add("denied", info_hash(1), QB)
        server.stop()
        with pytest.raises(StoreUnavailable):
            await worker.send()
        worker.add("busy", info_hash(2), QB)
        server.start()

        async def sent() -> bool:
            await worker.send()
            return True

        async with in_background(store.connection.watch()):
            await eventually(sent, ignored=(StoreUnavailable,))
        for reason in ("denied", "busy"):
            assert len(await store.refusal_samples.last(reason)) == 1


async def test_foreign_values_are_left_out_and_a_wrong_type_is_logged(store: Store) -> None:
    key = store.keys.refused("denied")
    await store.redis.rpush(key, b"\xff", "x y z", f"1 {'0' * 39} a", f"7 {info_hash(1).hex()} x a b")
    assert await store.refusal_samples.last("denied") == [RefusedAnnounce(7, info_hash(1), "a b")]
    await store.redis.set(store.keys.refused("busy"), "text")
    worker = sampler(store)
    worker.add("busy", info_hash(1), peer_id(1))
    with capture_logs() as logs:
        await worker.send()
    assert [line["log_level"] for line in logs] == ["error"]


async def test_it_sends_regularly(store: Store) -> None:
    done, rounds = asyncio.Event(), 0

    async def sleep(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            worker.add("denied", info_hash(1), QB)
        else:
            done.set()
            await asyncio.Event().wait()

    worker = RefusalSampler(store, sleep=sleep)
    async with in_background(worker.run()):
        await done.wait()
    assert len(await store.refusal_samples.last("denied")) == 1
