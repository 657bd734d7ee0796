"""The token bucket: its burst, its rate, and its waits, against a model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.token_bucket import TokenBucket


def test_a_burst_at_once_and_then_the_rate() -> None:
    bucket = TokenBucket(100, 10, 0)
    assert [bucket.take(0) for _ in range(11)] == [True] * 10 + [False]
    assert [bucket.take(0.02) for _ in range(3)] == [True, True, False]
    assert [bucket.take(1000) for _ in range(11)] == [True] * 10 + [False]


def test_time_that_goes_back_adds_nothing() -> None:
    bucket = TokenBucket(1, 1, 100)
    assert bucket.take(100) and not bucket.take(50)
    assert not bucket.take(100.5) and bucket.take(101)


def test_a_wait_ends_when_enough_is_there() -> None:
    bucket = TokenBucket(0.5, 4, 0)
    assert bucket.wait(0, 4) == 0.0
    assert bucket.take(0, 4)
    assert bucket.wait(0) == pytest.approx(2)
    assert bucket.wait(1, 3) == pytest.approx(5)
    assert not bucket.take(5.9, 3) and bucket.take(6, 3)


def test_what_does_not_fit_takes_nothing() -> None:
    bucket = TokenBucket(1, 10, 0)
    assert not bucket.take(0, 11)
    assert bucket.take(0, 10)


@given(
    rate=st.integers(1, 50),
    burst=st.integers(1, 50),
    steps=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=60),
)
def test_no_time_gives_more_than_burst_and_rate(rate: int, burst: int, steps: list[tuple[int, int]]) -> None:
    bucket, now, taken = TokenBucket(rate, burst, 0), 0, [(0, 0)]
    for pause, amount in steps:
        now += pause
        if bucket.take(now, amount):
            taken.append((now, amount))
    for number, (start, _) in enumerate(taken):
        for end in range(number, len(taken)):
            total = sum(amount for _, amount in taken[number : end + 1])
            assert total <= burst + rate * (taken[end][0] - start)
