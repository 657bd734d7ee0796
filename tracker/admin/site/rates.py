"""Requests and answered announces a second, averaged over several times, as sites show them on a staff page."""

import asyncio
import math
from collections.abc import Callable

from tracker.runtime.telemetry import Snapshot

WINDOWS = (1, 10, 60, 900, 7200)
"""Seconds. The weight of a second falls to a third in this time."""
COUNTED = {"requests": "requests", "announce_responses": "announces"}
"""Name in the reply -> count of telemetry."""
_EVERY_SECONDS = 1.0


class Rates:
    """``telemetry`` returns the counts of all processes since their start, ``clock`` epoch seconds."""

    def __init__(self, telemetry: Callable[[], Snapshot], clock: Callable[[], float]) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self.started_at = self._read_at = clock()
        self.counts = self._read()
        self.last_at = dict.fromkeys(COUNTED, 0.0)
        self.per_second = {(name, window): 0.0 for name in COUNTED for window in WINDOWS}

    def _read(self) -> dict[str, int]:
        counts = self._telemetry().counts
        return {name: counts.get(counted, 0) for name, counted in COUNTED.items()}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            self.read()

    def read(self) -> None:
        """Adds what was counted since the last time."""
        now, counts = self._clock(), self._read()
        seconds = max(0.001, now - self._read_at)
        for name, count in counts.items():
            new = max(0, count - self.counts[name])  # a web process that ended takes its counts along
            self.last_at[name] = now if new else self.last_at[name]
            for window in WINDOWS:
                old = self.per_second[name, window]
                self.per_second[name, window] = old + (new / seconds - old) * -math.expm1(-seconds / window)
        self._read_at, self.counts = now, counts

    def shown(self) -> dict[str, float]:
        """As UNIT3D reads them: times in epoch seconds."""
        return {
            "created_at": float(self.started_at),
            "last_request_at": float(self.last_at["requests"]),
            "last_announce_response_at": float(self.last_at["announce_responses"]),
            **{f"{name}_per_{window}s": rate for (name, window), rate in self.per_second.items()},
        }
