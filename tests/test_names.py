"""The rule for names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.names import clean_text, fold_name, printable

KEPT = [
    "می\u200cخواهم",  # Persian needs the non-joiner
    "क्\u200dष",  # Hindi the joiner
    "日本\u3000語 a\u00a0b",
    "👩\u200d👩\u200d👧\ufe0f 🏴\U000e0067\U000e0062\U000e007f",
    "soft\u00adhyphen",
    "\u200eעברית\u200f",
    "größer <b> [red] \\n",
]
DROPPED = "\0\t\n\r\x1b\x7f\x85\x9f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize("name", KEPT)
def test_what_letters_need_is_kept(name: str) -> None:
    assert clean_text(name) == printable(name) == name


@pytest.mark.parametrize("character", DROPPED)
def test_what_moves_the_cursor_or_reorders_text_is_dropped(character: str) -> None:
    assert clean_text(f"a{character}b") == "ab"
    assert fold_name(f"A{character}b") == "ab"
    assert printable(f"a{character}b").startswith("a\\") and character not in printable(character)


@given(st.text(st.characters()))
def test_a_clean_text_stays_and_any_text_can_be_printed(text: str) -> None:
    assert clean_text(clean_text(text)) == clean_text(text)
    printable(text).encode()
