"""The pages of work distribution (rows W12, W17, W18, W20)."""

import re

import aiohttp
import pytest

from tests.admin.conftest import Admin
from tests.admin.pages.page import get, post_form, send
from tests.store.harness import Store
from tests.store.work.harness import add, claimed
from tests.store.work.policy import seeding, swarm
from tracker.admin.pages.work import PAGE
from tracker.bittorrent import InfoHash
from tracker.settings.background import ProbeSettings
from tracker.store.work.periods import week_of
from tracker.store.work.records import PROJECT_FIELDS, Project, Verify

HASH = "ab" * 20


@pytest.fixture
async def proj(browser: aiohttp.ClientSession) -> None:
    page = await send(browser, "/work", {"name": "proj", "kind": "items", "title": "A title"})
    assert page.location.startswith("/work/proj/settings")


async def test_a_project_is_created_changed_and_deleted(
    admin: Admin, browser: aiohttp.ClientSession, proj: None
) -> None:
    """W20: deleting a project leaves the others."""
    page = await send(browser, "/work", {"name": "proj"}, 422)
    assert "a project of this name exists" in page.text
    await send(browser, "/work", {"name": "keep", "kind": "seeding"})
    listed = await get(browser, "/work")
    assert "A title" in listed.text and "/work/keep" in listed.hrefs
    form = await get(browser, "/work/keep/settings")
    fields = {each.attributes.get("name") for tag in ("input", "select") for each in form.all(tag)}
    assert [name for name in PROJECT_FIELDS if name not in {"kind", *fields}] == []
    values = {each.attributes["name"] or "": each.attributes.get("value") or "" for each in form.all("input")}
    values |= {"verify": "handshake", "order": "weakest", "passkeys": "yes", "domains": "b, a", "target": "7"}
    await post_form(browser, "/work/keep/settings", **values)
    changed = await admin.store.work.projects.get("keep")
    assert (changed.verify, changed.target, changed.domains) == ("handshake", 7, ("a", "b"))
    wrong = await send(browser, "/work/keep/settings", {**values, "target": "many"}, 422)
    assert "must be a whole number" in wrong.text
    wrong = await send(browser, "/work/proj/settings", {**values, "verify": "piece"}, 422)
    assert "verifies nothing" in wrong.text
    await post_form(browser, "/work/proj/delete")
    assert [project.name for project in await admin.store.work.projects.all()] == ["keep"]


async def test_a_project_that_needs_probes_says_so_while_there_are_none(
    admin: Admin, browser: aiohttp.ClientSession
) -> None:
    levels: dict[str, Verify] = {"weak": "announce", "strong": "piece"}
    for name, verify in levels.items():
        await admin.store.work.projects.create(Project(name, "seeding", verify=verify, keep_done_days=1))
    assert "TRACKER_PROBE__ENABLED" not in (await get(browser, "/work/weak/settings")).text
    for path in ("", "/settings"):
        assert "verified by announces alone" in (await get(browser, f"/work/strong{path}")).text
    settings = admin.context.settings
    admin.context.live.current = settings.model_copy(update={"probe": ProbeSettings(enabled=True)})
    assert "TRACKER_PROBE__ENABLED" not in (await get(browser, "/work/strong")).text


async def test_an_unknown_project_is_not_found(browser: aiohttp.ClientSession) -> None:
    for path in ("", "/items", "/claims", "/blocked", "/settings"):
        await get(browser, f"/work/none{path}", 404)
    for path in ("/items", "/items/purge", "/claims/release", "/blocked", "/unblock", "/delete"):
        await send(browser, f"/work/none{path}", {"who": "alice", "items": "a", "queue": "todo"}, 404)


async def test_items_are_added_found_and_removed(admin: Admin, browser: aiohttp.ClientSession, proj: None) -> None:
    """W18: adding twice adds once."""
    for _ in range(2):
        page = await post_form(browser, "/work/proj/items", items="a\r\nb <b>\r\n", queue="secondary")
    assert "b <b>" in page.text and "secondary (2)" in page.text
    await post_form(browser, "/work/proj/items", items="own", queue="todo", claimant="alice")
    assert "own" in (await get(browser, "/work/proj/items?claimant=alice")).text
    assert "1 to give out" in (await get(browser, "/work/proj/items?item=own")).text
    assert "No item none." in (await get(browser, "/work/proj/items?item=none")).text
    bad = await send(browser, "/work/proj/items", {"items": "c\nx\x1bx", "queue": "todo"}, 422)
    assert "control characters" in bad.text and "c" in bad.one("textarea").text
    await post_form(browser, "/work/proj/items/remove", item="a", list="secondary")
    assert "secondary (1)" in (await get(browser, "/work/proj/items")).text
    await post_form(browser, "/work/proj/items/purge", list="secondary")
    (numbers,) = await admin.store.work.statistics.read(["proj"])
    assert (numbers.secondary, numbers.asked) == (0, 1)


async def test_items_of_seeding_link_to_their_torrents(admin: Admin, browser: aiohttp.ClientSession) -> None:
    await send(browser, "/work", {"name": "keep", "kind": "seeding"})
    bad = await send(browser, "/work/keep/items", {"items": HASH, "queue": "todo"}, 422)
    assert "is not registered" in bad.text
    await admin.store.torrents.add(InfoHash(bytes.fromhex(HASH)), {})
    page = await post_form(browser, "/work/keep/items", items=HASH, queue="todo")
    assert page.torrents == [HASH]


async def test_a_long_list_is_paged(browser: aiohttp.ClientSession, store: Store, proj: None) -> None:
    await add(store, *(f"item {number}" for number in range(PAGE + 5)))
    first = await get(browser, "/work/proj/items")
    (more,) = [href for href in first.hrefs if "cursor=" in href]
    second = await get(browser, more)
    shown = [row.text for page in (first, second) for row in page.all("th", scope="row")]
    assert len(set(shown)) == PAGE + 5


async def test_claims_are_shown_and_released(browser: aiohttp.ClientSession, store: Store, proj: None) -> None:
    """W12."""
    await add(store, "one/a", "one/b", "two")
    for who in ("alice", "alice", "bob"):
        await claimed(store, who, address="192.0.2.77")
    page = await get(browser, "/work/proj/claims")
    assert page.text.count("192.0.2.77") == 3 and "one/a" in page.text
    assert "bob" not in (await get(browser, "/work/proj/claims?claimant=alice")).text
    bad = await send(browser, "/work/proj/claims/release", {"hours": "many"}, 422)
    assert "number of hours" in bad.text
    assert (await store.work.statistics.read(["proj"]))[0].out == 3
    await post_form(browser, "/work/proj/claims/release", prefix="one")
    await post_form(browser, "/work/proj/claims/release", item="two", hours="1")
    (claim,) = (await store.work.claims.page("proj")).entries
    assert claim.item == "two"
    await post_form(browser, "/work/proj/claims/release", item="two", claimant=claim.claimant)
    assert (await store.work.statistics.read(["proj"]))[0].out == 0


async def test_results_are_shown(browser: aiohttp.ClientSession, store: Store, proj: None) -> None:
    """Items of 0 bytes show (the original's page left them out)."""
    await add(store, "none", "some")
    for reported in (0, 2048):
        claim = await claimed(store, "alice")
        await store.work.claims.done("proj", "alice", claim.item, reported={"data": reported})
    await store.work.leaderboard.update("proj")
    page = await get(browser, "/work/proj")
    assert "alice 2 2.0 KiB" in page.text and "none" in page.text and "some" in page.text
    assert "data 2.0 KiB" in page.text
    assert "No results in this period" in (await get(browser, "/work/proj?period=2026-12")).text
    assert "No results in this period" in (await get(browser, "/work/proj?period=2027-W01")).text
    assert "alice 2 2.0 KiB" in (await get(browser, f"/work/proj?period={week_of(store.clock.now)}")).text


async def test_a_claimant_is_blocked_and_unblocked(admin: Admin, browser: aiohttp.ClientSession, proj: None) -> None:
    await post_form(browser, "/work/proj/blocked", who="alice")
    page = await post_form(browser, "/work/proj/blocked", who="192.0.2.1")
    assert "alice" in page.text and "192.0.2.1" in page.text
    bad = await send(browser, "/work/proj/blocked", {"who": "<i>"}, 422)
    assert "3 to 30 letters" in bad.text
    await post_form(browser, "/work/proj/unblock", who="alice")
    assert await admin.store.work.blocks.all("proj") == ["192.0.2.1"]
    await post_form(browser, "/work/blocked", who="bob")
    assert await admin.store.work.blocks.all() == ["bob"]
    assert "3 to 30 letters" in (await send(browser, "/work/unblock", {"who": "<i>"}, 422)).text
    await post_form(browser, "/work/unblock", who="bob")
    assert await admin.store.work.blocks.all() == []


async def test_role_read_sees_no_addresses_and_changes_nothing(
    browser: aiohttp.ClientSession, reader: aiohttp.ClientSession, store: Store, proj: None
) -> None:
    """W17."""
    await add(store, "a", "b")
    first = await claimed(store, "alice", address="192.0.2.77")
    await store.work.claims.done("proj", "alice", first.item, address="192.0.2.77")
    await claimed(store, "alice", address="192.0.2.77")
    await store.work.blocks.block("192.0.2.77", "proj")
    await store.work.blocks.block("192.0.2.77")
    await store.work.blocks.block("carol", "proj")
    for path in ("/work", "/work/proj", "/work/proj/items", "/work/proj/claims", "/work/proj/blocked"):
        page = await get(reader, path)
        assert "192.0.2" not in page.source and not page.changes, path
    page = await get(reader, "/work/proj/blocked")
    assert "carol" in page.text and "1 addresses are hidden" in page.text
    assert not (await get(reader, "/work/proj/settings")).changes
    for path in ("/work", "/work/proj/delete", "/work/proj/items", "/work/proj/claims/release"):
        await send(reader, path, {"name": "x", "items": "c"}, 403)
    forged = {"X-CSRF-Token": "wrong"}
    async with browser.post("/work/proj/delete", headers=forged, allow_redirects=False) as response:
        assert response.status == 403
    assert (await store.work.projects.get("proj")).title == "A title"


async def test_the_policy_is_previewed(reader: aiohttp.ClientSession, store: Store, proj: None) -> None:
    await seeding(store)
    assert "Nothing to change" in (await get(reader, "/work/seeds/policy")).text
    weak = await swarm(store, 1, [1] * 72)
    page = await get(reader, "/work/seeds/policy")
    assert page.torrents == [weak.hex()] and "weak" in page.text and "0 → 2" in page.text
    assert "/work/proj/policy" not in (await get(reader, "/work/proj")).hrefs
    await get(reader, "/work/proj/policy", 404)


async def test_the_chart_shows_bytes_by_number_of_seeders(admin: Admin, browser: aiohttp.ClientSession) -> None:
    page = await get(browser, "/work")
    assert page.one("figure").attributes["data-chart"] == "/work/bytes.json"
    empty = page.one("figure").attributes["data-empty"]
    assert re.fullmatch(r"First figures at (00|06|12|18):00 UTC", str(empty))
    await admin.store.work.sizes.save([0, 0, 0, 0])  # the tracker has no torrents yet
    async with browser.get("/work/bytes.json") as response:
        assert (await response.json())["x"] == []
    await admin.store.work.sizes.save([2**30, 3 * 2**29, 0, 2**60])
    async with browser.get("/work/bytes.json") as response:
        chart = await response.json()
    assert len(chart["x"]) == 1 and chart["x"][0] % 86_400 == 0
    assert [(each["name"], each["values"]) for each in chart["series"]] == [
        ("0 seeders", [1]),
        ("1-3 seeders", [1.5]),
        ("4-10 seeders", [0]),
        ("11+ seeders", [2**30]),
    ]
