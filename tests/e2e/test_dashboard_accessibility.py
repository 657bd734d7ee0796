"""All pages in a real browser: findings of axe-core, and long names beside numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.e2e.browsers import OpenDashboard, Window, browser, open_dashboard, sign_in_link
from tests.e2e.conftest import StartTracker
from tests.e2e.sample_trackers import SampleTracker, private_tracker, public_tracker

__all__ = ["browser", "open_dashboard"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
VIEWPORTS = {"wide": WIDE, "phone": PHONE}
ON_EACH_SCREEN = [
    pytest.param(screen, marks=[] if screen == "wide" else pytest.mark.long, id=screen) for screen in VIEWPORTS
]
OPTIONS = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
"""All rules: WCAG 2.2 AA and best practices. One of WCAG 2.2 is off unless it is asked for."""
HIDDEN_NUMBERS = """() => [...document.querySelectorAll("main table:not(.peers) td.number")]
    .filter((cell) => cell.offsetWidth && cell.getBoundingClientRect().right
        > cell.closest(".card").getBoundingClientRect().right + 1)
    .map((cell) => cell.closest("tr").textContent.trim())"""


def violations(page: Page, part: str | None = None) -> list[str]:
    """The violated axe-core rules in both colour schemes, with the elements; of the whole page, or of a part of it."""
    found: list[str] = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        rules = Axe().run(page, part, OPTIONS).response["violations"]
        found += [
            f"{scheme}: {rule['id']}: {node['target']} {node['html'][:200]}" for rule in rules for node in rule["nodes"]
        ]
    return found


def dialogs(window: Window) -> list[str]:
    """The violations in each confirmation of the page, opened one after the other."""
    found: list[str] = []
    for box in window.page.locator("main details.confirm").all():
        box.evaluate("(details) => { details.open = true; }")
        found += violations(window.page, "details.confirm[open]")
        box.evaluate("(details) => { details.open = false; }")
    return found


def pages_of(window: Window, sample: SampleTracker) -> Iterator[str]:
    """Opens each page, and all parts of the API reference."""
    window.sign_in(sample.token)
    for path in sample.paths:
        window.go(path)
        expect(window.page.get_by_role("heading", level=1)).to_be_visible()
        for part in window.page.locator("main details:not(.confirm)").all():
            part.evaluate("(details) => { details.open = true; }")
        yield path
    window.complaints[:] = [
        text for text in window.complaints if "404" not in text and "422" not in text
    ]  # pages of errors


def check(window: Window, sample: SampleTracker) -> None:
    found = {path: violations(window.page) + dialogs(window) for path in pages_of(window, sample)}
    assert found == {path: [] for path in sample.paths}


@pytest.mark.long
@pytest.mark.parametrize("screen", VIEWPORTS)
def test_axe_finds_nothing_on_the_pages_of_a_public_tracker(
    start_tracker: StartTracker, open_dashboard: OpenDashboard, tmp_path: Path, screen: str
) -> None:
    sample = public_tracker(start_tracker, tmp_path)
    check(open_dashboard(sample.tracker, viewport=VIEWPORTS[screen]), sample)


@pytest.mark.long
@pytest.mark.parametrize("screen", VIEWPORTS)
def test_axe_finds_nothing_on_the_pages_of_a_private_tracker(
    start_tracker: StartTracker, open_dashboard: OpenDashboard, screen: str
) -> None:
    sample = private_tracker(start_tracker)
    check(open_dashboard(sample.tracker, viewport=VIEWPORTS[screen]), sample)


@pytest.mark.parametrize("screen", ON_EACH_SCREEN)
def test_axe_finds_nothing_before_signing_in_and_on_an_empty_tracker(
    start_tracker: StartTracker, open_dashboard: OpenDashboard, screen: str
) -> None:
    """Empty lists before the first announce; the menu of a phone is open."""
    tracker = start_tracker()
    window = open_dashboard(tracker, viewport=VIEWPORTS[screen])
    window.go("/sign-in")
    assert violations(window.page) == []
    window.page.goto(sign_in_link(tracker))
    expect(window.page.get_by_text("No announces yet")).to_be_visible()
    assert window.page.url == f"{tracker.admin_url}/"
    if screen == "phone":
        window.page.get_by_role("button", name="Menu").click()
    found = {"/": violations(window.page)}
    for path in ("/torrents", "/torrents/denied", "/world", "/work", "/dht", "/jobs", "/clients", "/tokens", "/audit"):
        window.go(path)
        found[path] = violations(window.page)
    assert not [each for each in found.items() if each[1]]


@pytest.mark.long
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_long_names_do_not_hide_numbers(
    start_tracker: StartTracker, open_dashboard: OpenDashboard, tmp_path: Path, viewport: dict[str, int]
) -> None:
    sample = public_tracker(start_tracker, tmp_path)
    window = open_dashboard(sample.tracker, viewport=viewport)
    hidden = {path: window.page.evaluate(HIDDEN_NUMBERS) for path in pages_of(window, sample)}
    assert hidden == {path: [] for path in sample.paths}
