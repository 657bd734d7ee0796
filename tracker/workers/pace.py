"""The pace of a round of the sweep: the remaining time divided by what remains to visit.

Both are read again after each step, so a round ends in time even if the tracker grows.
"""

MAX_PAUSE_SECONDS = 30.0
"""Maximum pause. A round with little to visit ends early."""
_SHARE = 0.9
"""The planned share of a round's time."""


class Pace:
    """The pace of one round that began at ``began``. All times are seconds of one monotonic clock."""

    def __init__(self, began: float) -> None:
        self._began = began
        self.size = 0
        """The latest known number of entries to visit."""
        self.visited = 0

    def pause(self, now: float, step: int, seconds: float) -> float:
        """The pause (s) after a step that visited ``step`` entries, in a round that may take ``seconds``."""
        self.visited += step
        left = self.size - self.visited
        time_left = self._began + _SHARE * seconds - now
        if left <= 0 or time_left <= 0:
            return 0.0
        return min(MAX_PAUSE_SECONDS, time_left * step / (left + step))

    def is_late(self, now: float, seconds: float) -> bool:
        """Whether the round's time is over."""
        return now - self._began > seconds
