import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.admin.pages.forms import clean, cursor_number, page_number


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
def test_a_page_number_is_bounded(text: str, page: int) -> None:
    assert page_number(text) == page


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        ("", 0),
        ("-1", 0),
        ("x", 0),
        ("٣", 0),
        ("17", 17),
        (str(2**64 - 1), 2**64 - 1),
        (str(2**64), 0),
        ("9" * 20, 0),
        ("9" * 5000, 0),
    ],
)
def test_a_cursor_is_a_valid_number_of_the_store(text: str, cursor: int) -> None:
    assert cursor_number(text) == cursor


@given(st.text(st.characters()))
def test_texts_can_be_encoded(text: str) -> None:
    cleaned = clean(text, 50)
    cleaned.encode()
    assert len(cleaned) <= 50 and cleaned == cleaned.strip()
