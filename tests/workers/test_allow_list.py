"""Published changes apply at once; a lost message delays a change only (rows T21, T23)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from loadtest.servers import Server
from tests.store.harness import Store, running
from tests.waiting import eventually, in_background
from tracker.bittorrent import PeerId
from tracker.store.access.client_lists import AllowListCache
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.admission import clear_on_change

PEER = PeerId(b"-TR4050-abcdefghijkl")


class CountingCache(AllowListCache):
    """Counts how often it was cleared."""

    clears = 0

    def clear(self) -> None:
        super().clear()
        self.clears += 1


@asynccontextmanager
async def following(url: str, prefix: str) -> AsyncIterator[tuple[Store, AllowListCache]]:
    """A process that follows changes. Its clock stands still, so no cached entry expires."""
    async with running(Store(url, Keys(prefix), SwarmRules())) as store:
        allow_list = CountingCache(store.allow_list, lambda: 0.0)
        store.allow_list_cache, allow_list.clears = allow_list, 0  # its start counted as one
        follows = clear_on_change(store)
        async with in_background(follows, store.connection.watch()):
            await eventually(lambda: bool(allow_list.clears))  # its subscription is confirmed
            yield store, allow_list


async def subscribed(store: Store, listeners: int) -> None:
    channel = store.keys.channel("whitelist")

    async def listened() -> bool:
        return bool((await store.redis.pubsub_numsub(channel))[0][1] >= listeners)

    await eventually(listened)


async def until(allow_list: AllowListCache, allowed: bool) -> None:
    async def agrees() -> bool:
        return await allow_list.allows(PEER) is allowed

    await eventually(agrees)


async def test_a_published_change_applies_at_once_in_every_process(any_server: Server, prefix: str) -> None:
    """T21."""
    async with following(any_server.url, prefix) as (store, ours), following(any_server.url, prefix) as (_, theirs):
        await subscribed(store, 2)
        for allowed in (False, True, False):
            if allowed:
                await store.allow_list.add(b"-TR")
            else:
                await store.allow_list.remove(b"-TR")
            await until(ours, allowed)
            await until(theirs, allowed)


async def test_any_message_clears_the_cache(any_server: Server, prefix: str) -> None:
    """T23: the content of the message does not matter."""
    async with following(any_server.url, prefix) as (store, allow_list):
        await until(allow_list, False)
        await store.redis.hset(store.keys.allowed_client(b"-TR"), "name", "Transmission")
        assert not await allow_list.allows(PEER)
        await store.redis.publish(store.keys.channel("whitelist"), b"\xff whatever")
        await until(allow_list, True)


@pytest.mark.parametrize("how", ["killed", "restarted"])
async def test_a_reconnect_clears_the_cache(start_server: Callable[..., Server], how: str) -> None:
    """Messages during the outage are lost, so every entry is read again."""
    server = start_server()
    async with following(server.url, "t:") as (store, allow_list):
        await until(allow_list, False)
        await store.redis.hset(store.keys.allowed_client(b"-TR"), "name", "")
        assert not await allow_list.allows(PEER)
        if how == "killed":
            await store.connection.command("CLIENT", "KILL", "TYPE", "pubsub")
        else:
            await asyncio.to_thread(server.stop)
            store.connection._lost(OSError())
            await asyncio.to_thread(server.start)
            await store.connection.until_available()
        await until(allow_list, True)
        await subscribed(store, 1)
