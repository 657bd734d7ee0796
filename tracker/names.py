"""Names of torrents, users and clients: the rule for names and reasons, and their folding for searches; sizes as text.

Names come from strangers. Characters that move the cursor, or reorder the text around them, are dropped. What letters
and emoji need is kept: joiners, soft hyphens, spaces of any width, and marks of direction.
"""

import re
import unicodedata

NAME_CHARACTERS = 255
"""The search covers this many characters of a name."""
_UNSAFE = (
    r"\x00-\x1f\x7f-\x9f"  # control characters
    r"\u2028\u2029"  # line and paragraph separator
    r"\u202a-\u202e\u2066-\u2069"  # embeddings, overrides and isolates of bidirectional text
)
_DROPPED = re.compile(f"[{_UNSAFE}]")
_ESCAPED = re.compile(rf"[{_UNSAFE}\ud800-\udfff]")  # also lone surrogates, which UTF-8 cannot encode
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SEPARATORS = re.compile(r"[\s\x00-\x1f\x7f]+")


def clean_text(text: str) -> str:
    """``text`` without the characters that no name and no reason has."""
    return _DROPPED.sub("", text)


def printable(text: str) -> str:
    """Any text from strangers for a terminal: with these characters escaped, as in ``\\x1b``."""
    return _ESCAPED.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def fold(text: str) -> str:
    """Folds a name, or a part of one, for comparison: case-folded, NFKC, one space between words."""
    letters = unicodedata.normalize("NFKC", text[:NAME_CHARACTERS]).casefold()
    return _SEPARATORS.sub(" ", letters)[:NAME_CHARACTERS]


def fold_name(text: str) -> str:
    """Returns the name in the index; empty for a torrent or user without a name."""
    return fold(clean_text(text)).strip()


def size_text(number: float) -> str:
    """Bytes in binary units: ``1023 B``, ``1.5 KiB``."""
    for unit in _UNITS:
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} EiB"
