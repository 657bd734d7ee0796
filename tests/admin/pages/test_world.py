"""The world page: map, colour classes and tables."""

import gzip
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.geoip_databases import make_city
from tests.admin.conftest import Admin, Serve
from tests.admin.pages.page import Page, get, post_form, send
from tests.store.harness import START, Store, info_hash
from tests.workers.test_geoip_update import MARCH, NOW, Host, database, dbip, file, host
from tracker.admin.pages.world import CLASSES, DAY, PAGE, readable, shades_of, shapes_of, world
from tracker.geoip import UNKNOWN
from tracker.settings.background import GeoIPSettings
from tracker.settings.model import RedisSettings, Settings
from tracker.store.stats.metric_names import escape, place_names
from tracker.store.stats.slices import month_of
from tracker.store.stats.unique_users import MAX_BATCH, LeaderboardEntry, UniqueUserEvent
from tracker.workers.geoip_update import update

__all__ = ["database", "file", "host"]
"""Fixtures."""

Place = tuple[str, str, str]
COUNTS: dict[Place, int] = {
    ("United States", "New York", "10001"): 40,
    ("United Kingdom", "London", "SW1A"): 7,
    ("Malta", "Valletta", ""): 2,
    ("Kosovo", "", ""): 1,
}


async def count_users(admin: Admin, counts: dict[Place, int], at: float = START, torrent: int = 1) -> None:
    """Count the given number of distinct users per location."""
    seen = [
        UniqueUserEvent(info_hash(torrent), f"{which}.{number}.{at}", place_names(*place))
        for which, (place, count) in enumerate(counts.items())
        for number in range(count)
    ]
    for first in range(0, len(seen), MAX_BATCH):
        await admin.store.unique_users.count(seen[first : first + MAX_BATCH], at)


def titles(page: Page) -> dict[str, str]:
    """The label and the colour class of each country on the map."""
    shapes = [*page.all("path"), *page.all("circle")]
    classes = [shape.attributes.get("class") or "" for shape in shapes if "class" in shape.attributes]
    shaded = [name for name in classes if name.startswith("shade-")]
    names = [title.text.strip() for title in page.all("title") if ": " in title.text]
    return dict(zip(names, shaded, strict=True))


async def test_without_a_database_the_page_explains_how_to_get_one(browser: aiohttp.ClientSession) -> None:
    page = await get(browser, "/world")
    assert "TRACKER_GEOIP__DATABASE=" in page.text and "docs/geoip.md" in page.text
    assert not page.all("svg", role="img")


async def test_an_unusable_database_is_reported(serve: Serve, prefix: str, tmp_path: Path) -> None:
    settings = Settings(redis=RedisSettings(prefix=prefix), geoip=GeoIPSettings(database=tmp_path / "none.mmdb"))
    admin = await serve(settings)
    async with admin.browser() as browser:
        page = await get(browser, "/world")
    assert "No location data yet" in page.text


async def test_countries_are_on_the_map_and_in_a_table(admin: Admin, browser: aiohttp.ClientSession) -> None:
    await count_users(admin, COUNTS)
    page = await get(browser, "/world")
    shown = titles(page)
    assert len(shown) == len(world().outlines) + 1  # Malta is a dot; the other dots have no users
    assert shown["United States: 40"] == f"shade-{CLASSES}"
    assert shown["France: 0"] == "shade-0"
    assert shown["Malta: 2"] not in ("shade-0", f"shade-{CLASSES}")
    table = next(e.text for e in page.all("table") if "Country" in e.text)
    assert " ".join(table.split()) == (
        "Country Share Users Share United States 40 80.0 % United Kingdom 7 14.0 % Malta 2 4.0 % Kosovo 1 2.0 %"
    )
    assert "50 in 4 countries" in page.text


async def test_users_without_a_known_place_are_a_number_and_no_country(
    admin: Admin, browser: aiohttp.ClientSession
) -> None:
    await count_users(admin, COUNTS | {(UNKNOWN.country_name, "", ""): 3})
    page = await get(browser, "/world")
    assert "50 in 4 countries, and 3 without a known place" in page.text
    assert "Unknown" not in next(e.text for e in page.all("table") if "Country" in e.text)
    assert "Unknown 3" in (await get(browser, "/world/countries")).text


async def test_the_database_is_updated_by_a_button(
    serve: Serve, prefix: str, host: Host, file: Path, database: bytes
) -> None:
    settings = Settings(redis=RedisSettings(prefix=prefix), geoip=GeoIPSettings(database=Path("dbip-city-lite")))
    admin = await serve(settings)
    admin.context.places.use(file)
    admin.context.update_places = lambda: update(dbip(host), file, NOW, host.tls)
    async with admin.browser("operate") as browser:
        page = await get(browser, "/world")
        assert "under CC BY 4.0. An update sends nothing but the request" in page.text
        assert "Update now" in page.text and "Not fetched yet" in page.text
        refused = await send(browser, "/world/update", status=409)
        assert "dbip-city-lite answered with status 404" in refused.text
        host.serve(MARCH, gzip.compress(database), ETag='"march"')
        assert "was updated" in (await post_form(browser, "/world/update")).text
        assert "cities" in (await get(browser, "/world")).text
        assert "the newest already" in (await post_form(browser, "/world/update")).text
    async with admin.browser("read") as reader:
        assert "Update now" not in (await get(reader, "/world")).text
    async with admin.browser() as browser:
        assert "places.update" in (await get(browser, "/audit")).text


async def test_cities_postcodes_and_torrents_are_listed(
    admin: Admin, store: Store, browser: aiohttp.ClientSession
) -> None:
    await admin.store.torrents.add(info_hash(1), {"name": "Debian"})
    await count_users(admin, COUNTS)
    await store.redis.zadd(store.keys.unique_index("torrents", "all"), {info_hash(2).hex(): 3})
    page = await get(browser, "/world")
    assert "New York United States 40" in page.text
    assert "SW1A United Kingdom 7" in page.text
    assert "Debian 50" in page.text and "no longer registered" in page.text
    assert {"/world/cities", "/world/postcodes", "/world/torrents", f"/torrents/{info_hash(1).hex()}"} <= set(
        page.hrefs
    )
    assert f"/torrents/{info_hash(2).hex()}" not in page.hrefs  # the torrent was removed


async def test_a_month_shows_its_own_counts_and_links(admin: Admin, browser: aiohttp.ClientSession) -> None:
    earlier = START - 40 * DAY
    await count_users(admin, {("France", "", ""): 5}, earlier)
    await count_users(admin, {("United Kingdom", "", ""): 2})
    month = month_of(earlier)
    whole = await get(browser, "/world")
    months = {href for href in whole.hrefs if "month=" in href}
    assert months == {f"/world?month={month}", f"/world?month={month_of(START)}"}
    page = await get(browser, f"/world?month={month}")
    assert "5 in 1 country" in page.text
    assert f"/world/countries?month={month}" in page.hrefs
    for empty in ("2001-01", "9999-12"):
        assert "No location data for" in (await get(browser, f"/world?month={empty}")).text


@pytest.mark.parametrize("month", ["x", "2026-13", "0000-01", "2026-1", "%00", "2026-11%0a", "٢٠٢٦-١١"])
async def test_invalid_months_show_all_time(browser: aiohttp.ClientSession, month: str) -> None:
    for path in ("/world", "/world/cities"):
        found = await get(browser, f"{path}?month={quote(month, safe='%')}")
        assert found.text == (await get(browser, path)).text


async def test_a_long_table_is_paged(admin: Admin, browser: aiohttp.ClientSession) -> None:
    towns: dict[Place, int] = {("United Kingdom", f"Town {number}", ""): 1 for number in range(PAGE + 3)}
    await count_users(admin, towns)
    first = await get(browser, f"/world/cities?month={month_of(START)}")
    later = f"/world/cities?month={month_of(START)}&page=2"
    assert later in first.hrefs
    second = await get(browser, later)
    assert not [href for href in second.hrefs if "page=3" in href]
    names = {e.text.split("United")[0].strip() for page in (first, second) for e in page.all("th", scope="row")}
    assert names == {f"Town {number}" for number in range(PAGE + 3)}
    await get(browser, "/world/planets", status=404)


async def test_names_of_locations_are_escaped(admin: Admin, store: Store, browser: aiohttp.ClientSession) -> None:
    hostile = '<script>alert("1")</script>'
    await count_users(admin, {("France", hostile, hostile[:20]): 1, (hostile, "x" * 400, ""): 1})
    await store.redis.zadd(
        store.keys.unique_index("cities", "all"),
        {"": 5, "/": 4, "GB//": 3, "<b>/%FF/%": 2, b"\xff\xfe": 9, "France/%E2%80%AEevil": 1e300},
    )
    await store.redis.zadd(store.keys.unique_index("countries", "all"), {"<b>": 7, "GB/x": 1, "": 2})
    await store.redis.zadd(store.keys.unique_index("torrents", "all"), {"<b>": 7, "aa": 1})
    for path in ("/world", "/world/cities", "/world/countries", "/world/postcodes", "/world/torrents"):
        page = await get(browser, path)
        assert not page.all("b")
    assert hostile in (await get(browser, "/world/cities")).text


async def test_the_chart_of_joins_starts_with_the_first_day_that_has_any(
    admin: Admin, store: Store, browser: aiohttp.ClientSession
) -> None:
    today = START // DAY * DAY
    for name, figures in (("joins", {20: 10, 1: 30}), ("unique.new", {20: 4})):
        for ago, number in figures.items():
            await store.redis.hset(store.keys.counter(DAY, name), today - ago * DAY, number)
    async with browser.get("/world/chart") as response:
        drawn = await response.json()
    assert drawn["x"] == [today - ago * DAY for ago in reversed(range(21))]
    assert [one["values"] for one in drawn["series"]] == [[10, *[0] * 18, 30, 0], [4, *[0] * 20]]


async def test_the_chart_of_joins_has_at_least_14_days(
    admin: Admin, store: Store, browser: aiohttp.ClientSession
) -> None:
    async with browser.get("/world/chart") as response:
        assert (await response.json())["x"] == []
    today = START // DAY * DAY
    await store.redis.hset(store.keys.counter(DAY, "joins"), today, 7)
    async with browser.get("/world/chart") as response:
        drawn = await response.json()
    assert drawn["x"] == [today - ago * DAY for ago in reversed(range(14))]
    assert [one["values"] for one in drawn["series"]] == [[*[0] * 13, 7], [0] * 14]


async def test_the_page_warns_about_counting_errors_by_short_memory(
    store: Store, browser: aiohttp.ClientSession
) -> None:
    for path in ("/world", "/world/cities"):
        assert "deleted to make room" not in (await get(browser, path)).text
    await store.redis.hset(store.keys.unique_forgotten(), "all", 7000)
    await store.redis.set(store.keys.stat("unique_skipped"), 3)
    for path in ("/world", "/world/cities"):
        text = (await get(browser, path)).text
        assert "3 joins were not counted because the store was more than 80 % full" in text
        assert "may be too high by up to 7" in text and "deleted to make room" in text
    assert "deleted to make room" not in (await get(browser, "/world?month=2001-01")).text


async def test_role_read_can_see_the_map(admin: Admin, reader: aiohttp.ClientSession) -> None:
    await count_users(admin, COUNTS)
    assert not (await get(reader, "/world")).changes


@given(st.lists(st.integers(min_value=0, max_value=2**53)))
def test_colour_classes_cover_every_count_once(figures: list[int]) -> None:
    shades = shades_of(figures)
    most = max(figures, default=0)
    assert len(shades) <= CLASSES
    if most:
        assert (shades[0][0], shades[-1][1]) == (1, most)
        assert all(low[1] + 1 == high[0] for low, high in pairwise(shades))
        assert all(fewest <= most for fewest, most in shades)
    else:
        assert not shades


def test_the_highest_count_has_the_strongest_colour() -> None:
    for most in (1, 2, 9, 1000):
        countries = [LeaderboardEntry("United_Kingdom", most)]
        (british,) = [one for one in shapes_of(countries, shades_of([most])) if one.users]
        assert british.shade == CLASSES


@given(st.text())
@pytest.mark.slow
def test_location_names_are_unescaped_if_printable(text: str) -> None:
    shown = readable(escape(text))
    assert shown.isprintable()
    if text.isprintable():
        assert escape(shown) == escape(text)


async def test_a_place_leads_to_its_torrents(admin: Admin, browser: aiohttp.ClientSession) -> None:
    await admin.store.torrents.add(info_hash(1), {"name": "first"})
    await admin.store.torrents.add(info_hash(2))
    await count_users(admin, {("Malta", "Valletta", ""): 2}, torrent=1)
    await count_users(admin, {("Malta", "Valletta", ""): 3, ("Kosovo", "", ""): 9}, torrent=2)
    for board, name in (("countries", "Malta"), ("cities", "Malta/Valletta")):
        path = f"/world/{board}/place?name={quote(name, safe='')}"
        assert path in (await get(browser, "/world")).links
        page = await get(browser, path)
        rows = [row.text for row in page.all("tr")][1:]
        assert rows == [f"{info_hash(2).hex()} 3", f"first {info_hash(1).hex()} 2"]
    page = await get(browser, "/world/cities/place?name=Malta/Valletta")
    assert "Torrents in Valletta, Malta" in page.text
    for path in ("countries/place?name=France", "countries/place", "torrents/place?name=Malta", "x/place?name=y"):
        await get(browser, f"/world/{path}", status=404)


async def test_pages_name_the_source_of_places(admin: Admin, browser: aiohttp.ClientSession, tmp_path: Path) -> None:
    """Its licence asks for it wherever places are shown."""
    for database_type, text in (("DBIP-City-Lite", "by DB-IP"), ("GeoLite2-City", "GeoLite data"), ("Own-City", "")):
        admin.context.places.use(make_city(tmp_path / f"{database_type}.mmdb", database_type=database_type))
        for path in ("/world", "/world/countries", "/users"):
            page = await get(browser, path)
            shown = [each.text for each in page.all("p") if each.attributes.get("class") == "credit"]
            assert len(shown) == bool(text) and all(text in each for each in shown)
    admin.context.places.use(None)
