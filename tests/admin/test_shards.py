"""Every page and every list of the API on a store with four shards (row S10): on one server, and on a cluster."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from loadtest.cluster import Cluster
from tests.admin.api.api_client import program
from tests.admin.conftest import PATIENCE, Admin, running_admin
from tests.admin.pages.test_pages import PATHS
from tests.admin.test_routes import SKIPPED, with_routes
from tests.store.harness import ALICE, update
from tests.store.sharding.harness import SHARDS, hash_in
from tests.waiting import in_background
from tracker.admin.auth.auth import SAFE_METHODS
from tracker.admin.context import StreamLimits
from tracker.runtime.store import open_connection
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.site import AdminSettings
from tracker.store.work.records import NewItem, Project

HASHES = [hash_in(number % SHARDS, number) for number in range(10)]


@pytest.fixture
async def admin(nodes: Cluster | None, redis_url: str, prefix: str) -> AsyncIterator[Admin]:
    """Ten torrents; torrent ``n`` has ``n`` leechers."""
    url = redis_url if nodes is None else nodes.url
    redis = RedisSettings(prefix=prefix, shards=SHARDS, connect_timeout_seconds=PATIENCE)
    settings = Settings(redis=redis, admin=AdminSettings(listen=("127.0.0.1:0",)))
    async with (
        open_connection(url, redis, PATIENCE) as (connection, _),
        running_admin(settings, connection, prefix, StreamLimits()) as admin,
        in_background(admin.store.swarms.run()),
    ):
        store = admin.store
        for reaping in store.reapings.values():
            await reaping.heartbeat()
        for number, info_hash in enumerate(HASHES):
            await store.torrents.add(info_hash, {"name": f"name {number}", "private": "0"})
            for peer in range(number):
                await store.swarms.announce(update(peer, "s", info_hash=info_hash))
        yield admin


@pytest.mark.parametrize("path", PATHS)
async def test_every_page_is_shown(admin: Admin, path: str) -> None:
    async with admin.browser() as browser, browser.get(path) as response:
        assert response.status == 200, await response.text()


async def test_every_route_of_the_pages_and_the_api_answers(admin: Admin) -> None:
    """Those that change something without the fields that they need, which nothing but the store may object to."""
    store = admin.store
    await store.users.add("7", ALICE)
    await store.work.projects.create(Project("proj", kind="seeding", verify="announce", keep_done_days=1))
    await store.work.items.add("proj", [NewItem(info_hash.hex()) for info_hash in HASHES])
    await store.jobs.enqueue("sweep", {})
    values = {
        "info_hash": HASHES[6].hex(),
        "user_id": "7",
        "project": "proj",
        "board": "countries",
        "name": "announces",
        "prefix": "-TR40",
        "set": "active",
    }
    found = await with_routes(admin, values)
    found.sort(key=lambda route: (route[0] not in SAFE_METHODS, route[0] == "DELETE"))
    served = 0
    async with admin.client("admin") as program, admin.browser("admin") as browser:
        for method, route, path in found:
            if route in SKIPPED:
                continue
            session = program if path.startswith("/api") else browser
            async with session.request(method, path, allow_redirects=False) as response:
                assert response.status < 500, (method, path, await response.text())
                served += response.status < 400
    assert served > 80


async def test_every_list_of_the_api_is_read(admin: Admin) -> None:
    async with admin.client("admin") as client:
        async with client.get("/api/openapi.json") as response:
            document = await response.json()
        lists = [path for path, methods in document["paths"].items() if "get" in methods and "{" not in path]
        assert len(lists) > 20
        for path in lists:
            async with client.get(path if path.startswith("/api") else f"/api/v1{path}") as response:
                assert response.status in (200, 409, 422), (path, await response.text())


async def test_lists_hold_the_torrents_of_all_shards(admin: Admin) -> None:
    async with program(admin, "admin") as asking:
        page = await asking.ask("GET", "/torrents?sort=leechers&limit=4", 200)
        assert [row["leechers"] for row in page["items"]] == [9, 8, 7, 6]
        assert page["total"] == 10
        found: list[str] = []
        cursor: Any = ""
        while cursor is not None:
            page = await asking.ask("GET", f"/torrents?q=name&limit=3&cursor={cursor}", 200)
            found += [row["info_hash"] for row in page["items"]]
            cursor = page["next_cursor"]
        assert sorted(found) == sorted(info_hash.hex() for info_hash in HASHES)


async def test_one_torrent_is_shown_edited_and_deleted(admin: Admin) -> None:
    info_hash = HASHES[7].hex()
    async with program(admin, "admin") as asking, admin.browser() as browser:
        assert (await asking.ask("GET", f"/torrents/{info_hash}", 200))["leechers"] == 7
        assert len((await asking.ask("GET", f"/torrents/{info_hash}/peers", 200))["items"]) == 7
        async with browser.get(f"/torrents/{info_hash}") as response:
            assert response.status == 200 and "name 7" in await response.text()
        await asking.ask("PATCH", f"/torrents/{info_hash}", 200, json={"name": "renamed"})
        assert (await asking.ask("GET", f"/torrents/{info_hash}", 200))["name"] == "renamed"
        await asking.ask("DELETE", f"/torrents/{info_hash}", 204)


async def test_the_overview_and_the_metrics_have_the_sums(admin: Admin) -> None:
    async with admin.client("read") as client, client.get("/metrics") as response:
        text = await response.text()
    assert 'tracker_peers{state="leecher"} 45' in text
    assert "tracker_torrents 10" in text
