"""Slices of time and distributions, as arithmetic (rows C1, C2, C10)."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.store.stats.slices import PRECISIONS, RETAINED, Distribution, finest_retained, oldest_retained, start_of

VALUES = st.lists(st.floats(-1e9, 1e9) | st.floats(0, 1e-3) | st.integers(-1000, 1000), min_size=1, max_size=50)


@pytest.mark.parametrize("precision", PRECISIONS)
@given(at=st.floats(0, 4e9))
def test_a_moment_is_in_one_slice_of_each_precision(precision: int, at: float) -> None:
    """C1."""
    start = start_of(at, precision)
    assert start % precision == 0 and start <= at < start + precision


def test_a_slice_ends_where_the_next_begins() -> None:
    """C1: 59.999 and 60."""
    assert [start_of(at, 60) for at in (0, 59.999, 60, 119.999, 120)] == [0, 0, 60, 60, 120]


@pytest.mark.parametrize("precision", PRECISIONS)
@given(now=st.floats(20_000_000, 4e9))
def test_the_last_slices_are_retained(precision: int, now: float) -> None:
    """C2: the current slice included."""
    retained = range(oldest_retained(now, precision), math.floor(now) + 1, precision)
    assert len(retained) == RETAINED and retained[-1] == start_of(now, precision)
    assert retained[0] > now - RETAINED * precision


@given(now=st.integers(20_000_000, 2_000_000_000), age=st.integers(-10, 20_000_000))
def test_a_merged_event_stays_in_every_slice_that_is_shown(now: int, age: int) -> None:
    at = max(0, now - age)
    merged = finest_retained(at, now)
    for precision in PRECISIONS:
        if start_of(at, precision) >= oldest_retained(now, precision):
            assert start_of(merged, precision) == start_of(at, precision)
        else:
            assert start_of(merged, precision) < oldest_retained(now, precision)


def same(found: Distribution | None, values: list[float]) -> None:
    assert found is not None and found.count == len(values)
    largest = max(abs(value) for value in values)
    assert found.mean == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-12 * largest + 1e-300)
    assert found.sum == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-12 * largest * len(values) + 1e-300)
    assert (found.min, found.max) == (min(values), max(values))
    # Squaring halves the digits: of values large and close together half the digits of the deviation are noise,
    # and of values below 1e-150 nothing is left.
    assert found.deviation == pytest.approx(statistics.pstdev(values), rel=1e-7, abs=1e-8 * largest + 1e-150)


@given(VALUES)
def test_a_distribution_equals_the_reference(values: list[float]) -> None:
    """C10."""
    same(Distribution.of(values), values)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_distributions_merge_into_that_of_all_values(parts: list[list[float]]) -> None:
    """C10: over slices and processes."""
    total: Distribution | None = None
    for part in parts:
        one = Distribution.of(part)
        assert one is not None
        total = one if total is None else total.merge(one)
    same(total, [value for part in parts for value in part])


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 100), st.integers(1, 100))
def test_a_constant_series_does_not_deviate(value: float, count: int, more: int) -> None:
    """C10: exactly 0, before and after merging."""
    one, other = Distribution.of([value] * count), Distribution.of([value] * more)
    assert one is not None and other is not None
    assert one.deviation == other.deviation == one.merge(other).deviation == 0
    assert one.merge(other).mean == value


def test_an_empty_distribution_has_no_values() -> None:
    """C10: values that are no number are ignored."""
    assert Distribution.of([]) is None
    assert Distribution.of([math.nan, math.inf, -math.inf]) is None
    assert Distribution.of([math.nan, 2]) == Distribution(1, 2, 0, 2, 2)


@given(VALUES)
def test_the_stored_form_keeps_every_digit(values: list[float]) -> None:
    one = Distribution.of(values)
    assert one is not None and Distribution.decode(one.encode().encode()) == one


@pytest.mark.parametrize("text", [b"", b"1 2 3", b"x 1 2 3 4", b"1 2 3 4 x"])
def test_an_invalid_distribution_is_refused(text: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        Distribution.decode(text)
