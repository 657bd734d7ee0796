"""The errors that cross module borders."""

from collections.abc import Iterable
from typing import Literal

RetryIn = int | Literal["never"]
"""Minutes until the peer may ask again, or ``"never"`` (BEP 31)."""


class ClientError(Exception):
    """A refusal whose text the peer may read.

    ``text`` is shown to the person in front of the client: short, and says what to do. It is a fixed
    string (no input inside), because ``label`` defaults to it and labels name counters. Where an
    operator wrote the text (a deny reason), ``label`` is given apart.
    """

    def __init__(self, text: str, *, retry_in: RetryIn = 30, label: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.retry_in: RetryIn = retry_in
        self.label = label or text


class Dropped(ClientError):
    """A refusal that is not told: the connection is closed instead, but for one that a trusted proxy shares out."""


class Busy(ClientError):
    """A refusal because too many ask. Its connection is closed: it would ask again there, and each refusal costs time."""


class StoreAway(Exception):
    """The store did not answer, answered too late, or refuses work for now. Nobody is to blame but us."""


class StoreBehind(StoreAway):
    """It answers, but more is waiting for it than it can do soon."""


class StartupError(Exception):
    """The tracker cannot start; the text is the one line the operator reads."""


class SettingsError(ValueError):
    """The settings cannot be used; one readable line for each problem, none with a value that may be secret."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class TrackerReplyError(Exception):
    """Another tracker's answer is none: malformed, too large, of the wrong kind. The text is ours, and fixed."""


class TrackerRefusal(Exception):
    """Another tracker refused. ``text`` is what it wrote, bounded but otherwise a stranger's words."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
