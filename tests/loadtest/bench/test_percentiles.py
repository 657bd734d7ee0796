"""The nearest rank: a percentile is one of the values, and that share of them does not exceed it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.bench.percentiles import in_milliseconds, percentile


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.501, 51), (0.99, 99), (0.999, 100), (1.0, 100)]
)
def test_of_a_hundred(share: float, expected: float) -> None:
    assert percentile(range(1, 101), share) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.01, 0.25, 0.5, 0.9, 0.99, 1.0]))
def test_the_share_of_values_does_not_exceed_the_percentile(values: list[float], share: float) -> None:
    found = percentile(sorted(values), share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    assert in_milliseconds([]) == {}


def test_order_does_not_matter() -> None:
    found = in_milliseconds([0.003, 0.001, 0.002])
    assert {name: round(value, 6) for name, value in found.items()} == {
        "p50": 2.0,
        "p90": 3.0,
        "p99": 3.0,
        "p99.9": 3.0,
        "worst": 3.0,
    }
