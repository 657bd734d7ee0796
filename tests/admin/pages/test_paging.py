"""Page numbers of lists."""

import pytest

from tracker.admin.pages.forms import numbered


def href(number: int) -> str:
    return f"/{number}"


@pytest.mark.parametrize(
    ("page", "total", "numbers"),
    [
        (1, 0, []),
        (1, 50, []),
        (1, 51, [1, 2]),
        (5, 1000, [1, 3, 4, 5, 6, 7, 20]),
        (20, 1000, [1, 18, 19, 20]),
        (99, 100, [1, 2]),
    ],
)
def test_the_first_the_last_and_the_pages_around_are_linked(page: int, total: int, numbers: list[int]) -> None:
    shown = max(0, min(50, total - 50 * (page - 1)))
    found = numbered(page, 50, shown, total, href)
    assert found["numbers"] == [(number, f"/{number}", number == page) for number in numbers]
    assert found["previous_url"] == (f"/{page - 1}" if page > 1 else "")
    assert found["next_url"] == (f"/{page + 1}" if 50 * page < total else "")
    assert (found["first"], found["last"]) == (50 * page - 49, 50 * (page - 1) + shown if shown else 0)
