"""Generated parts of a page: each is between two markers, and a run replaces only its own."""

from pathlib import Path

from loadtest.bench.loader import BenchError
from loadtest.bench.processes import ROOT

PAGE = ROOT / "docs" / "performance.md"


def replace(text: str, block: str, content: str) -> str:
    """``text`` with the part between the markers of ``block`` replaced. Raises BenchError if they are missing."""
    first, last = f"<!-- {block}: begin -->", f"<!-- {block}: end -->"
    before, found, rest = text.partition(first)
    _, closed, after = rest.partition(last)
    if not (found and closed) or first in after or last in after:
        raise BenchError(f"the page needs the markers {first} and {last}, each once")
    return f"{before}{first}\n\n{content.strip()}\n\n{last}{after}"


def write(block: str, content: str, page: Path = PAGE) -> None:
    page.write_text(replace(page.read_text(encoding="utf-8"), block, content), encoding="utf-8")
