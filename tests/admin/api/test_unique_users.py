import pytest

from tests.admin.api.api_client import ApiClient, all_pages
from tests.admin.conftest import Admin
from tests.store.harness import info_hash
from tracker.store.stats.metric_names import PlaceNames
from tracker.store.stats.slices import month_of
from tracker.store.stats.unique_users import UniqueUserEvent


async def test_leaderboards_and_metrics_are_shown(full: ApiClient, admin: Admin) -> None:
    batch = [
        UniqueUserEvent(info_hash(1), f"192.0.2.{number}", PlaceNames("United_Kingdom" if number < 3 else "France"))
        for number in range(5)
    ]
    await admin.store.torrents.add(info_hash(1))
    await admin.store.unique_users.count(batch, admin.clock.now)
    month = month_of(admin.clock.now)
    for query in ({}, {"period": month}):
        rows = await all_pages(full, "/uniques/countries", limit=1, **query)
        assert rows == [{"name": "United_Kingdom", "users": 3}, {"name": "France", "users": 2}]
    assert (await full.get("/uniques/torrents"))["items"] == [{"name": info_hash(1).hex(), "users": 5}]
    for period in ("all", month):
        assert (await full.get("/uniques/metrics/countries.United_Kingdom.users", period=period))["users"] == 3
    assert (await full.get("/uniques/metrics/countries.United_Kingdom.users", period="1999-12"))["users"] == 0
    for written in (info_hash(1).hex(), info_hash(1).hex().upper()):
        found = await full.get(f"/uniques/metrics/torrents.{written}.users")
        assert (found["metric"], found["users"]) == (f"torrents.{info_hash(1).hex()}.users", 5)


async def test_an_escaped_location_is_found_by_its_encoded_name(full: ApiClient, admin: Admin) -> None:
    place = PlaceNames("Germany", "St%2E_Wolfgang")
    await admin.store.torrents.add(info_hash(1))
    await admin.store.unique_users.count([UniqueUserEvent(info_hash(1), "192.0.2.1", place)], admin.clock.now)
    place_metric = "countries.Germany.cities.St%2E_Wolfgang.users"
    found = await full.get(f"/uniques/metrics/{place_metric.replace('%', '%25')}")
    assert (found["metric"], found["users"]) == (place_metric, 1)
    here = info_hash(1).hex()
    found = await full.get(f"/uniques/metrics/torrents.{here.upper()}.countries.Germany.users")
    assert (found["metric"], found["users"]) == (f"torrents.{here}.countries.Germany.users", 1)


@pytest.mark.parametrize("metric", ["user:passkey", "info_hash:x", "countries.GB", "countries.a:b.users", "stats"])
async def test_unknown_metrics_are_refused(full: ApiClient, metric: str) -> None:
    """A metric becomes part of a key name."""
    assert await full.wrong_fields("GET", f"/uniques/metrics/{metric}") == ["path.metric"]


async def test_there_are_four_leaderboards(full: ApiClient) -> None:
    assert await full.wrong_fields("GET", "/uniques/users") == ["path.scope"]


async def test_counts_come_with_their_max_error(full: ApiClient, admin: Admin) -> None:
    """Markers of that period and of all time were deleted to make room for peers."""
    month = month_of(admin.clock.now)
    key = admin.store.keys.unique_forgotten()
    await admin.store.connection.command("HSET", key, "all", 7, month, 5)
    for period, exceed in (("all", 7), (month, 5), ("1999-12", 0)):
        assert (await full.get("/uniques/countries", period=period))["may_exceed"] == exceed
        found = await full.get("/uniques/metrics/countries.France.users", period=period)
        assert found["may_exceed"] == exceed
