"""Page numbers of lists."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

SIZES = (25, 50, 100)
"""Rows of a page. A form with more checkboxes has too many fields."""
DEFAULT_SIZE = 50
_AROUND = 2
"""Page numbers on each side of the current one."""


def read_size(request: web.Request) -> int:
    """The chosen number of rows; DEFAULT_SIZE if invalid."""
    text = request.query.get("size", "")
    return int(text) if text in map(str, SIZES) else DEFAULT_SIZE


def numbered(
    page: int, size: int, shown: int, total: int | None, href: Callable[[int], str]
) -> dict[str, Any]:
    """The variables of the macro ``paging`` for a list whose number of entries is known. ``page`` begins with 1;
    ``shown``: rows of this page."""
    first, count = (page - 1) * size, total or 0
    last_page = max(1, -(-count // size))
    around = range(max(1, page - _AROUND), min(last_page, page + _AROUND) + 1)
    numbers = sorted({1, *around, last_page}) if last_page > 1 else []
    return {
        "first": first + 1,
        "last": first + shown if shown else 0,
        "total": count,
        "previous_url": href(page - 1) if page > 1 else "",
        "next_url": href(page + 1) if first + size < count else "",
        "numbers": [(number, href(number), number == page) for number in numbers],
    }
