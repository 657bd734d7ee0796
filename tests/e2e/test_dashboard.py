"""The dashboard in a real browser, with a real client: from signing in to being signed out."""

import re
from pathlib import Path

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")
pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.sync_api import Locator, expect

from loadtest import trackers
from loadtest.trackers import RunningTracker
from tests.e2e.browsers import OpenDashboard, browser, open_dashboard, sign_in_link
from tests.e2e.conftest import StartTracker
from tests.e2e.peers import Peer, Share
from tracker.admin.pages.rendering import NAVIGATION

__all__ = ["browser", "open_dashboard"]

pytestmark = pytest.mark.slow
PATHS = [link.href for links in NAVIGATION.values() for link in links]
PHONE = {"width": 390, "height": 844}


def new_token(tracker: RunningTracker, name: str = "operator", *options: str) -> str:
    done = trackers.run(tracker.log_file.parent, "token", "create", name, *options)
    found = re.search(r"swk_\w{12}_[\w-]{43}", done.stdout)
    assert found, done.stdout + done.stderr
    return found[0]


def is_all_in_sight(box: Locator) -> bool:
    """Whether its corners are neither covered nor clipped."""
    seen = box.evaluate("""(box) => {
        const {left, right, top, bottom} = box.getBoundingClientRect();
        const corners = [[left + 9, top + 9], [right - 9, top + 9], [left + 9, bottom - 9], [right - 9, bottom - 9]];
        return corners.every(([x, y]) => box.contains(document.elementFromPoint(x, y)));
    }""")
    return bool(seen)


def test_a_link_signs_in_once_and_a_token_repeatedly(
    start_tracker: StartTracker, open_dashboard: OpenDashboard
) -> None:
    tracker = start_tracker()
    first = open_dashboard(tracker)
    first.page.goto(sign_in_link(tracker))
    expect(first.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert "#" not in first.page.url
    second = open_dashboard(tracker)
    second.page.goto(sign_in_link(tracker))
    expect(second.page.get_by_role("alert")).to_contain_text("already used")
    second.complaints.clear()  # the expected 403
    token = new_token(tracker)
    second.sign_in(token)
    first.page.get_by_role("button", name="Sign out").click()
    expect(first.page.get_by_label("Token")).to_be_visible()
    first.sign_in(token)


def test_the_overview_updates_live_when_a_client_joins(
    start_tracker: StartTracker, open_dashboard: OpenDashboard, tmp_path: Path
) -> None:
    """The first steps disappear with the first announce."""
    tracker = start_tracker()
    share = Share.make(tmp_path / "source", size=100_000)
    window = open_dashboard(tracker)
    window.sign_in(new_token(tracker))
    page = window.page
    expect(page.get_by_text("No announces yet")).to_be_visible()
    expect(page.locator("[data-stream-text]")).to_have_text("Live")
    expect(page.locator("span[data-live='seeders']")).to_have_text("0")
    page.evaluate("window.notLoadedAgain = true")
    with Peer(share.torrent(f"{tracker.url}/announce"), share.folder) as seeder:
        seeder.until("tracker_reply")
        expect(page.locator("span[data-live='seeders']")).to_have_text("1")
        expect(page.locator("span[data-live='peers']")).to_have_text("1")
        expect(page.locator("span[data-live='torrents']")).to_have_text("1")
        expect(page.get_by_text("No announces yet")).to_have_count(0)
    expect(page.locator("span[data-live='seeders']")).to_have_text("0")
    assert page.evaluate("window.notLoadedAgain")


def test_a_torrent_is_uploaded_and_disabled_and_its_client_gets_the_reason(
    start_tracker: StartTracker, open_dashboard: OpenDashboard, tmp_path: Path
) -> None:
    tracker = start_tracker(TRACKER_TORRENTS__MODE="registered")
    share = Share.make(tmp_path / "source", size=100_000)
    torrent = share.torrent(f"{tracker.url}/announce")
    window = open_dashboard(tracker)
    window.sign_in(new_token(tracker))
    page = window.page
    with Peer(torrent, share.folder) as seeder:
        assert "not registered" in seeder.until("tracker_error")["text"]
        window.go("/torrents/add")
        page.get_by_label("Choose .torrent files").set_input_files(torrent)
        page.get_by_role("button", name="Add files").click()
        expect(page.get_by_role("heading", name="payload.bin", level=1)).to_be_visible()
        seeder.handle.force_reannounce(0, -1, 1)
        seeder.until("tracker_reply")
        page.reload()
        expect(page.locator("#peers-heading").locator("xpath=..")).to_contain_text("1 active")
        page.locator("summary", has_text="Disable").click()
        page.get_by_label("Reason").first.fill("moved to another tracker")
        page.locator("details[open] form button", has_text="Disable").click()
        expect(page.get_by_text("moved to another tracker").first).to_be_visible()
        seeder.alerts.clear()
        seeder.handle.force_reannounce(0, -1, 1)
        assert "moved to another tracker" in seeder.until("tracker_error")["text"]


def test_revoking_a_token_signs_its_user_out_immediately(
    start_tracker: StartTracker, open_dashboard: OpenDashboard
) -> None:
    tracker = start_tracker()
    visitor = open_dashboard(tracker)
    visitor.sign_in(new_token(tracker, "visitor", "--read-only"))
    expect(visitor.page.locator("[data-stream-text]")).to_have_text("Live")
    operator = open_dashboard(tracker)
    operator.sign_in(new_token(tracker))
    operator.go("/tokens")
    row = operator.page.get_by_role("row").filter(has_text="visitor")
    row.locator("summary").click()
    assert is_all_in_sight(row.locator(".ask"))
    row.get_by_role("button", name="Revoke").click()
    expect(operator.page.get_by_text("Token revoked")).to_be_visible()
    expect(operator.page.get_by_role("row").filter(has_text="visitor")).to_have_count(0)
    # No click there: the event stream signed it out.
    expect(visitor.page.get_by_label("Token")).to_be_visible()
    visitor.go("/torrents")
    expect(visitor.page.get_by_label("Token")).to_be_visible()


@pytest.mark.parametrize(
    "look",
    [
        {"color_scheme": "light"},
        pytest.param({"color_scheme": "dark"}, marks=pytest.mark.long),
        pytest.param({"viewport": PHONE}, marks=pytest.mark.long),
    ],
    ids=["light", "dark", "phone"],
)
def test_pages_have_no_console_errors_foreign_requests_or_overflow(
    start_tracker: StartTracker, open_dashboard: OpenDashboard, look: dict[str, object]
) -> None:
    """The fixture checks the console and foreign requests."""
    tracker = start_tracker()
    window = open_dashboard(tracker, **look)
    window.sign_in(new_token(tracker))
    for path in PATHS:
        window.go(path)
        expect(window.page.get_by_role("heading", level=1)).to_be_visible()
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert window.page.evaluate(wide) <= 0, path


@pytest.mark.long
def test_the_theme_is_remembered_and_the_menu_opens_by_keyboard(
    start_tracker: StartTracker, open_dashboard: OpenDashboard
) -> None:
    tracker = start_tracker()
    window = open_dashboard(tracker, color_scheme="light", viewport=PHONE)
    window.sign_in(new_token(tracker))
    page = window.page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.get_by_role("button", name="Menu").press("Enter")
    page.get_by_role("button", name="Dark").click()
    window.go("/jobs")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("matchMedia('(prefers-color-scheme: light)').matches")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", ground))) < 60
