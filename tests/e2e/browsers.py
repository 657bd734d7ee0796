"""A real browser on the dashboard. Errors in its console and requests to other hosts fail the test.

browser         a Chromium of this machine; without one the tests that need it are skipped
open_dashboard  opens a Window on the dashboard of a tracker; an error in its console fails the test
"""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from loadtest.trackers import RunningTracker

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 20_000
# In containers it runs as root, without a sandbox. It must contact only the tracker.
_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
)
_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""


@dataclass
class Window:
    """One browser window; ``complaints`` holds errors and warnings of its console, and requests to other hosts."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def sign_in(self, token: str) -> None:
        self.go("/sign-in")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        self.page.wait_for_load_state()  # the page's scripts have run

    def on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "data:", "blob:")):
            self.complaints.append(f"asked for {request.url}")


def sign_in_link(tracker: RunningTracker) -> str:
    """The one-time link in the banner."""
    found = re.search(r"^\s*sign in\s+(\S+)", tracker.banner, re.MULTILINE)
    assert found, tracker.banner
    return found[1]


OpenDashboard = Callable[..., Window]


# Not of session scope: Playwright runs an event loop in this thread, and async tests could not start theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"tests/e2e/test_dashboard.py needs a browser, and none of {', '.join(NAMES)} is in PATH")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(_OPTIONS))
        yield running
        running.close()


@pytest.fixture
def open_dashboard(browser: Browser) -> Iterator[OpenDashboard]:
    """Options are those of a browser context: ``viewport``, ``color_scheme``, …"""
    opened: list[Window] = []

    def window(tracker: RunningTracker, **options: object) -> Window:
        context = browser.new_context(**options)  # type: ignore[arg-type]  # as given
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(_VIOLATIONS)
        opened.append(Window(context.new_page(), tracker.admin_url))
        page = opened[-1].page
        page.on("console", opened[-1].on_console)
        page.on("pageerror", lambda error: opened[-1].complaints.append(str(error)))
        page.on("request", opened[-1].on_request)
        return opened[-1]

    expect.set_options(timeout=PATIENCE_MS)
    yield window
    for each in opened:
        each.page.context.close()
    assert [each.complaints for each in opened] == [[] for _ in opened]
