"""Keeps the lists of clients and the hits of rate limits up to date in a process that serves peers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from redis.exceptions import RedisError

from tracker.core.rate_limits import Limits
from tracker.errors import StoreUnavailable
from tracker.store.access.client_lists import STALE_SECONDS, DenyList
from tracker.store.access.rate_limits import WINDOW_SECONDS, RateLimitState, RateLimitStore
from tracker.store.store import Store
from tracker.system.logger import Logger
from tracker.workers.loop import follow, forever, survive, wait_for


async def clear_on_change(store: Store) -> None:
    """Runs until cancelled. A message on ``t:whitelist`` clears the allow-list's cache, and has the deny list read.
    Users and torrents are not cached: the announce script reads them. A lost message delays a change by at most 4
    seconds, the lifetime of a cached entry."""

    async def clear(_: bytes | None) -> None:
        store.allow_list_cache.clear()
        store.deny_list_cache.changed.set()

    await follow(store.connection, store.keys.channel("whitelist"), clear)


async def denied_prefixes(deny_list: DenyList, is_enabled: Callable[[], bool]) -> Sequence[bytes]:
    """The prefixes of denied clients; none while the list is not used or cannot be read."""
    return list(await survive(deny_list.all()) or ()) if is_enabled() else ()


async def keep_reading(store: Store, is_enabled: Callable[[], bool], seconds: float = STALE_SECONDS) -> None:
    """Runs until cancelled. Reads the deny list when it has changed, and every ``seconds``, while it is enabled."""

    deny_list = store.deny_list_cache

    async def read_once() -> None:
        await store.connection.until_available()
        deny_list.changed.clear()
        if is_enabled():
            await survive(deny_list.read())  # if that fails, the list read last applies

    await forever(read_once, seconds, sleep=partial(wait_for, deny_list.changed))


SHARE_SECONDS = 1.0
_LOG_SECONDS = 60.0

log = Logger("tracker")


async def share_limits(
    limits: Limits, store: RateLimitStore, clock: Callable[[], float], pause_seconds: float = SHARE_SECONDS
) -> None:
    """Shares every ``pause_seconds`` until cancelled."""
    window, logged_at = clock() // WINDOW_SECONDS, clock() - _LOG_SECONDS

    async def share() -> None:
        nonlocal window, logged_at
        if not limits.enabled:
            return
        now = clock()
        if now // WINDOW_SECONDS != window:
            window = now // WINDOW_SECONDS
            limits.begin_window()
        states = await share_once(limits, store, now)
        if states and abs(now - logged_at) >= _LOG_SECONDS:
            logged_at = now
            stages = {"softened": 1, "refused": 2, "dropped": 3}
            counts = {name: sum(state.stage == stage for state in states) for name, stage in stages.items()}
            log.warning("addresses exceed a rate limit", **counts)  # the addresses are in the store only

    await forever(share, pause_seconds)


async def share_once(limits: Limits, store: RateLimitStore, now: float) -> list[RateLimitState]:
    """The states by the hits of all processes; none while the store is unavailable, when this process decides alone."""
    hits = limits.take()
    try:
        states = await store.count_hits(hits, limits.max)
    except (StoreUnavailable, RedisError) as error:
        limits.decide_alone(hits, now)
        if isinstance(error, RedisError):
            log.error("cannot share rate limits: the store refuses", error=type(error).__name__)
        return []
    limits.learn(states)
    with suppress(StoreUnavailable, RedisError):
        limits.know_entries(await store.entries(limits.networks_to_count()))
    return states
