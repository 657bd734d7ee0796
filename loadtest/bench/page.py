"""The generated parts of a written page: each between two markers, so that a run replaces its own and nothing else."""

from pathlib import Path

from bench.loader import BenchError
from bench.processes import ROOT

PAGE = ROOT / "docs" / "performance.md"


def replace(text: str, block: str, content: str) -> str:
    """``text`` with what is between the markers of ``block`` replaced; raises BenchError where they are not."""
    first, last = f"<!-- {block}: begin -->", f"<!-- {block}: end -->"
    before, found, rest = text.partition(first)
    _, closed, after = rest.partition(last)
    if not (found and closed) or first in after or last in after:
        raise BenchError(f"the page needs the markers {first} and {last}, each once")
    return f"{before}{first}\n\n{content.strip()}\n\n{last}{after}"


def write(block: str, content: str, page: Path = PAGE) -> None:
    page.write_text(replace(page.read_text(encoding="utf-8"), block, content), encoding="utf-8")
