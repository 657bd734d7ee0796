"""Slices of time, and distributions of measured values: arithmetic only. An event belongs to one slice of each
precision. The last RETAINED slices of each precision are kept, including the current one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

PRECISIONS = (1, 5, 60, 300, 900, 3600, 7200, 18000, 28800, 86400)
"""Lengths of slices (s); lib/slices.lua has the same list."""
RETAINED = 120
_COARSEST_MERGE = 3600
"""The longest slice that fits into one slice of every coarser precision: 18000 does not divide 86400."""
ALL_TIME = "all"
"""The name of the all-time period."""
MONTHS_KEPT = 13
"""How many months the statistics of a month are kept after its end."""
SAMPLED = ("seeders", "leechers", "torrents", "users")
"""The distributions that hold the samples."""
SAMPLED_PARTS = tuple(
    f"{kind}.{part}" for part in ("v4", "v6", "http", "udp", "ws") for kind in ("seeders", "leechers")
)
"""The same of what the sweep has counted last."""
SAMPLE_SECONDS = 5


def start_of(at: float, precision: int) -> int:
    """The start of the slice that contains ``at`` (epoch s)."""
    return int(at // precision) * precision


def oldest_retained(now: float, precision: int) -> int:
    """The start of the oldest slice that is still shown."""
    return start_of(now, precision) - (RETAINED - 1) * precision


def finest_retained(at: int, now: float) -> int:
    """The start of the shortest slice that contains ``at`` and is still shown; an hour at most."""
    for precision in PRECISIONS:
        if precision == _COARSEST_MERGE or at >= oldest_retained(now, precision):
            return start_of(at, precision)
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class Distribution:
    """At least one measured value. ``squares`` is the sum of squared differences from the mean."""

    count: int
    mean: float
    squares: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Distribution | None":
        """None without finite values. It sums differences from the first value: that is exact for large values close
        together, and for equal values."""
        if not math.isfinite(sum(values)):
            values = [value for value in values if math.isfinite(value)]
        if not values:
            return None
        first, count = float(values[0]), len(values)
        mean = first + math.fsum([value - first for value in values]) / count
        squares = math.dist(values, [mean] * count) ** 2
        return cls(count, mean, squares, float(min(values)), float(max(values)))

    @property
    def sum(self) -> float:
        return self.mean * self.count

    @property
    def deviation(self) -> float:
        """The standard deviation of these values (not an estimate for others)."""
        return math.sqrt(self.squares / self.count)

    def merge(self, other: "Distribution") -> "Distribution":
        """The distribution of both (Chan, Golub and LeVeque 1979); measure() in count.lua does the same."""
        count, apart = self.count + other.count, other.mean - self.mean
        return Distribution(
            count,
            self.mean + apart * other.count / count,
            self.squares + other.squares + apart * apart * (self.count * other.count / count),
            min(self.min, other.min),
            max(self.max, other.max),
        )

    def encode(self) -> str:
        return f"{self.count} {self.mean!r} {self.squares!r} {self.min!r} {self.max!r}"

    @classmethod
    def decode(cls, text: bytes) -> "Distribution":
        """Raises ValueError for anything else than ``encode`` returns."""
        count, mean, squares, low, high = text.split()
        return cls(int(count), float(mean), float(squares), float(low), float(high))


def month_of(now: float) -> str:
    """Returns the UTC month of ``now`` (epoch s) as ``YYYY-MM``."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m")


def month_start(now: float, later: int = 0) -> datetime:
    """Returns the UTC start of the month ``later`` months after that of ``now`` (epoch s)."""
    current = datetime.fromtimestamp(now, UTC)
    years, month = divmod(current.month - 1 + later, 12)
    return datetime(current.year + years, month + 1, 1, tzinfo=UTC)
