"""Counts, histograms and gauges of one process since its start, and their sums over processes.

Cheap enough for every announce: values arrive once a second, as Counters has gathered them. They end with the process;
store/stats/counters.py keeps the lasting ones.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
DHT_QUERIES = ("ping", "find_node", "get_peers")
"""The queries that the node of the DHT sends."""
_DHT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BOUNDS: Mapping[str, tuple[float, ...]] = {
    "announce_seconds": _SECONDS,
    "store_seconds": _SECONDS,
    "announce_batch": (1, 2, 4, 8, 16, 32, 64),
    "reap_lag_seconds": (1, 2, 5, 10, 30, 60, 300, 900, 3600),
    **{f"dht_query_seconds.{query}": _DHT_SECONDS for query in DHT_QUERIES},
}
"""For each histogram the upper bounds of its buckets. One more bucket holds the values above the last bound."""


@dataclass(slots=True)
class Histogram:
    """``counts`` has one entry per bucket, not cumulative, and one for values above the last bound."""

    counts: list[int]
    sum: float = 0.0


@dataclass(slots=True)
class Snapshot:
    """The telemetry of one process, or the sums of several. Counts and histograms never decrease."""

    counts: dict[str, int] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)


class Telemetry:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._histograms = {name: Histogram([0] * (len(bounds) + 1)) for name, bounds in BOUNDS.items()}
        self._gauges: dict[str, Callable[[], float]] = {}

    def count(self, name: str, by: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + by

    def observe(self, name: str, *values: float) -> None:
        """Adds ``values`` to the histogram ``name``. Ignored if BOUNDS has none of that name."""
        histogram = self._histograms.get(name)
        if histogram is not None:  # one value per announce, so this is written for speed
            bounds, buckets = BOUNDS[name], histogram.counts
            for value in values:
                buckets[bisect_left(bounds, value)] += 1
            histogram.sum += sum(values)

    def round_trip(self, outcome: str, seconds: float) -> None:
        """A round trip to the store, as Connection reports it."""
        self.count(f"store.{outcome}")
        self.observe("store_seconds", seconds)

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """``read`` is called for each snapshot."""
        self._gauges[name] = read

    def remove_gauge(self, name: str) -> None:
        self._gauges.pop(name, None)

    def add_second(self, counts: Mapping[tuple[str, ...], int], measured: Mapping[str, Sequence[float]]) -> None:
        """Adds one second's values from Counters: counts by groups of names, and measurements by name."""
        for names, number in counts.items():
            for name in names:
                self.count(name, number)
        for name, values in measured.items():
            self.observe(name, *values)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            dict(self._counts),
            {name: Histogram(list(h.counts), h.sum) for name, h in self._histograms.items()},
            {name: read() for name, read in self._gauges.items()},
        )


def merged(snapshots: Iterable[Snapshot]) -> Snapshot:
    total = Snapshot()
    for snapshot in snapshots:
        for name, count in snapshot.counts.items():
            total.counts[name] = total.counts.get(name, 0) + count
        for name, gauge in snapshot.gauges.items():
            total.gauges[name] = total.gauges.get(name, 0.0) + gauge
        for name, histogram in snapshot.histograms.items():
            sums = total.histograms.setdefault(name, Histogram([0] * len(histogram.counts)))
            sums.counts = [a + b for a, b in zip(sums.counts, histogram.counts, strict=True)]
            sums.sum += histogram.sum
    return total
