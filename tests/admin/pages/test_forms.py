import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.admin.pages.forms import clean, page_number


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("", 1),
        ("0", 1),
        ("3", 3),
        ("-3", 1),
        ("x", 1),
        ("²", 1),
        ("٣", 1),
        ("9" * 7, 1_000_000),
        ("9" * 8, 1),
    ],
)
def test_a_page_is_a_number_of_reasonable_size(text: str, page: int) -> None:
    assert page_number(text) == page


@given(st.text(st.characters()))
def test_what_was_typed_can_be_written(text: str) -> None:
    cleaned = clean(text, 50)
    cleaned.encode()
    assert len(cleaned) <= 50 and cleaned == cleaned.strip()
