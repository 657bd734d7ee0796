"""Clears the cached allow-list when a site publishes a change."""

import asyncio

from redis.exceptions import ResponseError

from tracker.errors import StoreUnavailable
from tracker.store.access.allow_list import AllowListCache
from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys


async def clear_on_change(connection: Connection, keys: Keys, allow_list: AllowListCache) -> None:
    """Runs until cancelled. A message on ``t:whitelist`` clears the cache.

    Users and torrents are not cached: the announce script reads them. A lost message delays a change by at most
    4 seconds, the lifetime of a cached entry.
    """
    while True:
        await connection.until_available()
        try:
            async with connection.subscription(channels=[keys.channel("whitelist")]) as messages:
                allow_list.clear()
                async for _ in messages:
                    allow_list.clear()
        except (StoreUnavailable, ResponseError):  # ResponseError: the store forbids the subscription
            await asyncio.sleep(0.5)
