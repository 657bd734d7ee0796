"""The key table: every key in the store, as docs/keys.md lists them. A test compares a store with it."""

from pathlib import Path

from tracker.errors import StartupError
from tracker.store.schema.keys import KeySpec

__all__ = ["KEYS", "WORK", "KeySpec"]


def _page() -> str:
    """docs/keys.md: inside the package if installed from a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parents[3]
    for path in (package / "keys.md", package.parent / "docs" / "keys.md"):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise StartupError("keys.md is missing from this installation: reinstall it")


def _rows(page: str) -> tuple[KeySpec, ...]:
    lines = [line for line in page.splitlines() if line.startswith("| `t:")]
    cells = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]
    return tuple(KeySpec(pattern.strip("`"), *others) for pattern, *others in cells)


KEYS = _rows(_page())
WORK = tuple(row for row in KEYS if row.pattern.startswith(("t:w:", "t:work_")) or row.pattern == "t:w")
"""The rows of work distribution."""
