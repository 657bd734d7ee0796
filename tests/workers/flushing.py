"""StatHat's sender on a store under test; run as a program, it flushes once and is there to be killed."""

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from tests.stathat_server import KEY
from tests.store.harness import START, Clock, Store
from tests.store.outbox import outbox_of
from tracker.settings import StatHatSettings
from tracker.store.keys import Keys
from tracker.store.swarms import SwarmRules
from tracker.workers.stathat import StatHat

MINUTE = START - START % 60


@dataclass
class Flushing:
    """One sender; each ``flush`` comes when its pause is over, and pauses last as long as they can."""

    store: Store
    url: str
    timeout: float = 5
    prefix: str = ""
    clock: Clock = field(default_factory=lambda: Clock(MINUTE + 600))
    counts: "Counter[str]" = field(default_factory=Counter)

    def __post_init__(self) -> None:
        settings = StatHatSettings(
            ezkey=SecretStr(KEY), url=self.url, prefix=self.prefix, timeout_seconds=self.timeout
        )
        self.worker = self.made_with(settings)

    def made_with(self, settings: StatHatSettings) -> StatHat:
        return StatHat(
            settings,
            outbox_of(self.store),
            self.store.connection,
            torrents=self.torrents,
            count=self.count,
            clock=self.clock,
            chance=lambda: 1.0,
        )

    async def torrents(self) -> int:
        return 42

    def count(self, *names: str, by: int = 1) -> None:
        for name in names:
            self.counts[name] += by

    async def flush(self, *, pause: float = 901) -> None:
        self.clock.now += pause
        await self.worker.flush({})


async def _flush_once(store_url: str, prefix: str, url: str, now: str) -> None:
    store: Any = Store(store_url, Keys(prefix), SwarmRules())
    await Flushing(store, url, timeout=60, clock=Clock(float(now))).worker.flush()
    await store.connection.close()


if __name__ == "__main__":
    asyncio.run(_flush_once(*sys.argv[1:]))
