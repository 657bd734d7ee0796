"""Detects jumps of the store's clock, on which the timeouts of peers run, by comparing it with ours at every heartbeat.

A jump ahead ends the timeouts of active peers, all at once; a jump back keeps peers that are gone. A constant
difference does no harm, because a timeout is set by its length.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

JUMP_SECONDS = 60
"""A smaller difference is no jump: timeouts leave peers more time. The scripts know it as OUTAGE."""


@dataclass(frozen=True, slots=True)
class ClockStepBack:
    """Timeouts set before ``since`` (epoch s) expire ``seconds`` too late."""

    seconds: int
    since: int


class StoreClock:
    """``timer`` gives seconds that never jump."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._seen: tuple[float, int] | None = None
        self.step_back: ClockStepBack | None = None
        """Set until the timeouts are shortened."""

    @property
    def expected(self) -> int | str:
        """The expected time, epoch seconds, as an argument of scripts: empty when unknown."""
        return "" if self._seen is None else round(self._seen[1] + self._timer() - self._seen[0])

    def note(self, now: int, says: int) -> int:
        """Takes its time ``says`` at our ``now`` (epoch s); returns by how many seconds it has jumped ahead since
        last time."""
        moment, seen = self._timer(), self._seen
        self._seen = moment, says
        if seen is None:
            return 0
        passed = moment - seen[0]
        jump = round(says - seen[1] - passed)
        if abs(jump) <= JUMP_SECONDS:
            return 0
        if jump < 0:
            before = self.step_back.seconds if self.step_back else 0
            self.step_back = ClockStepBack(before - jump, int(now - passed) - 1)
        return jump
