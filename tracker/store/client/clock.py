"""Detects steps of clocks, by comparing them at every heartbeat with seconds that never jump.

The timeouts of peers run on the store's clock. A jump ahead ends the timeouts of active peers, all at once; a jump back
keeps peers that are gone. A constant difference does no harm, because a timeout is set by its length.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

JUMP_SECONDS = 60
"""A smaller difference is no jump of the store's clock: timeouts leave peers more time. The scripts know it as
OUTAGE."""


@dataclass(frozen=True, slots=True)
class ClockStepBack:
    """Timeouts set before ``since`` (epoch s) expire ``seconds`` too late."""

    seconds: int
    since: int


def seconds_ahead(gap: bytes | None) -> int:
    """By how much the clock is ahead of the steady clock, of the value of the key ``gap`` (outage.lua)."""
    found = re.fullmatch(rb"\d+ \d+ (-?\d{1,15}) \d+", gap or b"")
    return int(found[1]) if found else 0


def own_step(last: tuple[float, float] | None, moment: float, now: float) -> tuple[int | str, int]:
    """By how much this process's clock, which shows ``now`` at ``moment`` of the timer, has stepped since the ``last``
    heartbeat (moment and time), and how long ago (s) that was. Empty for none and one too long ago: an outage may have
    begun since."""
    if last is None or moment - last[0] > JUMP_SECONDS:
        return "", 0
    passed = moment - last[0]
    return round(now - last[1] - passed), round(passed)


class StoreClock:
    """``timer`` gives seconds that never jump. Small jumps add up."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._base: tuple[float, int] | None = None
        self._last = 0.0
        self.step_back: ClockStepBack | None = None
        """Set until the timeouts are shortened."""

    @property
    def expected(self) -> int | str:
        """The expected time, epoch seconds, as an argument of scripts: empty when unknown."""
        return "" if self._base is None else round(self._base[1] + self._timer() - self._base[0])

    def note(self, now: int, says: int) -> int:
        """Takes its time ``says`` at our ``now`` (epoch s); returns by how many seconds it has jumped ahead since
        last time."""
        moment, base = self._timer(), self._base
        passed, self._last = moment - self._last, moment
        if base is None:
            self._base = moment, says
            return 0
        jump = round(says - base[1] - (moment - base[0]))
        if abs(jump) <= JUMP_SECONDS:
            return 0
        self._base = moment, says
        if jump < 0:
            before = self.step_back.seconds if self.step_back else 0
            self.step_back = ClockStepBack(before - jump, int(now - passed) - 1)
        return jump
