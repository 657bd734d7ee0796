"""Hears what sites publish after they changed the store by themselves."""

import asyncio

from redis.exceptions import ResponseError

from tracker.errors import StoreAway
from tracker.store.clients import AllowList
from tracker.store.connection import Connection
from tracker.store.keys import Keys


async def follow_changes(connection: Connection, keys: Keys, allow_list: AllowList) -> None:
    """Runs until cancelled: a message on ``t:whitelist`` clears what is remembered of the allow-list.

    Users and torrents are read by the announce script itself, so nothing is remembered of them. A lost message
    heals by itself: the allow-list is never remembered for longer than 4 seconds.
    """
    while True:
        await connection.until_back()
        try:
            async with connection.subscription(channels=[keys.channel("whitelist")]) as messages:
                allow_list.clear()
                async for _ in messages:
                    allow_list.clear()
        except (StoreAway, ResponseError):  # the second where the store forbids it
            await asyncio.sleep(0.5)
