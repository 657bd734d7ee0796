"""A change of the deny list of clients applies in every process: at once when published, else some seconds later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.store.harness import Store, running
from tests.waiting import eventually, in_background
from tracker.bittorrent import PeerId
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.admission import clear_on_change, keep_reading
from tracker.workers.loop import survive

PEER = PeerId(b"-TR2830-abcdefghijkl")
NEVER = 1e6


@asynccontextmanager
async def reading(url: str, prefix: str, seconds: float, *, enabled: bool = True) -> AsyncIterator[Store]:
    async with running(Store(url, Keys(prefix), SwarmRules())) as store:
        follows = clear_on_change(store)
        reads = keep_reading(store, lambda: enabled, seconds)
        async with in_background(follows, reads, store.connection.watch()):
            channel = store.keys.channel("whitelist")

            async def listens() -> bool:
                return bool((await store.redis.pubsub_numsub(channel))[0][1])

            await eventually(listens)
            yield store


async def until(store: Store, denied: bool) -> None:
    await eventually(lambda: store.deny_list_cache.denies(PEER) is denied)


async def test_a_published_change_applies_at_once_in_every_process(redis_url: str, prefix: str) -> None:
    """T21."""
    async with reading(redis_url, prefix, NEVER) as ours, reading(redis_url, prefix, NEVER) as theirs:
        await ours.deny_list.add(b"-TR", "why")
        await until(ours, True)
        await until(theirs, True)
        await theirs.deny_list.remove(b"-TR")
        await until(ours, False)
        await until(theirs, False)


async def test_a_change_without_a_message_applies_later(redis_url: str, prefix: str) -> None:
    async with reading(redis_url, prefix, 0.01) as store:
        await store.redis.hset(store.keys.denied_clients(), "-TR", "")
        await until(store, True)
        await store.redis.delete(store.keys.denied_clients())
        await until(store, False)


async def test_nothing_is_read_while_the_list_is_off(redis_url: str, prefix: str) -> None:
    async with reading(redis_url, prefix, 0.01, enabled=False) as store:
        await store.deny_list.add(b"-TR")
        changed = store.deny_list_cache.changed
        changed.set()
        await eventually(lambda: not changed.is_set())
        assert not store.deny_list_cache.denies(PEER)


@pytest.mark.parametrize("failure", ["unavailable", "wrong type"])
async def test_a_failed_read_keeps_the_list(store: Store, failure: str) -> None:
    await store.deny_list.add(b"-TR")
    await survive(store.deny_list_cache.read())
    await store.redis.delete(store.keys.denied_clients())
    await store.redis.set(store.keys.denied_clients(), "text")
    if failure == "unavailable":
        store.connection._lost(OSError())
    await survive(store.deny_list_cache.read())
    assert store.deny_list_cache.denies(PEER)
