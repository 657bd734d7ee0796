"""Texts that operators, sites, peers and developers read use plain words."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy/prometheus").glob("*.yml")])
WORDS = {
    "away": "unavailable, of a store or shard",
    "home": "main, of a prefix or store",
    "needy": "short of seeders",
    "needier": "shorter of seeders",
    "mended": "repaired",
    "somebody": "a noun",
    "nobody": "a noun",
    "anybody": "a noun, or anyone",
    "everybody": "a noun, or everyone",
    "whoever": "a noun",
    "whomever": "a noun",
    "lack": "have no, or a sentence that says what is missing",
    "lacks": "has no, or a sentence that says what is missing",
    "lacking": "without",
    "take no part": "do not take part",
    "takes no part": "does not take part",
    "taking no part": "without taking part",
}
"""By what replaces them."""
ALLOWED = re.compile(
    r"for lack of|at home or in a container|--home-dir|/home\b|[A-Z_]+_HOME\b|throw-away|ProtectHome"
    r"|`[^`\n]+`\s+became\b",  # a name that changed
    re.IGNORECASE,
)
FOUND = re.compile(rf"(?<![^\W_])({'|'.join(WORDS)})(?![^\W_])", re.IGNORECASE)
"""As words, and as parts of names."""


def found(text: str) -> list[str]:
    return [line.strip() for line in ALLOWED.sub("", text).splitlines() if FOUND.search(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_plain_words(page: Path) -> None:
    assert not found(page.read_text(encoding="utf-8")), "tests/test_wording.py has a better word"


def test_texts_of_the_program_use_plain_words() -> None:
    """Settings, help, errors, logs, the API, the dashboard, comments and names."""
    hits = {
        f"{path.relative_to(ROOT)}: {line}"
        for path in sorted((ROOT / "tracker").rglob("*"))
        if path.suffix in (".py", ".lua", ".html", ".js", ".css")
        for line in found(path.read_text(encoding="utf-8"))
    }
    assert not hits, "tests/test_wording.py has a better word"
