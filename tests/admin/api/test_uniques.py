import pytest

from tests.admin.api.asking import Program, all_pages
from tests.admin.conftest import Admin
from tests.store.harness import info_hash
from tracker.store.metrics import PlaceNames
from tracker.store.months import month_of
from tracker.store.uniques import Sighting


async def test_boards_and_figures(full: Program, admin: Admin) -> None:
    batch = [
        Sighting(info_hash(1), f"192.0.2.{number}", PlaceNames("GB" if number < 3 else "FR"))
        for number in range(5)
    ]
    await admin.stores.torrents.add(info_hash(1))
    await admin.stores.uniques.sight(batch, admin.clock.now)
    month = month_of(admin.clock.now)
    for query in ({}, {"period": month}):
        rows = await all_pages(full, "/uniques/countries", limit=1, **query)
        assert rows == [{"name": "GB", "users": 3}, {"name": "FR", "users": 2}]
    assert (await full.get("/uniques/torrents"))["items"] == [{"name": info_hash(1).hex(), "users": 5}]
    for period in ("all", month):
        assert (await full.get("/uniques/metrics/countries.GB.users", period=period))["users"] == 3
    assert (await full.get("/uniques/metrics/countries.GB.users", period="1999-12"))["users"] == 0
    for written in (info_hash(1).hex(), info_hash(1).hex().upper()):
        found = await full.get(f"/uniques/metrics/torrents.{written}.users")
        assert (found["metric"], found["users"]) == (f"torrents.{info_hash(1).hex()}.users", 5)


async def test_a_place_with_slashes_and_escapes_is_asked_for_by_its_encoded_name(
    full: Program, admin: Admin
) -> None:
    place = PlaceNames("DE", "DE/BY/St%2E_Wolfgang")
    await admin.stores.torrents.add(info_hash(1))
    await admin.stores.uniques.sight([Sighting(info_hash(1), "192.0.2.1", place)], admin.clock.now)
    found = await full.get("/uniques/metrics/cities.DE%2FBY%2FSt%252E_Wolfgang.users")
    assert (found["metric"], found["users"]) == ("cities.DE/BY/St%2E_Wolfgang.users", 1)


@pytest.mark.parametrize(
    "metric", ["user:passkey", "info_hash:x", "countries.GB", "countries.a:b.users", "stats"]
)
async def test_only_metrics_can_be_read(full: Program, metric: str) -> None:
    """A metric becomes the name of a key."""
    assert await full.wrong_fields("GET", f"/uniques/metrics/{metric}") == ["path.metric"]


async def test_there_are_four_boards(full: Program) -> None:
    assert await full.wrong_fields("GET", "/uniques/users") == ["path.scope"]
