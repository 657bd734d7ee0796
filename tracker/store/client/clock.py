"""The store's clock, on which the timeouts of peers run, held against ours at every heartbeat: has it jumped?

Ahead, it ends timeouts whose peers are here, all at once; back, it keeps those of peers that are gone. A difference that stays does
no harm, for every timeout is told by its length.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

JUMP_SECONDS = 60
"""Less is no jump: peers have more time than that to spare. The scripts know it as OUTAGE."""


@dataclass(frozen=True, slots=True)
class SetBack:
    """It was set back by ``seconds``; who last announced before ``since`` (epoch s) has a timeout that ends as much too late."""

    seconds: int
    since: int


class StoreClock:
    """``timer`` gives seconds since whenever, and never jumps."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._seen: tuple[float, int] | None = None
        self.set_back: SetBack | None = None
        """Until somebody has seen to it."""

    @property
    def expected(self) -> int | str:
        """What it should say now, epoch seconds, as scripts are told: empty when nobody knows."""
        return "" if self._seen is None else round(self._seen[1] + self._timer() - self._seen[0])

    def note(self, now: int, says: int) -> int:
        """``says`` is what it said at our ``now``, epoch seconds; the answer is by how many seconds it has jumped ahead since last time."""
        moment, seen = self._timer(), self._seen
        self._seen = moment, says
        if seen is None:
            return 0
        passed = moment - seen[0]
        jump = round(says - seen[1] - passed)
        if abs(jump) <= JUMP_SECONDS:
            return 0
        if jump < 0:
            before = self.set_back.seconds if self.set_back else 0
            self.set_back = SetBack(before - jump, int(now - passed) - 1)
        return jump
