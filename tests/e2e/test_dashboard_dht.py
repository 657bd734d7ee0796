"""D22: the page of the DHT in a real browser, with two trackers whose nodes know each other."""

import re

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from loadtest.trackers import RunningTracker
from tests.e2e.browsers import OpenDashboard, browser, open_dashboard
from tests.e2e.conftest import StartTracker
from tests.e2e.sample_trackers import SampleTracker, sample_of

__all__ = ["browser", "open_dashboard"]

pytestmark = pytest.mark.slow
NODE = {
    "TRACKER_DHT__ENABLED": "true",
    "TRACKER_DHT__LISTEN": "127.0.0.1:0",
    "TRACKER_DHT__PRIVATE_ADDRESSES": "true",
    "TRACKER_DHT__TORRENTS": "all",
}
HASH = "01" * 20
SECONDS = 60_000


def dht_port(tracker: RunningTracker) -> str:
    found = re.search(r"^ +dht +127\.0\.0\.1:(\d+)$", tracker.banner, re.MULTILINE)
    assert found, tracker.banner
    return found[1]


@pytest.fixture
def sample(start_tracker: StartTracker) -> SampleTracker:
    """A tracker that knows the node of another one, which has a seeder of ``HASH``."""
    other = start_tracker("other", **NODE, TRACKER_DHT__NAME="other")
    other.announce()
    node = {**NODE, "TRACKER_DHT__NAME": "host", "TRACKER_DHT__BOOTSTRAP": f"127.0.0.1:{dht_port(other)}"}
    found = sample_of(start_tracker(**node), ())
    found.call_api("POST", "/torrents", {"info_hash": HASH, "name": "a film", "private": False})
    return found


def no_violations(page: Page) -> None:
    assert Axe().run(page).response["violations"] == []


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_nodes_and_lookups_show_without_reloading(
    sample: SampleTracker, open_dashboard: OpenDashboard, scheme: str
) -> None:
    window = open_dashboard(sample.tracker, color_scheme=scheme)
    page = window.page
    window.sign_in(sample.token)
    window.go("/dht")
    expect(page.get_by_role("heading", name="host", level=2)).to_be_visible()
    tile = page.locator(".tile", has_text="Nodes over IPv4")
    expect(tile).to_contain_text("1", timeout=SECONDS)
    expect(page.get_by_role("heading", name="host up", level=2)).to_be_visible(timeout=SECONDS)
    expect(page.get_by_text("0 of 0 registered torrents take part")).to_be_visible(timeout=SECONDS)
    no_violations(page)
    window.go(f"/torrents/{HASH}")
    page.get_by_role("button", name="Look up now").click()
    expect(page.get_by_text("Lookup in the DHT queued")).to_be_visible()
    window.go("/dht")
    row = page.get_by_role("row", name="a film")
    expect(row).to_contain_text("a film 0 1 1", timeout=SECONDS)
    no_violations(page)
