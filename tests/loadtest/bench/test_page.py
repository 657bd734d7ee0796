"""Only the generated parts of a page are replaced."""

import pytest

from loadtest.bench import page
from loadtest.bench.loader import BenchError

TEXT = (
    "# Title\n\n<!-- one: begin -->\n\nold\n\n<!-- one: end -->\n\nby hand\n\n<!-- two: begin -->\n<!-- two: end -->\n"
)


def test_only_what_is_between_the_markers_is_replaced() -> None:
    replaced = page.replace(TEXT, "one", "\n| a |\n")
    assert replaced == TEXT.replace("old", "| a |")
    assert page.replace(replaced, "one", "| a |") == replaced
    assert "two: begin -->\n\nnew\n\n<!-- two: end" in page.replace(TEXT, "two", "new")


@pytest.mark.parametrize("text", ["", TEXT.replace("one: end", "one"), TEXT.replace("one: begin", "one"), TEXT + TEXT])
def test_a_page_without_its_markers_is_refused(text: str) -> None:
    with pytest.raises(BenchError, match="one: begin"):
        page.replace(text, "one", "new")


@pytest.mark.parametrize("block", ["bench", "scale", "profile"])
def test_the_page_has_markers_for_each_block(block: str) -> None:
    assert "new figures" in page.replace(page.PAGE.read_text(encoding="utf-8"), block, "new figures")
