"""How often another tracker is asked, and how long it rests; no clock but the tests'."""

import pytest

from tracker.workers.upstreams.budget import FIRST_REST_SECONDS, LONGEST_REST_SECONDS, Budget, Rest


@pytest.mark.parametrize(("per_minute", "at_once"), [(60, 15), (4, 1), (1, 1), (0.5, 1), (240, 60)])
def test_no_minute_holds_more_requests_than_allowed(per_minute: float, at_once: int) -> None:
    budget = Budget(per_minute, 0.0)
    taken = [step / 10 for step in range(10 * 600) for _ in range(at_once) if budget.take(step / 10)]
    assert sum(at == 0 for at in taken) == at_once
    most = max(sum(start <= at < start + 60 for at in taken) for start in range(0, 540, 7))
    assert most <= max(1, per_minute)
    assert len(taken) >= 10 * per_minute * 0.7


def test_a_clock_that_goes_back_gives_nothing() -> None:
    budget = Budget(4, 100.0)
    assert budget.take(100.0)
    assert not budget.take(50.0)


class TestRest:
    def test_failures_in_a_row_make_it_rest(self) -> None:
        rest = Rest()
        assert rest.failed(0, 3) is None
        assert rest.failed(0, 3) is None
        assert not rest.succeeded()
        assert [rest.failed(0, 3) is None for _ in range(3)] == [True, True, False]
        assert not rest.admits(0.5 * FIRST_REST_SECONDS, 10)
        assert rest.admits(1.5 * FIRST_REST_SECONDS, 10)

    def test_after_a_rest_one_is_let_through(self) -> None:
        rest = Rest()
        rest.failed(0, 1)
        assert [rest.admits(100, 10), rest.admits(100, 10), rest.admits(109, 10)] == [True, False, False]
        assert rest.admits(110, 10), "the trial was given up without an outcome"

    def test_each_rest_is_longer_and_none_is_endless(self) -> None:
        rest, now, lengths = Rest(), 0.0, []
        for _ in range(2000):
            assert rest.admits(now, 0.1)
            rest.failed(now, 1)
            began = now
            while not rest.admits(now + 10, 0.1):
                now += 10
            now += 20
            lengths.append(now - began)
            if len(lengths) > 12:
                break
        assert lengths[0] <= 1.25 * FIRST_REST_SECONDS + 20
        assert lengths[3] > 1.5 * lengths[1]
        assert 0.75 * LONGEST_REST_SECONDS <= lengths[-1] <= 1.25 * LONGEST_REST_SECONDS + 20

    def test_a_success_ends_it_once(self) -> None:
        rest = Rest()
        assert rest.failed(0, 1) is not None
        assert rest.failed(100, 1) is None, "it was resting already"
        assert rest.succeeded()
        assert not rest.succeeded()
        assert rest.admits(100, 10)
