"""Writes the reasons of refusals (tracker/refusals.py) into docs/troubleshooting.md, between its comments."""

import re
from pathlib import Path

from tracker.refusals import CLOSED, SUBJECTS, Reason

PAGE = Path(__file__).parents[1] / "docs/troubleshooting.md"
_TABLE = re.compile(r"(<!-- reasons: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
_HEAD = "| the client shows | counted as | retry in | it means | what to do |\n|---|---|---|---|---|\n"


def with_tables(page: str) -> str:
    """The page with the tables of today. A comment names the subject of each."""
    return _TABLE.sub(lambda match: f"{match[1]}\n{_table(match[2])}\n{match[3]}", page)


def _table(name: str) -> str:
    if name == "closed":
        rows = "".join(f"| {label} | {meaning} |\n" for label, meaning in CLOSED.items())
        return f"| counted as | it means |\n|---|---|\n{rows}"
    reasons = next(reasons for subject, reasons in SUBJECTS.items() if subject == name)
    return _HEAD + "".join(map(_row, reasons))


def _row(reason: Reason) -> str:
    text = reason.text.replace("<", "&lt;").replace(">", "&gt;")
    counted = "its text" if reason.counted_as == reason.text else reason.counted_as
    return f"| {text} | {counted} | {reason.retry_in} | {reason.meaning} | {reason.remedy or '–'} |\n"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
