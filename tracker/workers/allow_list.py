"""Applies published changes of the lists of allowed and denied clients."""

import asyncio

from redis.exceptions import ResponseError

from tracker.errors import StoreUnavailable
from tracker.store.access.allow_list import AllowListCache
from tracker.store.access.deny_list import DenyListCache
from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys


async def clear_on_change(
    connection: Connection, keys: Keys, allow_list: AllowListCache, deny_list: DenyListCache
) -> None:
    """Runs until cancelled. A message on ``t:whitelist`` clears the allow-list's cache, and has the deny list read.

    Users and torrents are not cached: the announce script reads them. A lost message delays a change by at most
    4 seconds, the lifetime of a cached entry.
    """
    while True:
        await connection.until_available()
        try:
            async with connection.subscription(channels=[keys.channel("whitelist")]) as messages:
                allow_list.clear()
                deny_list.changed.set()
                async for _ in messages:
                    allow_list.clear()
                    deny_list.changed.set()
        except (StoreUnavailable, ResponseError):  # ResponseError: the store forbids the subscription
            await asyncio.sleep(0.5)
