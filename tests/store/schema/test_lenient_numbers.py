"""Values in the store may be no numbers, since other programs may have written them."""

import pytest

from tracker.store.schema.lenient_numbers import MAX_INTEGER, ranked, score, whole


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"%d" % 2**53, 2**53),
        (b"%d" % MAX_INTEGER, MAX_INTEGER),
        (b"%d" % (MAX_INTEGER + 1), MAX_INTEGER),
        (None, 0),
        *dict.fromkeys((b"", b"-1", b"+1", b" 1", b"1.5", b"1e3", b"x", b"\xff", b"\xb2", b"1" * 5000), 0).items(),
    ],
)
def test_counts_are_whole_and_parsing_never_fails(text: bytes | None, figure: int) -> None:
    assert whole(text) == figure


def test_members_and_scores_alternate_in_a_reply() -> None:
    assert ranked([b"a", b"3.9", b"\xff", b"inf", b"c", b"-inf"]) == [("a", 3), ("\ufffd", 2**53), ("c", 0)]
    assert ranked([]) == []


def test_a_score_is_as_exact_as_the_store() -> None:
    assert score(b"9007199254740991") == 2**53 - 1
