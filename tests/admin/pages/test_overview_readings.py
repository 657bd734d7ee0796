"""How the overview computes rates, percentiles and failure tables."""

import pytest

from tests.admin.conftest import Admin
from tracker.admin.pages.overview_readings import VIEWS, quantile, read_failures, read_window


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
def test_quantiles_are_interpolated_within_a_bucket(
    counts: list[int], share: float, value: float | None
) -> None:
    assert quantile(counts, (1.0, 2.0), share) == value


async def test_the_slice_in_progress_is_shown_once_it_is_long_enough(admin: Admin) -> None:
    admin.clock.now = 1_800_000_000 + 5
    assert (await read_window(admin.context, VIEWS["2h"])).at[-1] == 1_800_000_000 - 60
    admin.store.counters.count("announces", by=40, at=1_800_000_000 + 1)
    await admin.store.counters.flush()
    admin.clock.now = 1_800_000_000 + 20
    window = await read_window(admin.context, VIEWS["2h"])
    assert (window.at[-1], window.rates["announces"][-1]) == (1_800_000_000, 2)
    assert len(window.at) == 120


async def test_failures_are_sorted_by_recent_count(admin: Admin) -> None:
    command, keys = admin.store.connection.command, admin.store.keys
    await command("HSET", keys.failures(), "old", 100, "both", 9)
    for reason, number in (("new", 3), ("both", 2)):
        admin.store.counters.count(f"failures.{reason}", by=number, at=admin.clock() - 600)
    await admin.store.counters.flush()
    assert await read_failures(admin.context) == [("new", 3, 3), ("both", 2, 11), ("old", 0, 100)]
