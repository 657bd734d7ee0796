"""Shards that are unavailable: which ones an answer leaves out."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MAIN = -1
"""The number of the main prefix of several shards."""

_left_out: ContextVar[set[int] | None] = ContextVar("left_out", default=None)


@contextmanager
def noting_unavailable_shards() -> Iterator[set[int]]:
    """The numbers of the shards that calls in this block, also in its tasks, have left out."""
    numbers = set[int]()
    token = _left_out.set(numbers)
    try:
        yield numbers
    finally:
        _left_out.reset(token)


def note_unavailable_shards(numbers: Iterable[int]) -> None:
    missing = _left_out.get()
    if missing is not None:
        missing.update(numbers)


def named(numbers: Iterable[int]) -> str:
    """As in ``shard 3`` or ``shards 1, 3 and main store``."""
    known = set(numbers)
    texts = [str(number) for number in sorted(known - {MAIN})]
    shards = [f"shard{'s' * (len(texts) > 1)} {', '.join(texts)}"] if texts else []
    return " and ".join([*shards, *(["main store"] * (MAIN in known))])
