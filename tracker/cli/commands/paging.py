"""Reads lists from the store page by page."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

PAGE = 100
"""Rows read from the store at a time."""
EVERYTHING = 2**53
"""No limit."""

T = TypeVar("T")


async def in_order(
    limit: int, read: Callable[[int, int], Awaitable[Sequence[T]]]
) -> AsyncIterator[Sequence[T]]:
    """Pages of an ordered list, up to ``limit`` items. ``read`` takes an offset and a count.

    The first page is yielded even if it is empty. The next empty page is the end; a short page is not, because items
    may have been removed meanwhile.
    """
    for offset in range(0, limit, PAGE):
        page = await read(offset, min(PAGE, limit - offset))
        if offset and not page:
            return
        yield page


async def in_no_order(
    read: Callable[[int, int], Awaitable[tuple[int, Sequence[T]]]],
) -> AsyncIterator[Sequence[T]]:
    """Pages of a set. ``read`` takes a cursor and an approximate count; it returns the next cursor (0: the end) and a
    page."""
    cursor = -1
    while cursor:
        cursor, page = await read(max(cursor, 0), PAGE)
        yield page
