"""The public page in a real browser: everything on it follows each finished item, without a reload."""

import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.async_api import Page, async_playwright, expect

from tests.frontends.work.conftest import Site
from tests.frontends.work.test_public import finish

pytestmark = pytest.mark.slow
NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """Errors in its console fail the test."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no browser")
    complaints: list[str] = []
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=path, args=OPTIONS)
        page = await chromium.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
        await chromium.close()
    assert [each for each in complaints if "favicon" not in each and "404" not in each] == []


async def shows(page: Page, **texts: str) -> None:
    for id, text in texts.items():
        await expect(page.locator(f"#{id}")).to_have_text(text)


async def rows(page: Page, selector: str, expected: list[list[str]]) -> None:
    await expect(page.locator(f"{selector} td")).to_have_text([cell for row in expected for cell in row])


async def test_everything_on_the_page_follows_each_finished_item(site: Site, page: Page) -> None:
    await finish(site, "one", data=2**20)
    await site.store.pass_time(3600)
    await page.goto(f"{site.url}/proj/")
    await shows(page, todo="0", done="1", bytes="1.0 MiB")
    await finish(site, "two", "volunteer_2", data=2**20, more=5)
    await finish(site, "three", "volunteer_2", data=2**21)
    await site.add("four")
    await shows(page, todo="1", out="0", done="3", bytes="4.0 MiB", rate="2")
    board = [["volunteer_2", "2", "3.0 MiB"], ["volunteer_1", "1", "1.0 MiB"]]
    for span in await page.locator("[data-span]").all():
        await expect(span.locator("td")).to_have_text([cell for row in board for cell in row])
    await rows(page, "#domains", [["data", "4.0 MiB"], ["more", "5 B"]])
    last = [["volunteer_2", "three", "2.0 MiB"], ["volunteer_2", "two", "1.0 MiB"]]
    await rows(page, "#last", [*last, ["volunteer_1", "one", "1.0 MiB"]])
    await expect(page.locator("#chart-items polyline")).to_have_count(3)
    points = await page.locator("#chart-bytes polyline").first.get_attribute("points")
    assert points is not None and points.split()[-1] == "600,4"
    await expect(page.locator("pre")).to_have_text(f"{site.url}/proj")


async def test_an_open_page_turns_to_a_new_week_and_month(site: Site, page: Page) -> None:
    """Their leaderboards begin empty; that of all time goes on."""
    await finish(site, "one", data=2**20)
    await page.goto(f"{site.url}/proj/")
    titles: Any = page.locator("h2:visible", has_text="Leaderboard")
    spans = ("2027-W02", "2027-01", "all time")
    await expect(titles).to_have_text([f"Leaderboard: {span}" for span in spans])
    await site.store.pass_time(17 * 86_400)
    await expect(titles).to_have_text(["Leaderboard: all time"])
    await finish(site, "two", "volunteer_2", data=2**20)
    await expect(titles).to_have_text([f"Leaderboard: {span}" for span in ("2027-W05", "2027-02", "all time")])
    new, old = ["volunteer_2", "1", "1.0 MiB"], ["volunteer_1", "1", "1.0 MiB"]
    for span in ("2027-W05", "2027-02"):
        await expect(page.locator(f"[data-span='{span}'] td")).to_have_text(new)
    await expect(page.locator("[data-span=''] tr")).to_have_count(2)
    await rows(page, "[data-span='']", [old, new])


async def test_show_all_shows_all_claimants(site: Site, page: Page) -> None:
    for number in range(25):
        await finish(site, f"item{number}", f"volunteer_{number}")
    await page.goto(f"{site.url}/proj/")
    table: Any = page.locator("[data-span='']")
    await expect(table.locator("tr")).to_have_count(20)
    await page.get_by_role("button", name="Show all").click()
    await expect(table.locator("tr")).to_have_count(25)
