"""Results of one part of the scale runs, compared with their goals."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadtest.bench.tables import table


@dataclass(frozen=True, slots=True)
class Finding:
    """A value. A goal is a maximum, or a minimum with ``more``."""

    what: str
    value: float
    unit: str
    goal: float | None = None
    more: bool = False

    @property
    def reached(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value >= self.goal if self.more else self.value <= self.goal

    def row(self) -> tuple[str, str, str, str]:
        reached = {None: "", True: "yes", False: "no"}[self.reached]
        limit = "" if self.goal is None else f"at {'least' if self.more else 'most'} {plain(self.goal)}"
        return self.what, f"{plain(self.value)} {self.unit}".strip(), limit, reached


@dataclass(slots=True)
class Section:
    title: str
    findings: list[Finding] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def find(self, what: str, value: float, unit: str, goal: float | None = None, *, more: bool = False) -> None:
        self.findings.append(Finding(what, value, unit, goal, more))

    def as_markdown(self) -> str:
        rows = [finding.row() for finding in self.findings]
        parts = [f"### {self.title}", *self.remarks]
        return "\n\n".join([*parts, table(("", "result", "goal", "reached"), rows)] if rows else parts)


def plain(value: float) -> str:
    """The value with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def as_markdown(sections: Sequence[Section]) -> str:
    return "\n\n".join(section.as_markdown() for section in sections)
