"""``tracker doctor``: its checks; here is the result of one."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tracker.store.schema.record import Field

Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of ``subject``, and what to do about it (empty: nothing)."""

    level: Level
    subject: str
    text: str
    remedy: Annotated[str, Field("Empty if there is nothing to do.")] = ""

    def __str__(self) -> str:
        line = f"{self.level:<8} {self.subject:<14} {self.text}"
        return f"{line}: {self.remedy}" if self.remedy else line


def megabytes(count: int) -> str:
    return f"{count / 1024 / 1024:.1f} MB"


def ago(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
