"""An open dashboard shows that its tracker died, hangs or lost the store, and since when."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.sync_api import Page, expect

from loadtest.trackers import RunningTracker
from tests.e2e.browsers import OpenDashboard, Window, browser, open_dashboard, sign_in_link
from tests.e2e.conftest import StartTracker

__all__ = ["browser", "open_dashboard"]

pytestmark = pytest.mark.slow
NO_DATA = re.compile(r"^No data since \d\d:\d\d:\d\d$")


def open_overview(tracker: RunningTracker, open_dashboard: OpenDashboard) -> Window:
    """An overview page with live data. Its clock stands still until a test moves it."""
    window = open_dashboard(tracker)
    window.page.clock.install()
    window.page.goto(sign_in_link(tracker))
    expect(window.page.locator("[data-stream-text]")).to_have_text("Live")
    window.page.clock.pause_at(window.page.evaluate("Date.now()") + 1000)
    expect(window.page).to_have_title("Overview · swarmkeeper")
    return window


def store_of(tracker: RunningTracker) -> int:
    """The process of its private store."""
    pid = tracker.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (found,) = (int(child) for child in children if b"valkey" in Path(f"/proc/{child}/cmdline").read_bytes())
    return found


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def colour(page: Page) -> str:
    figure = page.locator("span[data-live='peers']")
    return str(figure.evaluate("(figure) => getComputedStyle(figure).color"))


def shows_stale(page: Page, ready: str) -> None:
    expect(page.locator("[data-stream-text]")).to_have_text(NO_DATA)
    expect(page.locator("[data-ready-text]")).to_have_text(ready)
    expect(page).to_have_title("No data · Overview · swarmkeeper")


def test_a_hanging_tracker_is_shown_as_stale_after_five_seconds_and_live_again_later(
    start_tracker: StartTracker, open_dashboard: OpenDashboard
) -> None:
    tracker = start_tracker()
    page = open_overview(tracker, open_dashboard).page
    live = colour(page)
    with stopped(tracker.process.pid):
        page.clock.run_for(4900)
        expect(page.locator("[data-stream-text]")).to_have_text("Live")
        page.clock.run_for(1100)
        shows_stale(page, "Readiness unknown")
        assert colour(page) != live
        since = page.locator("[data-stream-text]").text_content()
        page.clock.run_for(60_000)
        expect(page.locator("[data-stream-text]")).to_have_text(since or "")
    page.clock.resume()
    expect(page.locator("[data-stream-text]")).to_have_text("Live")
    expect(page.locator("[data-ready-text]")).to_have_text("Ready")
    expect(page).to_have_title("Overview · swarmkeeper")
    assert colour(page) == live


@pytest.mark.long
def test_a_killed_tracker_is_shown_as_stale(start_tracker: StartTracker, open_dashboard: OpenDashboard) -> None:
    tracker = start_tracker()
    window = open_overview(tracker, open_dashboard)
    tracker.kill()
    expect(window.page.locator("[data-stream-text]")).to_have_text("Connecting …")
    window.page.clock.run_for(6000)
    shows_stale(window.page, "Readiness unknown")
    window.page.clock.run_for(60_000)
    shows_stale(window.page, "Readiness unknown")
    window.complaints[:] = [text for text in window.complaints if "ERR_CONNECTION_REFUSED" not in text]
    window.complaints[:] = [text for text in window.complaints if "ERR_INCOMPLETE_CHUNKED" not in text]


def test_a_tracker_without_its_store_is_shown_as_stale_and_not_ready(
    start_tracker: StartTracker, open_dashboard: OpenDashboard
) -> None:
    tracker = start_tracker(TRACKER_REDIS__TIMEOUT_SECONDS="1")
    page = open_overview(tracker, open_dashboard).page
    with stopped(store_of(tracker)):
        expect(page.locator("[data-stream-text]")).to_have_text("Store unavailable")
        page.clock.run_for(6000)
        expect(page.locator("[data-ready-text]")).to_have_text("Not ready")
        shows_stale(page, "Not ready")
    page.clock.resume()
    expect(page.locator("[data-ready-text]")).to_have_text("Ready")
