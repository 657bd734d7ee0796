"""How often another tracker may be asked: so many requests a minute to a host, and none while it rests."""

import random

FIRST_REST_SECONDS = 60.0
LONGEST_REST_SECONDS = 3600.0
_JITTER = 0.25


class Budget:
    """At most ``per_minute`` requests in any minute: a quarter of them at once, the others spread over it."""

    def __init__(self, per_minute: float, now: float) -> None:
        self._most = max(1.0, per_minute / 4)
        steady = per_minute - self._most if per_minute >= 2 else per_minute
        self._per_second = steady / 60
        self._left = self._most
        self._at = now

    def take(self, now: float) -> bool:
        """Takes one request out of it; false when there is none left."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Rest:
    """Rests after failures in a row, longer each time: a minute, two, up to an hour, give or take a quarter.

    After a rest one request is let through. When it fails too, the next rest begins.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._rests = 0
        self._until = 0.0

    @property
    def resting(self) -> bool:
        """Has it failed too often since it last succeeded?"""
        return self._rests > 0

    def admits(self, now: float, trial_seconds: float) -> bool:
        """Whether it may be asked now. A trial keeps others away for so long, or until its outcome is known."""
        if not self.resting:
            return True
        if now < self._until:
            return False
        self._until = now + trial_seconds
        return True

    def succeeded(self) -> bool:
        """Whether that ended its rests."""
        was_resting = self.resting
        self._failures = self._rests = 0
        return was_resting

    def failed(self, now: float, limit: int) -> float | None:
        """``limit`` failures in a row make it rest. The seconds of its first rest where this begins it."""
        self._failures += 1
        if not self.resting and self._failures < limit:
            return None
        began = not self.resting
        seconds = min(LONGEST_REST_SECONDS, FIRST_REST_SECONDS * 2.0 ** min(self._rests, 10))
        seconds *= random.uniform(1 - _JITTER, 1 + _JITTER)
        self._rests += 1
        self._until = now + seconds
        return seconds if began else None
