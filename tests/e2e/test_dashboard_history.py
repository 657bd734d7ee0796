"""The page of the past in a real browser: zooming with the mouse and with keys, and the dashed last slice."""

import re

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.sync_api import Page, expect

from loadtest.trackers import RunningTracker
from tests.e2e.browsers import OpenDashboard, browser, open_dashboard, sign_in_link
from tests.e2e.conftest import StartTracker
from tests.waiting import until

__all__ = ["browser", "open_dashboard"]

pytestmark = pytest.mark.slow
CHART = "#requests figure .u-over"
PAINTED = """(canvas) => {
    document.body.style.color = "var(--series-2)";
    const colour = getComputedStyle(document.body).color.match(/[0-9]+/g).map(Number);
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let number = 0;
    for (let at = 0; at < data.length; at += 4)
        number += data[at + 3] > 64 && colour.every((value, index) => Math.abs(value - data[at + index]) < 24);
    return number;
}"""
"""Pixels of a chart in the colour of its second line, which is drawn over the first one."""
DATA = "fetch('/history/traffic.json?range=90d').then((reply) => reply.json()).then((data) => data.incomplete)"


def range_of(url: str) -> int:
    """Seconds from since to until in a URL; 0 without them."""
    found = re.search(r"since=(\d+)&until=(\d+)", url)
    return int(found[2]) - int(found[1]) if found else 0


@pytest.fixture
def tracker(start_tracker: StartTracker) -> RunningTracker:
    started = start_tracker()
    started.announce()
    return started


def test_dragging_across_a_chart_zooms_in(tracker: RunningTracker, open_dashboard: OpenDashboard) -> None:
    window = open_dashboard(tracker)
    page = window.page
    page.goto(sign_in_link(tracker))
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    for path, start in (("/history?range=24h&by=family", "by=family&since="), ("/?range=24h", "since=")):
        window.go(path)
        plot = page.locator(".u-over").first
        expect(plot).to_be_visible()
        box = plot.bounding_box()
        assert box
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.25, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=4)
        page.mouse.up()
        page.wait_for_url(re.compile(rf"/history\?{start}"))
        assert 0.4 * 86_400 < range_of(page.url) < 0.6 * 86_400


def wait_for_range(page: Page, seconds: float) -> None:
    """Until the page shows this range and its links are those of the script again: 20 ms after they were replaced."""
    page.wait_for_url(lambda url: range_of(url) == seconds)
    expect(page.locator(".htmx-request, .htmx-swapping, .htmx-added, .htmx-settling")).to_have_count(0)


def test_keys_zoom_and_keep_the_focus(tracker: RunningTracker, open_dashboard: OpenDashboard) -> None:
    window = open_dashboard(tracker)
    page = window.page
    page.goto(sign_in_link(tracker))
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    window.go("/history?range=2h")
    page.evaluate("window.notLoadedAgain = true")
    page.get_by_role("link", name="Zoom in").focus()
    page.keyboard.press("Enter")
    wait_for_range(page, 3600)
    expect(page.get_by_role("link", name="Zoom in")).to_be_focused()
    page.keyboard.press("+")
    wait_for_range(page, 1800)
    page.keyboard.press("-")
    wait_for_range(page, 3600)
    expect(page.locator(CHART)).to_be_visible()
    assert page.evaluate("window.notLoadedAgain")


def test_the_summary_says_that_the_last_slice_has_not_ended(
    tracker: RunningTracker, open_dashboard: OpenDashboard
) -> None:
    window = open_dashboard(tracker)
    page = window.page
    page.goto(sign_in_link(tracker))
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    window.go("/history?range=90d")
    page.get_by_role("link", name="By address family").click()
    summary = page.locator("#traffic [data-chart-text]")
    expect(summary).to_contain_text("Upload, IPv4: from")
    assert ("The last slice has not ended." in (summary.text_content() or "")) == page.evaluate(DATA)
    page.get_by_role("link", name="Table of Traffic").click()
    expect(page.get_by_role("columnheader", name="Upload, IPv4")).to_be_visible()


def test_a_single_point_is_drawn(tracker: RunningTracker, open_dashboard: OpenDashboard) -> None:
    """In two hours a new tracker has the latency of one slice only, which no line joins to another. A slice is shown
    once a tenth of it is over, so a day's would not be until 02:24 UTC."""
    window = open_dashboard(tracker, color_scheme="light")
    page = window.page
    page.goto(sign_in_link(tracker))
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    values = "fetch('/history/latency.json?range=2h').then((r) => r.json()).then(({ series }) => series[0].values)"
    until(lambda: any(value is not None for value in page.evaluate(values)), poll_seconds=0.2)
    window.go("/history?range=2h")
    canvas = page.locator("#latency figure canvas")
    expect(canvas).to_be_visible()
    assert canvas.evaluate(PAINTED) >= 4
