"""The reapers of four shards: an outage of one of them, and who reaps which shard."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from tests.store.harness import START, Clock, Store, running, update
from tests.store.sharding.harness import SHARDS, hash_in
from tests.waiting import eventually, in_background
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.reaper import Pauses, Reaper
from tracker.workers.shard_reapers import LeaseKeeper, ShardReapers

RULES = SwarmRules(grace=600, min_timeout=1)


@asynccontextmanager
async def store_on(url: str, prefix: str, clock: Clock | None = None) -> AsyncIterator[Store]:
    async with running(Store(url, Keys(prefix), RULES, clock, SHARDS)) as store:
        yield store


def reapers_of(store: Store, name: str) -> ShardReapers:
    reapers = [Reaper(store, shard, lambda: 1.0, time.time) for shard in store.shards]
    leases = LeaseKeeper(store, name, time.time)
    return ShardReapers(reapers, store.reaping, leases)


async def test_a_pause_of_all_shards_is_logged_once_with_its_end(redis_url: str, prefix: str) -> None:
    async with store_on(redis_url, prefix) as store:
        clock, pauses = store.clock, Pauses()
        reapers = [Reaper(store, shard, lambda: 1.0, clock, clock, pauses=pauses) for shard in store.shards]
        for reaper in reapers:
            await reaper.send_heartbeat()
        clock.now = START + 600
        with capture_logs() as logs:
            for reaper in reapers:
                await reaper.send_heartbeat()
                clock.now += 1
        (line,) = (each for each in logs if each["event"].startswith("reaping paused"))
        ends = START + 600 + store.reaping.grace_seconds + 1
        assert line["until"] == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends))


async def test_an_outage_of_one_shard_reaps_no_peer_there_and_delays_no_other(redis_url: str, prefix: str) -> None:
    """T9, T10: each shard has outages of its own."""
    async with store_on(redis_url, prefix) as store:
        for number in range(SHARDS):
            await store.announce(update(1, "s", info_hash=hash_in(number)))
        for shard in store.shards:
            await store.reapings[shard].heartbeat()
        unavailable, *others = store.shards
        store.clock.now += 300
        for shard in others:
            await store.redis.set(shard.keys.heartbeat(), int(store.clock.now))
        reaped = {}
        for shard in store.shards:
            torrent_id = (await store.torrent(hash_in(shard.number)))["tid"]
            reaped[shard] = await store.silence(update(1, info_hash=hash_in(shard.number)), torrent_id)
        assert reaped == {unavailable: 0} | dict.fromkeys(others, 1)
        for shard in others:
            assert await store.reapings[shard].heartbeat() == 0
        assert await store.reapings[unavailable].heartbeat() == store.clock.now


async def test_timed_out_peers_of_all_shards_are_removed(redis_url: str, prefix: str) -> None:
    """T9: by the tracker that holds the shard; the other one takes over when it ends."""
    async with store_on(redis_url, prefix, time.time) as store:  # type: ignore[arg-type]
        for reaping in store.reapings.values():
            await reaping.heartbeat()
        one, other = reapers_of(store, "one"), reapers_of(store, "other")

        async def is_empty() -> bool:
            totals = await store.counters.totals()
            return totals["leechers"] == 0

        def has_swept() -> bool:
            return bool(one.running) and all(not each.missing_events and each.swept_at for each in one.running)

        async with in_background(one.run()):
            await eventually(has_swept)
            for shard in range(SHARDS):
                await store.announce(update(1, "s", info_hash=hash_in(shard), timeout_seconds=0.05))
            await eventually(is_empty)
            assert not any(each.sweep_behind for each in one.running) and one.interval == 1.0
        for shard in range(SHARDS):
            await store.announce(update(2, "s", info_hash=hash_in(shard), timeout_seconds=0.05))
        async with in_background(other.run()):
            await eventually(is_empty)
            await other.sweep_once(hurry=True)
            assert all(each.due_behind_seconds < 60 and each.sweep_seconds >= 0 for each in other.running)
