"""Keeps the deny list of clients up to date in a process that serves peers."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.access.allow_list import STALE_SECONDS
from tracker.store.access.deny_list import DenyList, DenyListCache
from tracker.store.client.connection import Connection


async def read(deny_list: DenyListCache) -> None:
    """Reads the list. If that fails, the list read last applies."""
    with suppress(StoreUnavailable, RedisError):
        await deny_list.read()


async def denied_prefixes(deny_list: DenyList, is_enabled: Callable[[], bool]) -> Sequence[bytes]:
    """The prefixes of denied clients; none while the list is not used or cannot be read."""
    if is_enabled():
        with suppress(StoreUnavailable, RedisError):
            return list(await deny_list.all())
    return ()


async def keep_reading(
    connection: Connection,
    deny_list: DenyListCache,
    is_enabled: Callable[[], bool],
    seconds: float = STALE_SECONDS,
) -> None:
    """Runs until cancelled. Reads the list when it has changed, and every ``seconds``, while it is enabled."""
    while True:
        await connection.until_available()
        deny_list.changed.clear()
        if is_enabled():
            await read(deny_list)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await deny_list.changed.wait()
