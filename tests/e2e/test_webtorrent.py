"""Browsers meet over the tracker: the demo page of the documentation in a real Chromium."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from loadtest.trackers import RunningTracker
from tests.e2e.browsers import PATIENCE_MS, browser
from tests.e2e.conftest import StartTracker
from tests.e2e.requests import scrape
from tests.waiting import until

__all__ = ["browser"]

DEMO = Path(__file__).parents[2] / "docs" / "webtorrent-demo.html"


def join(browser: Browser, tracker: RunningTracker) -> Page:
    page = browser.new_context().new_page()
    page.goto(DEMO.as_uri())
    page.get_by_label("Tracker").fill(tracker.url.replace("http", "ws") + "/announce")
    page.get_by_role("button", name="Join").click()
    expect(page.get_by_role("status")).to_contain_text("without it", timeout=PATIENCE_MS)
    return page


def share(page: Page, content: bytes) -> None:
    page.get_by_label("File").set_input_files(
        {"name": "a file.bin", "mimeType": "application/octet-stream", "buffer": content}
    )


def expect_received(page: Page, content: bytes) -> None:
    link = page.get_by_role("link", name=f"a file.bin, {len(content)} bytes")
    expect(link).to_be_visible(timeout=PATIENCE_MS)
    received = page.evaluate(
        "async url => Array.from(new Uint8Array(await (await fetch(url)).arrayBuffer()))", link.get_attribute("href")
    )
    assert bytes(received) == content


@pytest.mark.usefixtures("own_interpreter")
def test_two_tabs_share_a_file(start_tracker: StartTracker, browser: Browser) -> None:
    tracker, content = start_tracker(), bytes(range(256)) * 400
    share(join(browser, tracker), content)
    expect_received(join(browser, tracker), content)


@pytest.mark.slow
def test_tabs_at_several_processes_share_a_file_while_others_close(
    start_tracker: StartTracker, browser: Browser
) -> None:
    tracker, content = start_tracker(TRACKER_HTTP__WORKERS="3"), bytes(range(256)) * 400
    share(join(browser, tracker), content)
    for _ in range(4):
        page = join(browser, tracker)
        expect_received(page, content)
        page.context.close()


@pytest.mark.slow
def test_a_closed_tab_leaves_the_swarm_at_once(start_tracker: StartTracker, browser: Browser) -> None:
    tracker, room = start_tracker(), b"room demo".ljust(20)
    pages = [join(browser, tracker) for _ in range(2)]
    until(lambda: scrape(tracker.url, room) == (0, 2, 0))
    pages[0].context.close()
    until(lambda: scrape(tracker.url, room) == (0, 1, 0))
