"""UTC months, by which figures are kept."""

from datetime import UTC, datetime

ALL_TIME = "all"
"""The period beside the months."""
MONTHS_KEPT = 13
"""How long a month's figures are kept after it ended."""


def month_of(now: float) -> str:
    """The UTC month of ``now`` (epoch s), as ``YYYY-MM``."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m")


def month_start(now: float, later: int = 0) -> datetime:
    """When the month of ``now``, or the one so many later, begins (UTC)."""
    this = datetime.fromtimestamp(now, UTC)
    years, month = divmod(this.month - 1 + later, 12)
    return datetime(this.year + years, month + 1, 1, tzinfo=UTC)
