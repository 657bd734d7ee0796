"""The world: the map, its classes, and the tables beside it."""

from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admin.conftest import Admin, Serve
from tests.admin.pages.page import Page, get
from tests.store.harness import START, Store, info_hash
from tracker.admin.pages.world import CLASSES, DAY, PAGE, readable, shades_of, shapes_of
from tracker.admin.world import world
from tracker.settings import GeoIPSettings, RedisSettings, Settings
from tracker.store.metrics import escape, place_names
from tracker.store.months import month_of
from tracker.store.uniques import MAX_BATCH, Sighting, Standing

Place = tuple[str, str, str, str]
COUNTS: dict[Place, int] = {
    ("US", "NY", "New York", "10001"): 40,
    ("GB", "ENG", "London", "SW1A"): 7,
    ("MT", "", "Valletta", ""): 2,
    ("XK", "", "", ""): 1,
}


async def sight(admin: Admin, counts: dict[Place, int], at: float = START, torrent: int = 1) -> None:
    """So many users in each place, all different."""
    seen = [
        Sighting(info_hash(torrent), f"{which}.{number}.{at}", place_names(*place))
        for which, (place, count) in enumerate(counts.items())
        for number in range(count)
    ]
    for first in range(0, len(seen), MAX_BATCH):
        await admin.stores.uniques.sight(seen[first : first + MAX_BATCH], at)


def titles(page: Page) -> dict[str, str]:
    """What the map says of each country, and its class."""
    shapes = [*page.all("path"), *page.all("circle")]
    classes = [shape.attributes.get("class") or "" for shape in shapes if "class" in shape.attributes]
    shaded = [name for name in classes if name.startswith("shade-")]
    names = [title.text.strip() for title in page.all("title") if ": " in title.text]
    return dict(zip(names, shaded, strict=True))


async def test_without_a_database_the_page_says_how_to_get_one(browser: aiohttp.ClientSession) -> None:
    page = await get(browser, "/world")
    assert "TRACKER_GEOIP__DATABASE=" in page.text and "docs/geoip.md" in page.text
    assert not page.all("svg", role="img")


async def test_a_database_that_cannot_be_used_is_told_of(serve: Serve, prefix: str, tmp_path: Path) -> None:
    settings = Settings(
        redis=RedisSettings(prefix=prefix), geoip=GeoIPSettings(database=tmp_path / "none.mmdb")
    )
    admin = await serve(settings)
    async with admin.browser() as browser:
        page = await get(browser, "/world")
    assert "Nobody was counted by place yet" in page.text


async def test_countries_are_on_the_map_and_in_a_table(admin: Admin, browser: aiohttp.ClientSession) -> None:
    await sight(admin, COUNTS)
    page = await get(browser, "/world")
    shown = titles(page)
    assert len(shown) == len(world().outlines) + 1  # Malta is a dot, and the other dots have nobody
    assert shown["United States: 40"] == f"shade-{CLASSES}"
    assert shown["France: 0"] == "shade-0"
    assert shown["Malta: 2"] not in ("shade-0", f"shade-{CLASSES}")
    table = next(e.text for e in page.all("table") if "Country" in e.text)
    assert " ".join(table.split()) == (
        "Country Share Users Share United States 40 80.0 % United Kingdom 7 14.0 % Malta 2 4.0 % Kosovo 1 2.0 %"
    )
    assert "50 in 4 countries" in page.text


async def test_cities_postcodes_and_torrents_are_listed(
    admin: Admin, store: Store, browser: aiohttp.ClientSession
) -> None:
    await admin.stores.torrents.add(info_hash(1), {"name": "Debian"})
    await sight(admin, COUNTS)
    await store.redis.zadd(store.keys.unique_index("torrents", "all"), {info_hash(2).hex(): 3})
    page = await get(browser, "/world")
    assert "New York NY, United States 40" in page.text
    assert "SW1A United Kingdom 7" in page.text
    assert "Debian 50" in page.text and "no longer registered" in page.text
    assert {"/world/cities", "/world/postcodes", "/world/torrents", f"/torrents/{info_hash(1).hex()}"} <= set(
        page.hrefs
    )
    assert f"/torrents/{info_hash(2).hex()}" not in page.hrefs  # it would lead nowhere


async def test_a_month_shows_its_own_figures_and_links(admin: Admin, browser: aiohttp.ClientSession) -> None:
    earlier = START - 40 * DAY
    await sight(admin, {("FR", "", "", ""): 5}, earlier)
    await sight(admin, {("GB", "", "", ""): 2})
    month = month_of(earlier)
    whole = await get(browser, "/world")
    months = {href for href in whole.hrefs if "month=" in href}
    assert months == {f"/world?month={month}", f"/world?month={month_of(START)}"}
    page = await get(browser, f"/world?month={month}")
    assert "5 in 1 country" in page.text
    assert f"/world/countries?month={month}" in page.hrefs
    assert "Nobody was counted by place in" in (await get(browser, "/world?month=2001-01")).text


@pytest.mark.parametrize(
    "month", ["x", "2026-13", "0000-01", "2026-1", "%00", "2026-11%0a", "9999-12", "٢٠٢٦-١١"]
)
async def test_no_month_is_too_odd(browser: aiohttp.ClientSession, month: str) -> None:
    for path in ("/world", "/world/cities"):
        await get(browser, f"{path}?month={quote(month, safe='%')}")


async def test_a_long_table_comes_in_pages(admin: Admin, browser: aiohttp.ClientSession) -> None:
    towns: dict[Place, int] = {("GB", "ENG", f"Town {number}", ""): 1 for number in range(PAGE + 3)}
    await sight(admin, towns)
    first = await get(browser, f"/world/cities?month={month_of(START)}")
    later = f"/world/cities?month={month_of(START)}&page=2"
    assert later in first.hrefs
    second = await get(browser, later)
    assert not [href for href in second.hrefs if "page=3" in href]
    names = {e.text.split("ENG")[0].strip() for page in (first, second) for e in page.all("th", scope="row")}
    assert names == {f"Town {number}" for number in range(PAGE + 3)}
    await get(browser, "/world/planets", status=404)


async def test_names_of_places_are_text_whatever_is_in_them(
    admin: Admin, store: Store, browser: aiohttp.ClientSession
) -> None:
    hostile = '<script>alert("1")</script>'
    await sight(admin, {("GB", hostile, hostile, hostile[:20]): 1, ("GB", "", "x" * 400, ""): 1})
    await store.redis.zadd(
        store.keys.unique_index("cities", "all"),
        {"": 5, "/": 4, "GB//": 3, "<b>/%FF/%": 2, b"\xff\xfe": 9, "GB/%E2%80%AEevil": 1e300},
    )
    await store.redis.zadd(store.keys.unique_index("countries", "all"), {"<b>": 7, "GB/x": 1, "": 2})
    await store.redis.zadd(store.keys.unique_index("torrents", "all"), {"<b>": 7, "aa": 1})
    for path in ("/world", "/world/cities", "/world/countries", "/world/postcodes", "/world/torrents"):
        page = await get(browser, path)
        assert not page.all("b")
    assert hostile in (await get(browser, "/world/cities")).text


async def test_joins_are_drawn_from_the_first_day_that_had_any(
    admin: Admin, store: Store, browser: aiohttp.ClientSession
) -> None:
    today = START // DAY * DAY
    for name, figures in (("joins", {20: 10, 1: 30}), ("unique.new", {20: 4})):
        for ago, number in figures.items():
            await store.redis.hset(store.keys.counter(DAY, name), today - ago * DAY, number)
    async with browser.get("/world/chart") as answer:
        drawn = await answer.json()
    assert drawn["x"] == [today - ago * DAY for ago in reversed(range(21))]
    assert [one["values"] for one in drawn["series"]] == [[10, *[0] * 18, 30, 0], [4, *[0] * 20]]


async def test_the_first_day_is_drawn_at_the_end_of_a_fortnight(
    admin: Admin, store: Store, browser: aiohttp.ClientSession
) -> None:
    async with browser.get("/world/chart") as answer:
        assert (await answer.json())["x"] == []
    today = START // DAY * DAY
    await store.redis.hset(store.keys.counter(DAY, "joins"), today, 7)
    async with browser.get("/world/chart") as answer:
        drawn = await answer.json()
    assert drawn["x"] == [today - ago * DAY for ago in reversed(range(14))]
    assert [one["values"] for one in drawn["series"]] == [[*[0] * 13, 7], [0] * 14]


async def test_readers_may_look(admin: Admin, reader: aiohttp.ClientSession) -> None:
    await sight(admin, COUNTS)
    assert not (await get(reader, "/world")).changes


@given(st.lists(st.integers(min_value=0, max_value=2**53)))
def test_classes_cover_every_figure_once(figures: list[int]) -> None:
    shades = shades_of(figures)
    most = max(figures, default=0)
    assert len(shades) <= CLASSES
    if most:
        assert (shades[0].least, shades[-1].most) == (1, most)
        assert all(low.most + 1 == high.least for low, high in pairwise(shades))
        assert all(shade.least <= shade.most for shade in shades)
    else:
        assert not shades


def test_whoever_has_most_is_shown_strongest() -> None:
    for most in (1, 2, 9, 1000):
        countries = [Standing("GB", most)]
        (british,) = [one for one in shapes_of(countries, shades_of([most])) if one.users]
        assert british.shade == CLASSES


@given(st.text())
@pytest.mark.slow
def test_a_name_is_read_back_or_stays_as_it_is_stored(text: str) -> None:
    shown = readable(escape(text))
    assert shown.isprintable()
    if text.isprintable():
        assert escape(shown) == escape(text)
