"""What is in the store may be no figure: somebody else may have written it."""

import pytest

from tracker.store.figures import MOST, ranked, score, whole


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"%d" % 2**53, 2**53),
        (b"%d" % MOST, MOST),
        (b"%d" % (MOST + 1), MOST),
        (None, 0),
        *dict.fromkeys(
            (b"", b"-1", b"+1", b" 1", b"1.5", b"1e3", b"x", b"\xff", b"\xb2", b"1" * 5000), 0
        ).items(),
    ],
)
def test_figures_are_whole_and_never_fail(text: bytes | None, figure: int) -> None:
    assert whole(text) == figure


def test_members_come_with_their_scores_however_the_client_has_them() -> None:
    pairs = [("a", 3), ("\ufffd", 2**53), ("c", 0)]
    assert ranked([[b"a", 3.9], (b"\xff", float("inf")), [b"c", -1.0]]) == pairs
    assert ranked([b"a", b"3.9", b"\xff", b"inf", b"c", b"-inf"]) == pairs
    assert ranked([]) == []


def test_a_score_is_exact_as_far_as_the_store_is() -> None:
    assert score(b"9007199254740991") == 2**53 - 1
