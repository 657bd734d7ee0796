"""Figures as the store has them. A site may write there too, and what it wrote may be no figure at all."""

MOST = 2**63 - 1
"""The largest that Redis counts to."""


def whole(value: bytes | None) -> int:
    """A whole number of 0 or more, in text; 0 for anything else, and for numbers that no counter of the store can hold."""
    # Python refuses to read numbers of thousands of digits.
    if value is None or not value.isdigit() or len(value) > 19:
        return 0
    return min(int(value), MOST)


def ranked(pairs: list[object]) -> list[tuple[str, int]]:
    """Members and their scores out of an answer WITHSCORES: nested or flat, as the client has it."""
    flat = [part for pair in pairs for part in (pair if isinstance(pair, tuple | list) else (pair,))]
    return [
        (member.decode("utf-8", "replace"), score(value))
        for member, value in zip(flat[::2], flat[1::2], strict=True)
    ]


def score(value: bytes | float) -> int:
    """A score as a figure: whole, 0 or more; an endless one is the most."""
    return int(min(max(float(value), 0.0), 2.0**53))
