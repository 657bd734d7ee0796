"""Percentiles of measured times."""

from collections.abc import Sequence

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "worst": 1.0}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed (nearest rank)."""
    if not ordered:
        raise ValueError("no values")
    rank = -int(-len(ordered) * share // 1)  # rounded up
    return ordered[max(0, min(len(ordered), rank) - 1)]


def in_milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Percentiles (ms) by name of SHARES; empty without values."""
    ordered = sorted(seconds)
    return {name: 1000 * percentile(ordered, share) for name, share in SHARES.items()} if ordered else {}
