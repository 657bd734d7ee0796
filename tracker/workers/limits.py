"""Tells the store what addresses have done too often here, and hears who is over a limit anywhere: once a second."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreAway
from tracker.store.offences import WINDOW_SECONDS, Charge, Offences, Verdict

SHARE_SECONDS = 1.0
_LOG_SECONDS = 60.0

log = structlog.get_logger("tracker")


class Limits(Protocol):
    """limits.py's, as far as it is needed here."""

    enabled: bool

    def take(self) -> list[Charge]: ...

    def learn(self, verdicts: Iterable[Verdict]) -> None: ...

    def expire(self, now: float) -> None: ...

    def begin_window(self) -> None: ...


async def share_limits(limits: Limits, offences: Offences, clock: Callable[[], float]) -> None:
    """Runs until cancelled. While the store is away what it said before holds until its time is over."""
    window, told = clock() // WINDOW_SECONDS, clock() - _LOG_SECONDS
    while True:
        await asyncio.sleep(SHARE_SECONDS)
        if not limits.enabled:
            continue
        now = clock()
        if now // WINDOW_SECONDS != window:
            window = now // WINDOW_SECONDS
            limits.begin_window()
        try:
            verdicts = await offences.charge(limits.take())
        except (StoreAway, RedisError) as error:
            limits.expire(now)
            if isinstance(error, RedisError):
                log.error("limits are not shared: the store refuses it", error=type(error).__name__)
            continue
        limits.learn(verdicts)
        if verdicts and abs(now - told) >= _LOG_SECONDS:
            told = now
            log.warning("addresses are over a limit", **_summary(verdicts))


def _summary(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many by stage; who they are stands in the store, and in no log."""
    names = {1: "softened", 2: "refused", 3: "dropped"}
    return {name: sum(verdict.stage == stage for verdict in verdicts) for stage, name in names.items()}
