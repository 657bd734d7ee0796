"""The periods of leaderboards besides all time: UTC months (``YYYY-MM``) and ISO weeks in UTC (``YYYY-Www``)."""

from collections.abc import Iterable
from datetime import UTC, datetime

from tracker.store.stats.slices import MONTHS_KEPT, month_of, month_start

WEEKS_KEPT = 13
"""How many weeks the leaderboards of a week are kept after its end."""
_WEEK_SECONDS = 604_800
_MAX_WEEKS = 53
"""Leaderboards of so many weeks are deleted, in case no tracker ran for long."""


def week_of(now: float) -> str:
    """Returns the ISO week of ``now`` (epoch s) as ``YYYY-Www``, in UTC. It starts on Monday."""
    return datetime.fromtimestamp(now, UTC).strftime("%G-W%V")


def current(now: float) -> tuple[str, str]:
    """The month and the week in which a claim that is finished at ``now`` (epoch s) counts."""
    return month_of(now), week_of(now)


def months_ago(now: float, numbers: Iterable[int]) -> list[str]:
    """Months, counted back from that of ``now`` (epoch s)."""
    return [month_start(now, -number).strftime("%Y-%m") for number in numbers]


def weeks_ago(now: float, numbers: Iterable[int]) -> list[str]:
    """Weeks, counted back from that of ``now`` (epoch s)."""
    return [week_of(now - number * _WEEK_SECONDS) for number in numbers]


def shown(now: float) -> list[str]:
    """The periods that may have leaderboards: weeks, then months, the current one first."""
    return [*weeks_ago(now, range(WEEKS_KEPT)), *months_ago(now, range(MONTHS_KEPT))]


def ended(now: float) -> list[str]:
    """The periods whose leaderboards are no longer kept."""
    months = months_ago(now, range(MONTHS_KEPT + 1, 2 * MONTHS_KEPT))
    return [*months, *weeks_ago(now, range(WEEKS_KEPT + 1, _MAX_WEEKS))]


def possible(now: float) -> list[str]:
    """All periods that may be in the store. The next ones too: clocks differ."""
    return [*months_ago(now, range(-1, 2 * MONTHS_KEPT)), *weeks_ago(now, range(-1, _MAX_WEEKS))]
