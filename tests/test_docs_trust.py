"""docs/trust.md claims nothing that no test or drill shows: whatever it names exists."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
SHOWN_BY = "shown by"
NAMED = re.compile(r"`((?:tests|drills|fuzz|bench|deploy|\.ci)/[\w./-]+)((?:::\w+)*)`")
"""A file, or a test in it: ``tests/test_x.py::test_y``, also of a class: ``tests/test_x.py::TestX::test_y``."""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def rows() -> Iterator[tuple[str, str]]:
    """(line, what shows it) of every row of a table that has such a column."""
    header: list[str] = []
    for line in TEXT.splitlines():
        if not line.startswith("|"):
            header = []
        elif not header:
            header = cells(line)
        elif SHOWN_BY in header and not set(line) <= set("|-: "):
            yield line, cells(line)[header.index(SHOWN_BY)]


@cache
def functions(file: Path) -> set[str]:
    """Tests and classes of tests, as ``::test_y`` and ``::TestX::test_y``."""
    found: set[str] = set()

    def walk(body: list[ast.stmt], above: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(f"{above}::{node.name}")
                if isinstance(node, ast.ClassDef):
                    walk(node.body, f"{above}::{node.name}")

    walk(ast.parse(file.read_text(encoding="utf-8")).body, "")
    return found


@pytest.mark.parametrize(("path", "test"), sorted(set(NAMED.findall(TEXT))), ids="".join)
def test_what_the_page_names_exists(path: str, test: str) -> None:
    assert (ROOT / path).exists()
    assert not test or test in functions(ROOT / path)


def test_every_promise_names_what_shows_it() -> None:
    assert not [line for line, shown in rows() if not NAMED.search(shown)]
