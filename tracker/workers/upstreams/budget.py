"""Limits of requests to other trackers: a budget per host and minute, and pauses after failures."""

import random

from tracker.token_bucket import TokenBucket

FIRST_PAUSE_SECONDS = 60.0
MAX_PAUSE_SECONDS = 3600.0
_JITTER = 0.25


def request_budget(per_minute: float, now: float) -> TokenBucket:
    """At most ``per_minute`` requests in any minute: up to a quarter at once, the others spread over the minute."""
    burst = max(1.0, per_minute / 4)
    steady = per_minute - burst if per_minute >= 2 else per_minute
    return TokenBucket(steady / 60, burst, now)


class Backoff:
    """Pauses after failures in a row: one minute, then twice as long each time, up to an hour, with 25 % jitter.

    After a pause one trial request is allowed. If it fails, the next pause begins.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._pauses = 0
        self._until = 0.0

    @property
    def active(self) -> bool:
        """Whether it has failed too often since the last success."""
        return self._pauses > 0

    def allows(self, now: float, trial_seconds: float) -> bool:
        """Whether a request is allowed now. A trial excludes others for ``trial_seconds``, or until it ends."""
        if not self.active:
            return True
        if now < self._until:
            return False
        self._until = now + trial_seconds
        return True

    def succeeded(self) -> bool:
        """Ends the pauses; true if there was one."""
        was_active = self.active
        self._failures = self._pauses = 0
        return was_active

    def failed(self, now: float, limit: int) -> float | None:
        """``limit`` failures in a row begin a pause. Returns its seconds if it is the first one."""
        self._failures += 1
        if not self.active and self._failures < limit:
            return None
        began = not self.active
        seconds = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._pauses, 10))
        seconds *= random.uniform(1 - _JITTER, 1 + _JITTER)
        self._pauses += 1
        self._until = now + seconds
        return seconds if began else None
