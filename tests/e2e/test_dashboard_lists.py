"""Lists in a real browser: filters, sorting, and changes of the selected rows."""

import re

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.sync_api import expect

from tests.e2e.browsers import OpenDashboard, browser, open_dashboard
from tests.e2e.conftest import StartTracker
from tests.e2e.sample_trackers import LONG, sample_of

__all__ = ["browser", "open_dashboard"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_selected_torrents_are_disabled_and_found_by_a_filter(
    start_tracker: StartTracker, open_dashboard: OpenDashboard
) -> None:
    """A filter keeps the order. The Enter key in the reason changes nothing."""
    sample = sample_of(start_tracker(), ())
    for number in range(1, 4):
        torrent = {"info_hash": f"{number:040x}", "name": f"film {number}", "size": number * 1000}
        sample.call_api("POST", "/torrents", torrent)
    window = open_dashboard(sample.tracker)
    window.sign_in(sample.token)
    window.go("/torrents")
    page = window.page
    page.get_by_role("link", name="Size").click()
    expect(page).to_have_url(re.compile(r"sort=size"))
    page.get_by_label("Select all on this page").check()
    expect(page.get_by_text("3 selected:")).to_be_visible()
    page.get_by_label("Select film 1").uncheck()
    expect(page.get_by_text("2 selected:")).to_be_visible()
    page.locator("summary", has_text="Disable").click()
    reason = page.locator("[name=disable_reason]")
    reason.fill("taken down")
    reason.press("Enter")
    page.locator("button[value=disable]").click()
    expect(page.get_by_text("Changed.")).to_be_visible()
    expect(page.locator("td.pick")).to_have_count(3)
    expect(page.locator(".badge", has_text="disabled")).to_have_count(2)
    page.get_by_label("State").select_option("Disabled")
    expect(page.locator("td.pick")).to_have_count(2)
    expect(page).to_have_url(re.compile(r"/torrents\?state=disabled&sort=size$"))
    expect(page.locator("tbody th a").first).to_have_text("film 3")
    page.get_by_label("Search torrents by name or info hash").fill("film 2")
    expect(page.locator("td.pick")).to_have_count(1)
    assert sample.call_api("GET", f"/torrents/{2:040x}")["reason"] == "taken down"


def test_a_bulk_change_is_one_short_row_of_the_audit_log_on_a_phone(
    start_tracker: StartTracker, open_dashboard: OpenDashboard
) -> None:
    """Of 100 torrents with long names. The page does not scroll sideways, also with all objects shown."""
    sample = sample_of(start_tracker(), ())
    torrents = [{"info_hash": f"{number:040x}", "name": f"{LONG} {number}"} for number in range(1, 101)]
    sample.call_api("POST", "/torrents/batch", {"torrents": torrents})
    window = open_dashboard(sample.tracker, viewport={"width": 390, "height": 844})
    window.sign_in(sample.token)
    window.go("/audit?operation=torrent")
    page = window.page
    expect(page.locator("tbody tr")).to_have_count(1)
    row = page.locator("tbody tr")
    expect(row).to_contain_text("100 objects")
    box = row.bounding_box()
    assert box and box["height"] < 844
    for _ in ("folded", "open"):
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        right = "(row) => Math.max(...[...row.querySelectorAll('*')].map((e) => e.getBoundingClientRect().right))"
        assert row.evaluate(right) <= 390, "its text is not cut"
        row.locator("summary").click()
