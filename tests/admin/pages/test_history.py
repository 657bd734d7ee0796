"""The pages of the past: ranges, zooming, data of charts, and tables."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from tests.admin.conftest import Admin, Serve
from tests.admin.pages.page import Page, get
from tests.store.harness import START
from tracker.operations.history import CHARTS, RANGES, oldest
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import UserSettings

NOT_USERS = [name for name in CHARTS if name != "users"]


async def fetched(browser: aiohttp.ClientSession, path: str) -> dict[str, Any]:
    async with browser.get(path) as response:
        assert response.status == 200, path
        found: dict[str, Any] = await response.json()
        return found


def links(page: Page) -> dict[str, tuple[int, int]]:
    """(since, until) of each link that changes the range, by its id."""
    found = {}
    for element in page.all("a"):
        name = element.attributes.get("id") or ""
        if name.startswith("zoom-"):
            query = parse_qs(urlsplit(element.attributes["href"] or "").query)
            found[name.removeprefix("zoom-")] = (int(query["since"][0]), int(query["until"][0]))
    return found


async def test_the_page_has_all_charts_of_the_range(admin: Admin) -> None:
    async with admin.browser("read") as browser:
        for name in RANGES:
            page = await get(browser, f"/history?range={name}")
            sources = [figure.attributes["data-chart"] for figure in page.all("figure")]
            assert sources == [f"/history/{chart}.json?range={name}" for chart in NOT_USERS]
            current = [e.text for e in page.all("a") if e.attributes.get("aria-current") == "true"]
            assert current == [RANGES[name].label, "Total"]


async def test_the_lines_stay_chosen_in_every_link_of_the_range(admin: Admin) -> None:
    async with admin.browser("read") as browser:
        for path in ("/history", "/history/joins"):
            page = await get(browser, f"{path}?range=7d&by=protocol")
            current = [e.text for e in page.all("a") if e.attributes.get("aria-current") == "true"]
            assert current == ["7 days", "By protocol"]
            queries = [
                parse_qs(urlsplit(e.attributes["href"] or "").query)
                for e in page.all("a")
                if (e.attributes.get("id") or "").startswith(("range-", "zoom-"))
            ]
            assert len(queries) >= len(RANGES) and all(query["by"] == ["protocol"] for query in queries)
        page = await get(browser, "/history?range=7d&by=protocol")
        assert {e.attributes["data-zoom"] for e in page.all("figure")} == {"/history?by=protocol"}
        assert "the sweep" in page.text
        names = [line["name"] for line in (await fetched(browser, "/history/joins.json?by=protocol"))["series"]]
        assert names == ["Joins over HTTP", "Joins over UDP", "Joins over WebSocket"]
        page = await get(browser, "/history/latency?by=protocol")
        assert not [e for e in page.all("a") if (e.attributes.get("id") or "").startswith("by-")]


async def test_a_private_tracker_has_a_chart_of_users(serve: Serve, prefix: str) -> None:
    settings = Settings(redis=RedisSettings(prefix=prefix), users=UserSettings(private="required"))
    admin = await serve(settings)
    async with admin.browser() as browser:
        page = await get(browser, "/history")
    assert len(page.all("figure")) == len(CHARTS)


async def test_links_move_and_zoom_the_range(admin: Admin) -> None:
    async with admin.browser() as browser:
        now = links(await get(browser, "/history?range=2h"))
        past = links(await get(browser, f"/history?since={START - 8000}&until={START - 4000}"))
    assert now == {
        "earlier": (START - 10_800, START - 3600),
        "in": (START - 5400, START - 1800),
        "out": (START - 10_800, START),
    }
    assert past == {
        "earlier": (START - 10_000, START - 6000),
        "later": (START - 6000, START - 2000),
        "in": (START - 7000, START - 5000),
        "out": (START - 10_000, START - 2000),
    }


async def test_the_shortest_and_the_longest_range_have_no_link_beyond(admin: Admin) -> None:
    async with admin.browser() as browser:
        short = links(await get(browser, f"/history?since={START - 30}&until={START}"))
        long = links(await get(browser, f"/history?since=0&until={START}"))
    assert set(short) == {"earlier", "out"}
    assert set(long) == {"in"} and long["in"][0] > oldest(START)


@pytest.mark.parametrize(
    "query",
    [
        "since=x&until=9",
        "since=-1&until=5",
        "since=5",
        "range=7",
        "since=²&until=9",
        f"since={'9' * 13}&until=1",
        "by=country",
        "",
    ],
)
async def test_without_a_valid_range_the_page_has_the_hours_or_the_day_that_has_data(admin: Admin, query: str) -> None:
    counters = admin.store.counters
    async with admin.browser() as browser:
        for age, label in ((0, "2 h"), (3600, "2 h"), (8100, "24 h")):
            counters.count("announces", by=1, at=int(admin.clock()) - age)
            await counters.flush()
            page = await get(browser, f"/history?{query}")
            current = [e.text for e in page.all("a") if e.attributes.get("aria-current") == "true"]
            assert current == [label, "Total"]


async def test_charts_are_rates_and_say_that_the_last_slice_has_not_ended(admin: Admin) -> None:
    counters, now = admin.store.counters, int(admin.clock())
    admin.clock.now += 30
    for name, number, at in (("announces", 600, now - 60), ("announces", 15, now), ("announces.udp", 60, now - 60)):
        counters.count(name, by=number, at=at)
    counters.observe("announce_seconds", 0.002, 0.004, at=now - 60)
    await counters.flush()
    async with admin.browser() as browser:
        requests = await fetched(browser, f"/history/requests.json?since={now - 500}&until={now + 30}")
        latency = await fetched(browser, "/history/latency.json?range=2h")
        found = await fetched(browser, "/history/announces.json?range=2h&by=protocol")
    assert requests["x"] == list(range(now - 500, now + 30, 5))  # the shortest slices that are kept
    place = latency["x"].index(now - 60)
    assert latency["incomplete"] is True
    assert [series["values"][place] for series in latency["series"]] == [3, 4]
    values = {series["name"]: series["values"] for series in found["series"]}
    assert values["HTTP"][-2:] == [9, 0.5] and values["UDP"][-2:] == [1, 0]


async def test_the_line_of_udp_is_left_out_where_no_announce_came_over_it(admin: Admin) -> None:
    counters, now = admin.store.counters, int(admin.clock())
    names = []
    async with admin.browser() as browser:
        for counter in ("announces", "announces.udp"):
            counters.count(counter, at=now - 60)
            await counters.flush()
            found = await fetched(browser, "/history/requests.json?range=2h")
            names.append([series["name"] for series in found["series"]])
    assert names[0] == ["Announces", "Scrapes", "Failures"]
    assert names[1] == ["Announces", "Announces over UDP", "Scrapes", "Failures"]


async def test_a_table_has_the_values_of_its_chart(admin: Admin) -> None:
    """Newest first, with units; the last slice is marked."""
    counters, now = admin.store.counters, int(admin.clock())
    admin.clock.now += 30
    counters.count("bytes.up.v4", by=2048 * 60, at=now - 60)
    counters.observe("seeders", 1234, at=now)
    counters.observe("announce_seconds", 0.25, at=now - 60)
    await counters.flush()
    async with admin.browser("read") as browser:
        traffic = await get(browser, "/history/traffic?range=2h&by=family")
        peers = await get(browser, "/history/peers?range=2h")
        latency = await get(browser, "/history/latency?range=2h")
        for path in ("/history/nothing", "/history/nothing.json"):
            async with browser.get(path) as response:
                assert response.status == 404
    rows = [row.text for row in traffic.all("tr")]
    assert rows[0] == "Start (UTC) Upload, IPv4 Upload, IPv6 Download, IPv4 Download, IPv6"
    assert rows[1].startswith("2027-01-15 08:00:00 UTC so far 0 B/s") and len(rows) == 121
    assert rows[2].startswith("2027-01-15 07:59:00 UTC 2.0 KiB/s 0 B/s")
    assert "so far" not in " ".join(rows[2:])
    assert "so far 1,234 –" in peers.all("tr")[1].text
    assert latency.all("tr")[2].text.endswith("250 ms 250 ms")
