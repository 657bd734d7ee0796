"""The average of a torrent's seeders over its history."""

import pytest

from tracker.store.work.demand import PastSeeders, past_seeders

NOW, HOUR = 1_000_000_000, 3600


def entries(*points: tuple[int, int]) -> list[bytes]:
    """Points as (seconds ago, seeders)."""
    return [b"%d %d 0 0 0.5" % (NOW - ago, seeders) for ago, seeders in points]


@pytest.mark.parametrize(
    ("points", "average"),
    [
        ([(10, 4)], 4.0),
        ([(0, 4)], 4.0),
        ([(2 * HOUR, 1), (HOUR, 3)], 2.0),
        ([(4 * HOUR, 0), (HOUR, 4)], 1.0),  # each counts until the next one
        ([(100 * HOUR, 5), (80 * HOUR, 2)], 2.0),  # of three days, what was before them counts no more
        ([(100 * HOUR, 5), (36 * HOUR, 1)], 3.0),
        ([(2 * HOUR, 1), (HOUR, 3), (HOUR, 9)], 5.0),
    ],
)
def test_each_point_counts_until_the_next_one(points: list[tuple[int, int]], average: float) -> None:
    assert past_seeders(entries(*points), NOW) == PastSeeders(len(points), NOW - points[0][0], average)


@pytest.mark.parametrize(
    "entry", [b"", b"x", b"5", b"-5 1 0", b"1e3 1 0", b"9" * 400 + b" 1 0", b"5 " + b"9" * 13, b"%d 1 0" % (NOW + 1)]
)
def test_invalid_points_are_left_out(entry: bytes) -> None:
    good = entries((HOUR, 2))
    assert past_seeders([entry], NOW) is None
    assert past_seeders([*good, entry], NOW) == past_seeders(good, NOW)


def test_points_out_of_order_count_nothing_negative() -> None:
    found = past_seeders(entries((HOUR, 1), (3 * HOUR, 9), (2 * HOUR, 1)), NOW)
    assert found is not None and found.average >= 0


def test_no_history_says_nothing() -> None:
    assert past_seeders([], NOW) is None
