"""Slices of time, and the distribution of what was measured in one: arithmetic only.

An event belongs to one slice in each precision, the one that begins at or before it. Of each precision the last
RETAINED slices are kept, the current one among them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

PRECISIONS = (1, 5, 60, 300, 3600, 18000, 86400)
"""Lengths of a slice (s); count.lua knows them too."""
RETAINED = 120
_COARSEST_MERGE = 3600
"""The longest slice that lies within one slice of every coarser precision: 18000 does not divide 86400."""


def start_of(at: float, precision: int) -> int:
    """Where the slice that holds ``at`` begins (epoch s)."""
    return int(at // precision) * precision


def oldest_retained(now: float, precision: int) -> int:
    """Where the oldest slice begins that is still shown."""
    return start_of(now, precision) - (RETAINED - 1) * precision


def finest_retained(at: int, now: float) -> int:
    """Where the shortest slice that holds ``at`` and is still shown begins; at the longest the hour."""
    for precision in PRECISIONS:
        if precision == _COARSEST_MERGE or at >= oldest_retained(now, precision):
            return start_of(at, precision)
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class Distribution:
    """What was measured: at least one value. ``squares`` is the sum of squared differences from the mean."""

    count: int
    mean: float
    squares: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Distribution | None":
        """None when there is no value; what is not finite is none.

        Summing the differences from one of the values, not the values, loses no digits where they are large and
        close together, and makes a constant series exactly constant.
        """
        values = [float(value) for value in values if math.isfinite(value)]
        if not values:
            return None
        first, count = values[0], len(values)
        mean = first + math.fsum(value - first for value in values) / count
        squares = math.fsum((value - mean) ** 2 for value in values)
        return cls(count, mean, squares, min(values), max(values))

    @property
    def sum(self) -> float:
        return self.mean * self.count

    @property
    def deviation(self) -> float:
        """The standard deviation of these values (not an estimate for others)."""
        return math.sqrt(self.squares / self.count)

    def merge(self, other: "Distribution") -> "Distribution":
        """Of both together (Chan, Golub and LeVeque 1979); measure() in count.lua does the same."""
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
        """Raises ValueError for what is none."""
        count, mean, squares, low, high = text.split()
        return cls(int(count), float(mean), float(squares), float(low), float(high))
