"""Lists out of the store, a page at a time."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

PAGE = 100
"""Rows read from the store at a time."""
EVERYTHING = 2**53
"""A limit that is none."""

T = TypeVar("T")


async def in_order(
    limit: int, read: Callable[[int, int], Awaitable[Sequence[T]]]
) -> AsyncIterator[Sequence[T]]:
    """Pages of a list in an order, up to ``limit`` items; ``read`` takes an offset and a count.

    The first page comes also when it is empty; the first empty one after it is the end, for a page from which
    something has just gone is no sign of it.
    """
    for offset in range(0, limit, PAGE):
        page = await read(offset, min(PAGE, limit - offset))
        if offset and not page:
            return
        yield page


async def in_no_order(
    read: Callable[[int, int], Awaitable[tuple[int, Sequence[T]]]],
) -> AsyncIterator[Sequence[T]]:
    """Pages of a set; ``read`` takes a cursor and about how many, and gives the next cursor, 0 at the end."""
    cursor = -1
    while cursor:
        cursor, page = await read(max(cursor, 0), PAGE)
        yield page
