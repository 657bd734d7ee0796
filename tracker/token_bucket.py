"""The token bucket: a rate with a burst. Time is an argument."""


class TokenBucket:
    """``burst`` at once, and ``rate`` per second. It is full at ``now``, in seconds from any start. A time before the
    last one counts as the last one."""

    __slots__ = ("_at", "_left", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._left = burst
        self._at = now

    def has(self, now: float, amount: float = 1) -> bool:
        """Whether ``amount`` is there."""
        if now > self._at:
            self._left = min(self.burst, self._left + (now - self._at) * self.rate)
            self._at = now
        return self._left >= amount

    def take(self, now: float, amount: float = 1) -> bool:
        """Takes ``amount`` if it is there."""
        if not self.has(now, amount):
            return False
        self._left -= amount
        return True

    def wait(self, now: float, amount: float = 1) -> float:
        """Seconds until ``amount`` is there; 0.0 if it is."""
        return 0.0 if self.has(now, amount) else (amount - self._left) / self.rate
