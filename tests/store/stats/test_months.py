"""Months, by which statistics are kept."""

from datetime import UTC, datetime

from tracker.store.stats.slices import month_of, month_start


def test_months_are_counted_in_utc() -> None:
    newyear = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
    assert (month_of(newyear - 1), month_of(newyear)) == ("2026-12", "2027-01")
    assert month_start(newyear - 1, 1) == datetime(2027, 1, 1, tzinfo=UTC)
    assert month_start(newyear - 1, 14) == datetime(2028, 2, 1, tzinfo=UTC)
