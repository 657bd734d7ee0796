"""The pace of a round of the sweep, on computed time."""

import pytest

from tracker.workers.reaper import MAX_PAUSE_SECONDS, Pace

INTERVAL = 2700.0


def round_of(sizes: list[int], step: int) -> tuple[float, float]:
    """(seconds a round took, longest pause) where ``sizes`` is what there is to visit, in turn at each step."""
    now, longest, visited = 0.0, 0.0, 0
    pace = Pace(now)
    for size in sizes:
        pace.size = size
        if visited >= size:
            break
        visited += step
        pause = pace.pause(now, step, INTERVAL)
        now, longest = now + pause, max(longest, pause)
    return now, longest


def test_a_round_takes_nearly_an_interval() -> None:
    took, longest = round_of([100_000] * 1001, 100)
    assert 0.85 * INTERVAL < took < INTERVAL
    assert longest == pytest.approx(0.9 * INTERVAL / 1000, rel=0.01)


@pytest.mark.parametrize("growth", [1.01, 2, 10, 100])
def test_a_round_ends_in_time_while_the_tracker_grows(growth: float) -> None:
    """Each pause is a share of the remaining time."""
    first, last = 20_000, int(20_000 * growth)
    steps = last // 100 + 1
    sizes = [first + (last - first) * min(n, 100) // 100 for n in range(steps + 1)]
    took, _ = round_of(sizes, 100)
    assert took < INTERVAL


def test_a_round_ends_early_when_the_tracker_shrinks() -> None:
    took, _ = round_of([100_000] * 10 + [2_000] * 20, 100)
    assert took < INTERVAL / 2


def test_a_small_round_ends_early() -> None:
    """A pause takes at most half a minute; the last step has none."""
    took, longest = round_of([300] * 3, 100)
    assert (took, longest) == (2 * MAX_PAUSE_SECONDS, MAX_PAUSE_SECONDS)


def test_a_late_round_has_no_pauses() -> None:
    pace = Pace(0.0)
    pace.size = 1000
    assert pace.pause(0.95 * INTERVAL, 100, INTERVAL) == 0
