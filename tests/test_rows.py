"""Every row of docs/promises.md is named in the docstring of a test or of a test file."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.syntax import nodes_of, tree_of

pytestmark = pytest.mark.once
TESTS = Path(__file__).parent
SECTIONS = {"T": 34, "B": 15, "C": 10, "Q": 15, "W": 30, "U": 5, "D": 22, "S": 10}
ROWS = [f"{section}{number}" for section, count in SECTIONS.items() for number in range(1, count + 1)]
AWAITED: dict[str, str] = {}
"""Rows of features that do not exist yet, each with the reason. It should become empty."""
ROW = re.compile(rf"\b[{''.join(SECTIONS)}]\d+\b")


def docstrings() -> Iterator[tuple[str, str]]:
    """Yields (place, docstring) of every test, test class and test file, of files that name a row."""
    naming = (path for path in sorted(TESTS.rglob("test_*.py")) if ROW.search(path.read_text(encoding="utf-8")))
    for path in naming:
        tree = tree_of(path)
        yield str(path.relative_to(TESTS)), ast.get_docstring(tree) or ""
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        for node in (node for node in nodes_of(path) if isinstance(node, kinds)):
            if node.name.lower().startswith("test"):
                yield f"{path.relative_to(TESTS)}:{node.name}", ast.get_docstring(node) or ""


@cache
def named_rows() -> dict[str, tuple[str, ...]]:
    """Returns row -> the places that name it."""
    found: dict[str, tuple[str, ...]] = {}
    for where, text in docstrings():
        for row in ROW.findall(text):
            found[row] = (*found.get(row, ()), where)
    return found


def test_each_row_has_a_test() -> None:
    assert not [row for row in ROWS if (row in named_rows()) == (row in AWAITED)]


def test_no_test_names_a_row_that_does_not_exist() -> None:
    unknown = {row: where for row, where in named_rows().items() if row not in ROWS}
    assert not unknown
