"""Budgets and pauses of requests to other trackers, on the test's clock."""

import pytest

from tracker.workers.upstreams import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, Backoff, request_budget


@pytest.mark.parametrize(("per_minute", "at_once"), [(60, 15), (4, 1), (1, 1), (0.5, 1), (240, 60)])
def test_no_minute_has_more_requests_than_the_budget(per_minute: float, at_once: int) -> None:
    budget = request_budget(per_minute, 0.0)
    taken = [step / 10 for step in range(10 * 600) for _ in range(at_once) if budget.take(step / 10)]
    assert sum(at == 0 for at in taken) == at_once
    most = max(sum(start <= at < start + 60 for at in taken) for start in range(0, 540, 7))
    assert most <= max(1, per_minute)
    assert len(taken) >= 10 * per_minute * 0.7


class TestRest:
    def test_failures_in_a_row_begin_a_pause(self) -> None:
        backoff = Backoff("scrape")
        assert backoff.failed(0, 3) is None
        assert backoff.failed(0, 3) is None
        assert not backoff.succeeded()
        assert [backoff.failed(0, 3) is None for _ in range(3)] == [True, True, False]
        assert not backoff.allows(0.5 * FIRST_PAUSE_SECONDS, 10)
        assert backoff.allows(1.5 * FIRST_PAUSE_SECONDS, 10)

    def test_after_a_pause_one_trial_is_allowed(self) -> None:
        backoff = Backoff("scrape")
        backoff.failed(0, 1)
        assert [backoff.allows(100, 10), backoff.allows(100, 10), backoff.allows(109, 10)] == [True, False, False]
        assert backoff.allows(110, 10), "the trial ended without a result"

    def test_each_pause_is_longer_up_to_an_hour(self) -> None:
        backoff, now, lengths = Backoff("scrape"), 0.0, []
        for _ in range(2000):
            assert backoff.allows(now, 0.1)
            backoff.failed(now, 1)
            began = now
            while not backoff.allows(now + 10, 0.1):
                now += 10
            now += 20
            lengths.append(now - began)
            if len(lengths) > 12:
                break
        assert lengths[0] <= 1.25 * FIRST_PAUSE_SECONDS + 20
        assert lengths[3] > 1.5 * lengths[1]
        assert 0.75 * MAX_PAUSE_SECONDS <= lengths[-1] <= 1.25 * MAX_PAUSE_SECONDS + 20

    def test_a_success_ends_the_pauses_once(self) -> None:
        backoff = Backoff("scrape")
        assert backoff.failed(0, 1) is not None
        assert backoff.failed(100, 1) is None, "it was paused already"
        assert backoff.succeeded()
        assert not backoff.succeeded()
        assert backoff.allows(100, 10)
