"""Folds names for searches that ignore case."""

import re
import unicodedata

NAME_CHARACTERS = 255
"""The search covers this many characters of a name."""
_SEPARATORS = re.compile(r"[\s\x00-\x1f\x7f]+")


def fold(text: str) -> str:
    """Folds a name, or a part of one, for comparison: case-folded, NFKC, one space between words."""
    letters = unicodedata.normalize("NFKC", text[:NAME_CHARACTERS]).casefold()
    return _SEPARATORS.sub(" ", letters)[:NAME_CHARACTERS]


def fold_name(text: str) -> str:
    """Returns the name in the index; empty for a torrent or user without a name."""
    return fold(text).strip()
