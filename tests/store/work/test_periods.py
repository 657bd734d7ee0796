"""The months and weeks of leaderboards."""

from datetime import UTC, datetime

from tests.store.harness import START
from tracker.store.work.periods import WEEKS_KEPT, current, ended, possible, shown, week_of, weeks_ago


def test_weeks_are_those_of_iso_8601_in_utc() -> None:
    monday = datetime(2027, 1, 4, tzinfo=UTC).timestamp()
    assert (week_of(monday - 1), week_of(monday)) == ("2026-W53", "2027-W01")
    assert current(monday - 1) == ("2027-01", "2026-W53")


def test_no_week_is_left_out_or_repeated() -> None:
    weeks = weeks_ago(START, range(60))
    assert len(set(weeks)) == 60 and weeks == sorted(weeks, reverse=True)


def test_periods_that_have_ended_are_not_shown_and_can_be_deleted() -> None:
    assert len(shown(START)) == WEEKS_KEPT + 13
    assert not set(shown(START)) & set(ended(START))
    assert {*shown(START), *ended(START)} < set(possible(START))
