"""How parts say that something happened, without knowing who counts it (store/stats/counters.py does)."""

from typing import Protocol


class Count(Protocol):
    """One event, or ``by`` of them, that counts under each of ``names``."""

    def __call__(self, *names: str, by: int = 1) -> None: ...
