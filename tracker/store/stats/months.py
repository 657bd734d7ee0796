"""UTC months, the periods of monthly statistics."""

from datetime import UTC, datetime

ALL_TIME = "all"
"""The name of the all-time period."""
MONTHS_KEPT = 13
"""How many months the statistics of a month are kept after its end."""


def month_of(now: float) -> str:
    """Returns the UTC month of ``now`` (epoch s) as ``YYYY-MM``."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m")


def month_start(now: float, later: int = 0) -> datetime:
    """Returns the UTC start of the month ``later`` months after that of ``now`` (epoch s)."""
    current = datetime.fromtimestamp(now, UTC)
    years, month = divmod(current.month - 1 + later, 12)
    return datetime(current.year + years, month + 1, 1, tzinfo=UTC)
