"""Rules for all pages, with an empty store and with hostile names."""

import pytest

from tests.admin.conftest import Admin
from tests.admin.pages.page import Page, get
from tests.store.harness import count_software
from tracker.admin.pages.rendering import NAVIGATION, NOTICES
from tracker.bittorrent import InfoHash
from tracker.store.jobs.records import Result
from tracker.store.work.records import Claim, NewItem, Project

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"
PATHS = [link.href for links in NAVIGATION.values() for link in links]
QUERIES = [
    "/?range=2h",
    "/?range=nonsense",
    "/history?range=7d",
    "/history/traffic?since=1&until=2",
    "/jobs?queue=q&status=failed",
    "/clients?period=2027-01&page=9",
    "/jobs?page=x",
]
WORK = [
    "/work/proj",
    "/work/proj?by=bytes&period=2027-01&page=2",
    "/work/proj/items",
    "/work/proj/items?list=done",
    "/work/proj/items?list=nonsense&cursor=x&item=%3Cb%3E",
    "/work/proj/claims",
    "/work/proj/claims?claimant=alice&item=%3Cb%3E",
    "/work/proj/blocked",
    "/work/proj/settings",
]


async def fill(admin: Admin) -> None:
    """A store with every kind of object, all with hostile names."""
    store, keys = admin.store, admin.store.keys
    command = store.connection.command
    for number in range(3):
        await store.torrents.add(InfoHash(bytes([number]) * 20), {"name": EVIL})
    await store.torrents.deny(InfoHash(b"d" * 20), EVIL)
    await store.allow_list.add(b"-<b>", EVIL)
    await store.deny_list.add(b"-<c>", EVIL)
    await count_software(store.client_software, 1, {(EVIL[:40], ""): 5, (EVIL[:40], EVIL): 2}, admin.clock())
    await command("HSET", keys.failures(), EVIL, 7)
    await command("SET", keys.stat("requests"), 9)
    store.counters.count("announces", "requests", f"failures.{EVIL}", by=3, at=admin.clock() - 5)
    store.counters.observe("announce_seconds", 0.002, at=admin.clock() - 5)
    await store.counters.flush()
    await store.jobs.enqueue("q", {"torrent_id": EVIL})
    (job,) = await store.jobs.claim({"q": (1, 1)})
    await store.jobs.finish([Result(job, "fatal", EVIL)])
    await store.tokens.create("grafana & <co>", "read")
    await fill_work(admin)


async def fill_work(admin: Admin) -> None:
    work = admin.store.work
    await work.projects.create(Project("proj", title=EVIL, item_type=EVIL, domains=(EVIL,)))
    await work.items.add("proj", [NewItem(f"{EVIL}{number}") for number in range(3)])
    first = await work.claims.claim("proj", "alice", address="192.0.2.1", version=EVIL)
    assert isinstance(first, Claim)
    reported = {EVIL: 5}
    await work.claims.done("proj", "alice", first.item, address="192.0.2.1", reported=reported, id_text=EVIL)
    await work.claims.claim("proj", "alice", address="192.0.2.1")
    wrong = await work.claims.claim("proj", "alice", address="192.0.2.1")
    assert isinstance(wrong, Claim)
    await work.claims.done("proj", "alice", wrong.item, address="192.0.2.1", reported={f"{EVIL}!": 5})
    await work.leaderboard.update("proj")
    await work.blocks.block("192.0.2.9", "proj")
    await work.blocks.block("2001:db8::/64")


@pytest.mark.parametrize("full", [False, True], ids=["empty", "full"])
async def test_pages_have_no_inline_scripts_and_escape_their_data(admin: Admin, full: bool) -> None:
    if full:
        await fill(admin)
    async with admin.browser() as browser:
        for path in [*PATHS, *QUERIES, *(WORK if full else ())]:
            page = await get(browser, path)
            assert not page.inline(), path
            assert not [e for e in page.all("script") if "alert" in e.text], path
            assert not page.all("img"), path
            assert len(page.all("h1")) == 1, path
            assert page.one("title").text.strip(), path
            foreign = {link for link in page.links if not link.startswith("/")}
            assert not foreign, path


async def test_hostile_names_are_shown_as_text(admin: Admin) -> None:
    await fill(admin)
    async with admin.browser() as browser:
        work = ("/work", "/work/proj", "/work/proj/items", "/work/proj/claims", "/work/proj/blocked")
        for path in ("/", "/jobs", "/clients", "/jobs/1", *work):
            assert EVIL[:25] in (await get(browser, path)).text, path


@pytest.mark.parametrize("full", [False, True], ids=["empty", "full"])
async def test_every_link_has_a_target(admin: Admin, full: bool) -> None:
    if full:
        await fill(admin)
    seen: set[str] = set()
    async with admin.browser() as browser:
        waiting = list(PATHS)
        while waiting:
            path = waiting.pop()
            async with browser.get(path) as response:
                assert response.status == 200, path
                if response.content_type != "text/html" or len(seen) > 200:
                    continue
                links = Page(await response.text()).links
            new = {link.partition("#")[0] for link in links} - seen - {"/live"}
            new = {link for link in new if "since=" not in link or "since=" not in path}  # they zoom without end
            seen |= new
            waiting += new


async def test_fields_have_labels_and_forms_have_a_csrf_token(admin: Admin) -> None:
    await fill(admin)
    async with admin.browser() as browser:
        for path in [*PATHS, *WORK[:1], *WORK[2:]]:
            page = await get(browser, path)
            tokens = page.all("input", name="csrf")
            posts = [e for e in page.all("form") if e.attributes.get("method") == "post"]
            assert len(tokens) == len(posts), path
            assert all(token.attributes["value"] for token in tokens), path
            named = {e.attributes.get("for") for e in page.all("label")}
            for field in page.all("input") + page.all("select") + page.all("textarea"):
                if field.attributes.get("type") != "hidden":
                    labelled = "aria-label" in field.attributes or field.attributes.get("id") in named
                    assert labelled or page.all("label"), (path, field.attributes)
            for button in page.all("button"):
                assert button.text.strip(), (path, button.attributes)


async def test_role_read_sees_no_buttons(admin: Admin) -> None:
    await fill(admin)
    async with admin.browser("read") as browser:
        for path in (path for path in [*PATHS, *WORK] if path not in ("/tokens", "/audit")):  # hidden for role read
            page = await get(browser, path)
            actions = {e.attributes.get("action") for e in page.all("form") if e.attributes.get("method") == "post"}
            assert actions <= {"/sign-out"}, path


async def test_the_current_page_is_marked_in_the_navigation(admin: Admin) -> None:
    async with admin.browser() as browser:
        for path in PATHS:
            page = await get(browser, path)
            marked = page.all("a", aria_current="page")
            assert [e.attributes["href"] for e in marked] == [path]


async def test_unknown_notices_are_ignored(admin: Admin) -> None:
    async with admin.browser() as browser:
        assert NOTICES["purged"] in (await get(browser, "/jobs?notice=purged")).text
        assert "you are hacked" not in (await get(browser, "/jobs?notice=you+are+hacked")).text


async def test_static_file_urls_contain_a_hash_of_the_content(admin: Admin) -> None:
    async with admin.browser() as browser:
        page = await get(browser, "/")
        files = {link for link in page.links if link.startswith("/static/")}
        assert any("htmx" in link for link in files)
        assert any("tracker.css" in link for link in files)
        for link in files:
            async with browser.get(link) as response:
                assert response.status == 200, link
                assert "immutable" in response.headers["Cache-Control"], link
