"""The account of the sync has the rights that sync.md grants, as its lines are printed, and needs no others."""

import re

import pytest

from loadtest.databases import Site
from loadtest.servers import ROOT
from loadtest.site_tables import OWN_MAPPING
from tests.commands import Command
from tests.store.harness import Store
from tests.workers.site.harness import announce, members, register, syncing
from tests.workers.site.test_commands import configure
from tests.workers.site.test_comparing import compared
from tests.workers.site.test_importing import fill
from tracker.workers.site.mapping import SiteMapping, load_mapping, read_mapping


def run_as_printed(site: Site, *blocks: int, **names: str) -> None:
    """Blocks of SQL of the page, with names of the test's own."""
    printed = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/sync.md").read_text("utf-8"), re.DOTALL)
    text = "".join(printed[block] for block in blocks).replace("…", "hunter2")
    for name, own in names.items():
        text, replaced = re.subn(rf"\b{name}\b", own, text)
        assert replaced, name
    site.sql(text)


async def check_sync(store: Store, site: Site, user: str, mapping: SiteMapping) -> None:
    """A user joins, completes and leaves, and nothing differs."""
    async with syncing(store, site, mapping, url=site.server.url(site.name, user, "hunter2")) as sync:
        assert not await sync.database.missing_rights(mapping.rights)
        await announce(store, 7, "s")
        await store.pass_time(60)
        await announce(store, 7, "c", up=300, down=1000, left=0)
        await sync.round()
        await store.pass_time(60)
        await announce(store, 7, "x", up=400, down=1000, left=0)
        await sync.round()
        await sync.full_pass()
        assert not any(each.differences for each in (await compared(sync)).values())


async def test_the_sync_on_mariadb(store: Store, unit3d: Site) -> None:
    user = f"docs_{unit3d.name}"
    await members(store, unit3d, [7])
    run_as_printed(unit3d, 0, unit3d=unit3d.name, tracker=user)
    try:
        await check_sync(store, unit3d, user, load_mapping("unit3d"))
    finally:
        unit3d.sql(f"DROP USER {user}@localhost")
    assert unit3d.sql("SELECT uploaded, downloaded FROM users") == [["400", "1000"]]
    assert unit3d.sql("SELECT active, uploaded FROM peers") == [["0", "400"]]


def test_the_import(tracker: Command, unit3d: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    user = f"docs_{unit3d.name}"
    fill(unit3d)
    run_as_printed(unit3d, 0, 3, unit3d=unit3d.name, tracker=user)
    configure(monkeypatch, unit3d)
    monkeypatch.setenv("TRACKER_SITE__DATABASE", unit3d.server.url(unit3d.name, user, "hunter2"))
    try:
        assert "users: 3 of 3" in tracker("sync", "import", code=1).stdout  # rows of unknown torrents are named
        assert tracker("sync", "check").stdout.count(" 0 differences") == 5
    finally:
        unit3d.sql(f"DROP USER {user}@localhost")


async def test_the_sync_on_postgresql(store: Store, own: Site) -> None:
    user = f"docs_{own.name}"
    await register(store, [7])
    own.sql("INSERT INTO members VALUES (7, 'u', 'p')", "INSERT INTO releases VALUES (1, 't', 'h')")
    names = {"users": "members", "torrents": "releases", "history": "downloads", "peers": "clients"}
    run_as_printed(own, 1, tracker=user, **names)
    try:
        await check_sync(store, own, user, read_mapping("own", OWN_MAPPING))
    finally:
        own.sql(f"DROP OWNED BY {user}", f"DROP USER {user}")
    assert own.sql("SELECT up, down FROM members") == [["400", "1000"]]
