"""The arithmetic of scores (rows B1 to B3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.scoring import DROP_BELOW, EMPTY, START, STRONG, WEAK, Source, factor, next_score

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
def test_the_factor_depends_on_swarm_size_and_new_peers(peers: int, new: int, expected: float) -> None:
    """B2: 5 % of 50 are 2.5."""
    assert factor([Source(peers, new, MAX)]) == expected


@pytest.mark.parametrize(
    ("max_peers", "new", "expected"), [(20, 1, STRONG), (20, 0, WEAK), (21, 1, WEAK), (60, 3, STRONG), (1, 1, STRONG)]
)
def test_5_percent_new_peers_make_a_swarm_strong(max_peers: int, new: int, expected: float) -> None:
    """B2: computed in integers, because 0.05 has no exact binary value."""
    assert factor([Source(max_peers, new, max_peers)]) == expected


@given(st.lists(sources, min_size=1, max_size=5))
def test_the_highest_factor_of_several_sources_applies(found: list[Source]) -> None:
    """B2: one factor for any number of sources."""
    assert factor(found) == max(factor([source]) for source in found)


def test_each_source_has_its_own_max_peers() -> None:
    """B2."""
    assert factor([Source(0, 0, 50), Source(30, 2, 30)]) == STRONG
    assert factor([Source(0, 0, 50), Source(30, 2, 31)]) == WEAK
    assert factor([Source(0, 0, 50), Source(0, 0, 200)]) == EMPTY


def test_the_factor_without_sources_is_that_of_an_empty_swarm() -> None:
    assert factor([]) == EMPTY


@pytest.mark.parametrize(("by", "turn"), [(EMPTY, 8), (WEAK, 24)])
def test_a_torrent_leaves_the_ranking_after_8_empty_or_24_weak_scorings(by: float, turn: int) -> None:
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


def test_a_score_at_the_limit_stays_in_the_ranking() -> None:
    """B3."""
    assert next_score(2 * DROP_BELOW, EMPTY, CAP) == DROP_BELOW
    assert next_score(DROP_BELOW, EMPTY, CAP) is None


@pytest.mark.parametrize("score", [-1.0, float("-inf")])
def test_a_negative_score_leaves_the_ranking(score: float) -> None:
    assert next_score(score, STRONG, CAP) is None


def test_a_score_above_the_cap_is_reduced_to_it() -> None:
    """For example after the cap was lowered."""
    assert next_score(float("inf"), STRONG, CAP) == CAP
    assert next_score(100.0, WEAK, CAP) == CAP
