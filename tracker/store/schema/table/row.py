"""A row of the key table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeySpec:
    """The description of one kind of key: Redis type, content, lifetime and writers."""

    pattern: str
    type: str
    holds: str
    lifetime: str
    writer: str
