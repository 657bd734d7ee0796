"""A sender to StatHat on a store under test. Run as a program, it flushes once, so that a test can kill it."""

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from tests.store.harness import START, Clock, Store
from tests.store.jobs.harness import Metrics
from tests.workers.stathat_server import KEY
from tracker.settings.background import StatHatSettings
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.push import Receiver, Sender, StatHat

MINUTE = START - START % 60


@dataclass
class Flushing:
    """One sender. Each ``flush`` advances the clock by ``seconds``; pauses have their maximum length."""

    store: Store
    receiver: Receiver
    clock: Clock = field(default_factory=lambda: Clock(MINUTE + 600))
    counts: "Counter[str]" = field(default_factory=Counter)
    gauges: dict[str, int] = field(default_factory=lambda: {"torrents.count": 42})

    def __post_init__(self) -> None:
        self.store.clock = self.clock
        Metrics(self.counts).follow(self.store)
        self.sender = Sender(self.receiver, self.store, self._gauges, lambda: 1.0)

    async def _gauges(self) -> dict[str, int]:
        return self.gauges

    async def flush(self, *, seconds: float = 901) -> None:
        self.clock.now += seconds
        await self.sender.flush({})


def to_stathat(store: Store, url: str, *, timeout: float = 5, prefix: str = "", clock: Clock | None = None) -> Flushing:
    settings = StatHatSettings(ezkey=SecretStr(KEY), url=url, prefix=prefix)
    return Flushing(store, StatHat(settings, timeout), clock or Clock(MINUTE + 600))


async def _flush_once(store_url: str, prefix: str, url: str, now: str) -> None:
    store: Any = Store(store_url, Keys(prefix), SwarmRules())
    await to_stathat(store, url, timeout=60, clock=Clock(float(now))).sender.flush()
    await store.connection.close()


if __name__ == "__main__":
    asyncio.run(_flush_once(*sys.argv[1:]))
