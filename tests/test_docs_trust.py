"""Every promise of docs/trust.md names a test or experiment, and everything it names exists."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.syntax import tree_of

pytestmark = pytest.mark.once
ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
SHOWN_BY = "shown by"
NAMED = re.compile(r"`((?:tests|loadtest|fuzz|deploy|\.ci)/[\w./-]+)((?:::\w+)*)`")
"""A file, or a test in it: ``tests/test_x.py::test_y`` or ``tests/test_x.py::TestX::test_y``."""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def rows() -> Iterator[tuple[str, str]]:
    """Yields (line, proof) of every row in tables with a column "shown by"."""
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
    """Returns the tests and test classes of a file, as ``::test_y`` and ``::TestX::test_y``."""
    found: set[str] = set()

    def walk(body: list[ast.stmt], above: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(f"{above}::{node.name}")
                if isinstance(node, ast.ClassDef):
                    walk(node.body, f"{above}::{node.name}")

    walk(tree_of(file).body, "")
    return found


def test_every_proof_exists() -> None:
    named = sorted(set(NAMED.findall(TEXT)))
    assert not [path for path, _ in named if not (ROOT / path).exists()]
    assert not [path + test for path, test in named if test and test not in functions(ROOT / path)]


def test_every_promise_names_a_proof() -> None:
    assert not [line for line, shown in rows() if not NAMED.search(shown)]


def numbers(chapter: str, sections: dict[int, str]) -> Iterator[str]:
    """``sections``: section -> its requirements of level 1, as numbers and ranges."""
    for section, listed in sections.items():
        for part in listed.split():
            first, _, last = part.partition("-")
            yield from (f"{chapter}.{section}.{number}" for number in range(int(first), int(last or first) + 1))


LEVEL_1 = [
    *numbers("2", {1: "1-12", 2: "1-3", 3: "1", 5: "1-6", 7: "1-4", 8: "1"}),
    *numbers("3", {1: "1", 2: "1-3", 3: "1-2", 4: "1-5", 7: "1"}),
    *numbers("4", {1: "1-3 5", 2: "1-2", 3: "1-2"}),
    *numbers("5", {1: "1-5", 2: "1-8", 3: "1-10", 5: "1-4"}),
    *numbers("6", {2: "1"}),
    *numbers("7", {1: "1-2", 4: "1"}),
    *numbers("8", {2: "1-3", 3: "1-4"}),
    *numbers("9", {1: "1-3"}),
    *numbers("10", {3: "1-3"}),
    *numbers("11", {1: "1-5"}),
    *numbers("12", {1: "1", 3: "1-5", 4: "1-2", 5: "1-2", 6: "1"}),
    *numbers("13", {1: "1 3", 2: "1-3", 3: "1"}),
    *numbers("14", {2: "1-3", 3: "2-3", 4: "1-7", 5: "1-3"}),
]
"""Every requirement of level 1 in version 4.0.3 of the standard."""


def test_every_requirement_of_level_1_is_answered_once() -> None:
    """By a row of the table, or by a line with the reason why it is not met or does not apply."""
    answered = TEXT.partition("## Admin side")[2]
    named = [
        found
        for line in answered.splitlines()
        if line.startswith(("| ", "- ", "  are"))
        for found in re.findall(r"(?<![\d.])\d+\.\d+\.\d+\b", line.split("|")[1] if line[0] == "|" else line)
    ]
    assert sorted(named) == sorted(LEVEL_1)


def test_every_make_target_on_the_page_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z-]+)", TEXT))
    assert {"test", "chaos", "soak", "fuzz", "audit"} <= named
    assert not [name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)]
