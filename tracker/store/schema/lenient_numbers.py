"""Reads stored numbers and JSON. A site may write these keys too, so a value may be invalid."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_INTEGER = 2**63 - 1
"""The largest integer that Redis can count to."""


def whole(value: bytes | None) -> int:
    """Parses a whole number of 0 or more, capped at MAX_INTEGER. 0 for anything else, and beyond 19 digits."""
    # int() raises ValueError for thousands of digits.
    if value is None or not value.isdigit() or len(value) > 19:
        return 0
    return min(int(value), MAX_INTEGER)


def signed(value: bytes | None) -> int:
    """The same of a number that may be negative."""
    return -whole(value[1:]) if value and value[:1] == b"-" else whole(value)


def ranked(flat: Sequence[bytes]) -> list[tuple[str, int]]:
    """Parses a reply of ZSCAN or WITHSCORES, which alternates members and scores, into (member, score) pairs."""
    return [
        (member.decode("utf-8", "replace"), score(value)) for member, value in zip(flat[::2], flat[1::2], strict=True)
    ]


def score(value: bytes | float) -> int:
    """Converts a score to a whole number from 0 to 2^53; infinity becomes 2^53."""
    return int(min(max(float(value), 0.0), 2.0**53))


def hash_of(reply: Sequence[bytes] | Exception) -> dict[bytes, bytes]:
    """The fields of a reply of HGETALL. Empty for a key of the wrong type."""
    return {} if isinstance(reply, Exception) else dict(zip(reply[::2], reply[1::2], strict=True))


def text_of(row: Mapping[bytes, bytes]) -> dict[str, str]:
    """The fields of a hash as text; invalid UTF-8 is replaced."""
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in row.items()}


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """None for anything that is no JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
