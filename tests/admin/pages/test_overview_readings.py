"""How the overview computes rates, percentiles and failure tables."""

import pytest

from tests.admin.conftest import Admin
from tracker.admin.pages.overview import quantile, read_failures


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ([0, 0, 0], 0.95, None),
        ([100, 0, 0], 0.95, 0.95),
        ([50, 50, 0], 0.75, 1.5),
        ([50, 0, 50], 0.5, 1.0),
        ([0, 0, 10], 0.5, 2.0),
        ([1, 99, 0], 0.95, pytest.approx(1 + 94 / 99)),
    ],
)
def test_quantiles_are_interpolated_within_a_bucket(counts: list[int], share: float, value: float | None) -> None:
    assert quantile(counts, (1.0, 2.0), share) == value


async def test_failures_are_sorted_by_recent_count(admin: Admin) -> None:
    command, keys = admin.store.connection.command, admin.store.keys
    await command("HSET", keys.failures(), "old", 100, "both", 9)
    for reason, number in (("new", 3), ("both", 2)):
        admin.store.counters.count(f"failures.{reason}", by=number, at=admin.clock() - 600)
    await admin.store.counters.flush()
    assert await read_failures(admin.context) == [("new", 3, 3), ("both", 2, 11), ("old", 0, 100)]
