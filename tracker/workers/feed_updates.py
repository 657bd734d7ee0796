"""Records in the change feed which peers have announced: each at most once in the time that the settings say."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from tracker.store.changes.changes import Changes
from tracker.store.jobs.lease import Lease
from tracker.workers.loop import Sleep, forever

LEASE_SECONDS = 15
_STEP_SECONDS = 1.0
_OFF_SECONDS = 60
"""Between two looks for peers that were noted before the setting was switched off."""


@dataclass(eq=False)
class FeedUpdates:
    """``seconds`` returns the setting, 0: off; ``lease``: one tracker does it; ``timer`` returns monotonic seconds."""

    changes: Changes
    seconds: Callable[[], int]
    lease: Lease
    timer: Callable[[], float] = time.monotonic
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self._recorded_at = self.timer()

    async def run(self) -> None:
        await forever(self.step, _STEP_SECONDS, "updates are not recorded", lease=self.lease, sleep=self.sleep)

    async def step(self) -> None:
        now = self.timer()
        if now >= self._recorded_at + (self.seconds() or _OFF_SECONDS):
            self._recorded_at = now
            await self.changes.record_updates()
