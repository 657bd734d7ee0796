"""Percentiles of times that were measured one by one."""

from collections.abc import Sequence

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "worst": 1.0}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least value that at least this share of them does not exceed (nearest rank)."""
    if not ordered:
        raise ValueError("no values")
    rank = -int(-len(ordered) * share // 1)  # rounded up
    return ordered[max(0, min(len(ordered), rank) - 1)]


def in_milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """By name of SHARES; empty where there are none."""
    ordered = sorted(seconds)
    return {name: 1000 * percentile(ordered, share) for name, share in SHARES.items()} if ordered else {}
