"""Once a second, reports hits of rate limits to the store and reads which addresses exceed a limit anywhere."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from tracker.core.rate_limits import Limits
from tracker.core.work_limits import WorkLimits
from tracker.errors import StoreUnavailable
from tracker.store.access.rate_limits import WINDOW_SECONDS, RateLimitState, RateLimitStore
from tracker.system.logger import Logger
from tracker.workers.loop import forever

SHARE_SECONDS = 1.0
_LOG_SECONDS = 60.0

log = Logger("tracker")


async def share_limits(
    limits: Limits | WorkLimits, store: RateLimitStore, clock: Callable[[], float], pause_seconds: float = SHARE_SECONDS
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
            log.warning("addresses exceed a rate limit", **_summary(states))

    await forever(share, pause_seconds)


async def share_once(limits: Limits | WorkLimits, store: RateLimitStore, now: float) -> list[RateLimitState]:
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


def _summary(states: Sequence[RateLimitState]) -> dict[str, int]:
    """The number of addresses by stage. The addresses are in the store, but not in the log."""
    names = {1: "softened", 2: "refused", 3: "dropped"}
    return {name: sum(state.stage == stage for state in states) for stage, name in names.items()}
