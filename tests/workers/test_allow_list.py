"""What sites publish holds at once; what is lost heals by itself (rows T21, T23)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.servers import Server
from tests.store.harness import Store, running
from tracker.bittorrent import PeerId
from tracker.store.clients import AllowList
from tracker.store.keys import Keys
from tracker.store.swarms import SwarmRules
from tracker.workers.changes import follow_changes

PEER = PeerId(b"-TR4050-abcdefghijkl")


@asynccontextmanager
async def following(url: str, prefix: str) -> AsyncIterator[tuple[Store, AllowList]]:
    """A process that follows changes, and whose own clock stands still: nothing it remembers grows old."""
    async with running(Store(url, Keys(prefix), SwarmRules())) as store:
        allow_list = AllowList(store.clients, lambda: 0.0)
        loops = [
            asyncio.Task(follow_changes(store.connection, store.keys, allow_list)),
            asyncio.Task(store.connection.watch()),
        ]
        await subscribed(store, 1)
        try:
            yield store, allow_list
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)


async def subscribed(store: Store, listeners: int) -> None:
    channel = store.keys.channel("whitelist")
    async with asyncio.timeout(5):
        while (await store.redis.pubsub_numsub(channel))[0][1] < listeners:
            await asyncio.sleep(0.005)


async def until(allow_list: AllowList, allowed: bool) -> None:
    async with asyncio.timeout(20):
        while await allow_list.allows(PEER) is not allowed:
            await asyncio.sleep(0.001)


async def test_a_published_change_holds_at_once_in_every_process(any_server: Server, prefix: str) -> None:
    """T21."""
    async with (
        following(any_server.url, prefix) as (store, ours),
        following(any_server.url, prefix) as (_, theirs),
    ):
        await subscribed(store, 2)
        for allowed in (False, True, False):
            if allowed:
                await store.clients.allow(b"-TR")
            else:
                await store.clients.disallow(b"-TR")
            await until(ours, allowed)
            await until(theirs, allowed)


async def test_a_site_may_say_anything(any_server: Server, prefix: str) -> None:
    """T23: the message only clears; what it says does not matter."""
    async with following(any_server.url, prefix) as (store, allow_list):
        await until(allow_list, False)
        await store.redis.hset(store.keys.allowed_client(b"-TR"), "name", "Transmission")
        assert not await allow_list.allows(PEER)
        await store.redis.publish(store.keys.channel("whitelist"), b"\xff whatever")
        await until(allow_list, True)


@pytest.mark.parametrize("how", ["killed", "restarted"])
async def test_after_a_broken_line_nothing_old_is_remembered(
    start_server: Callable[..., Server], how: str
) -> None:
    """What was published meanwhile is lost, so everything is asked for anew."""
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
            await store.connection.until_back()
        await until(allow_list, True)
        await subscribed(store, 1)
