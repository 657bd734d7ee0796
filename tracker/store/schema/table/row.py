"""What is said of each key."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeySpec:
    """One row of the key table."""

    pattern: str
    type: str
    holds: str
    lifetime: str
    writer: str
