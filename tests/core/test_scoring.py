"""The arithmetic of scores (rows B1 to B3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.scoring import DROP_BELOW, EMPTY, START, STRONG, WEAK, Source, factor, next_score

MAX = 50
CAP = 4.0
counts = st.integers(0, 10**9)
sources = st.builds(Source, peers=counts, new=counts, max_peers=st.integers(1, 10**6))


@pytest.mark.parametrize(
    ("peers", "new", "expected"),
    [
        (0, 0, 0.5),
        (0, 100, 0.5),
        (1, 1, 0.8),
        (MAX - 1, 100, 0.8),
        (MAX, 0, 0.8),
        (MAX, 2, 0.8),
        (MAX, 3, 1.2),
        (10**6, 10**6, 1.2),
    ],
)
def test_one_factor_for_each_outcome(peers: int, new: int, expected: float) -> None:
    """B2: 5 % of 50 are 2.5."""
    assert factor([Source(peers, new, MAX)]) == expected


@pytest.mark.parametrize(
    ("max_peers", "new", "expected"),
    [(20, 1, STRONG), (20, 0, WEAK), (21, 1, WEAK), (60, 3, STRONG), (1, 1, STRONG)],
)
def test_exactly_5_percent_are_enough(max_peers: int, new: int, expected: float) -> None:
    """B2: reckoned in whole numbers, for 0.05 is none that a computer has."""
    assert factor([Source(max_peers, new, max_peers)]) == expected


@given(st.lists(sources, min_size=1, max_size=5))
def test_of_several_sources_the_most_favourable_decides(found: list[Source]) -> None:
    """B2: one factor, however many were asked."""
    assert factor(found) == max(factor([source]) for source in found)


def test_each_source_has_a_max_peers_of_its_own() -> None:
    """B2."""
    assert factor([Source(0, 0, 50), Source(30, 2, 30)]) == STRONG
    assert factor([Source(0, 0, 50), Source(30, 2, 31)]) == WEAK
    assert factor([Source(0, 0, 50), Source(0, 0, 200)]) == EMPTY


def test_nobody_was_asked() -> None:
    assert factor([]) == EMPTY


@pytest.mark.parametrize(("by", "turn"), [(EMPTY, 8), (WEAK, 24)])
def test_the_ranking_is_left_after_so_many_bad_turns(by: float, turn: int) -> None:
    """B3."""
    score: float | None = START
    turns = 0
    while score is not None:
        score = next_score(score, by, CAP)
        turns += 1
    assert turns == turn


@given(st.floats(DROP_BELOW, 1000), st.sampled_from([EMPTY, WEAK, STRONG]), st.floats(1, 1000))
def test_a_score_is_multiplied_once_and_bounded(score: float, by: float, cap: float) -> None:
    """B2."""
    after = next_score(score, by, cap)
    if after is None:
        assert score * by < DROP_BELOW
    else:
        assert after == min(score * by, cap) and DROP_BELOW <= after <= cap


def test_the_limit_itself_stays() -> None:
    """B3."""
    assert next_score(2 * DROP_BELOW, EMPTY, CAP) == DROP_BELOW
    assert next_score(DROP_BELOW, EMPTY, CAP) is None


@pytest.mark.parametrize("score", [-1.0, float("-inf")])
def test_a_score_that_somebody_made_negative_goes(score: float) -> None:
    assert next_score(score, STRONG, CAP) is None


def test_a_score_above_the_cap_comes_down_to_it() -> None:
    """Somebody wrote it, or lowered the cap."""
    assert next_score(float("inf"), STRONG, CAP) == CAP
    assert next_score(100.0, WEAK, CAP) == CAP
