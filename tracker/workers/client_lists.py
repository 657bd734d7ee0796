"""Keeps the lists of allowed and denied clients up to date in a process that serves peers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.access.client_lists import STALE_SECONDS, AllowListCache, DenyList, DenyListCache
from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys
from tracker.workers.loop import follow, forever, wait_for


async def clear_on_change(
    connection: Connection, keys: Keys, allow_list: AllowListCache, deny_list: DenyListCache
) -> None:
    """Runs until cancelled. A message on ``t:whitelist`` clears the allow-list's cache, and has the deny list read.

    Users and torrents are not cached: the announce script reads them. A lost message delays a change by at most
    4 seconds, the lifetime of a cached entry.
    """

    async def clear(_: bytes | None) -> None:
        allow_list.clear()
        deny_list.changed.set()

    await follow(connection, keys.channel("whitelist"), clear)


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
    connection: Connection, deny_list: DenyListCache, is_enabled: Callable[[], bool], seconds: float = STALE_SECONDS
) -> None:
    """Runs until cancelled. Reads the list when it has changed, and every ``seconds``, while it is enabled."""

    async def read_once() -> None:
        await connection.until_available()
        deny_list.changed.clear()
        if is_enabled():
            await read(deny_list)

    await forever(read_once, seconds, sleep=partial(wait_for, deny_list.changed))
