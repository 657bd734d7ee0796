"""What the doctor finds: a line for people."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: how it stands with ``subject``, and what to do about it (empty when nothing)."""

    level: Level
    subject: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.level:<8} {self.subject:<14} {self.text}"
        return f"{line}: {self.remedy}" if self.remedy else line
