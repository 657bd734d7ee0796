"""The admin port while a node of the store's cluster is unavailable: pages and replies go on, and name what is
missing."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr

from loadtest.cluster import Cluster, Node, cluster
from tests.admin.api.api_client import program
from tests.admin.conftest import Admin, running_admin
from tests.admin.pages.test_live import listening
from tests.admin.pages.test_pages import PATHS
from tests.store.harness import ALICE, update
from tests.store.sharding.harness import SHARDS, hash_in
from tests.waiting import in_background
from tracker.admin.context import StreamLimits
from tracker.runtime.store import open_connection
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import UserSettings
from tracker.settings.site import AdminSettings, ChangeSettings
from tracker.store.schema.keys import shard_prefixes
from tracker.store.sharding.shards import named

TIMEOUT = 20.0
HASHES = [hash_in(number % SHARDS, number) for number in range(2 * SHARDS)]


@pytest.fixture
def group() -> Iterator[Cluster]:
    with cluster() as group:
        group.be_patient()
        yield group


def places_in(group: Cluster) -> tuple[Node, list[Node]]:
    """The nodes of the main prefix and of each shard."""
    return group.primary("t:{main}:"), [group.primary(each) for each in shard_prefixes("t:", SHARDS)]


@asynccontextmanager
async def filled(group: Cluster) -> AsyncIterator[Admin]:
    """The admin port of a store with torrents in all shards."""
    main, _ = places_in(group)
    redis = RedisSettings(url=SecretStr(main.tcp_url), shards=SHARDS, connect_timeout_seconds=TIMEOUT)
    settings = Settings(
        redis=redis,
        changes=ChangeSettings(max_entries=100),
        admin=AdminSettings(listen=("127.0.0.1:0",)),
        users=UserSettings(private="optional"),
    )
    async with (
        open_connection(main.tcp_url, redis, TIMEOUT) as (connection, _),
        running_admin(settings, connection, redis.prefix, StreamLimits()) as admin,
        in_background(admin.store.swarms.run()),
    ):
        await admin.store.upgrade()
        for reaping in admin.store.reapings.values():
            await reaping.heartbeat()
        await admin.store.users.add("7")
        for info_hash in HASHES:
            await admin.store.torrents.add(info_hash, {"name": "name"})
            await admin.store.swarms.announce(update(1, "s", info_hash=info_hash))
        yield admin


@pytest.fixture
async def without_node(group: Cluster) -> AsyncIterator[tuple[Admin, list[int]]]:
    """The admin port, and the shards whose node was killed."""
    main, places = places_in(group)
    async with filled(group) as admin:
        node = next(each for each in places if each is not main)
        node.kill()
        await admin.store.torrents.count()
        yield admin, [number for number, place in enumerate(places) if place is node]


@pytest.mark.slow
async def test_replies_name_the_shards_that_they_leave_out(without_node: tuple[Admin, list[int]]) -> None:
    admin, unavailable = without_node
    present = [each.hex() for each in HASHES if admin.store.shards.of(each).number not in unavailable]
    missing = next(each.hex() for each in HASHES if each.hex() not in present)
    async with program(admin, "admin") as asking:
        page = await asking.ask("GET", "/torrents?sort=leechers", 200)
        assert sorted(row["info_hash"] for row in page["items"]) == sorted(present)
        assert (page["total"], page["shards_unavailable"]) == (len(present), unavailable)
        statistics = await asking.ask("GET", "/statistics", 200)
        assert statistics["shards_unavailable"] == unavailable
        changes = await asking.ask("GET", "/changes", 200)
        assert (changes["items"], changes["next"], changes["shards_unavailable"]) == ([], "0", unavailable)
        health = await asking.ask("GET", "/health", 200)
        assert (health["ready"], health["shards_unavailable"], health["main_unavailable"]) == (True, unavailable, False)
        assert "shards_unavailable" not in await asking.ask("GET", "/tokens", 200)
        torrent = await asking.ask("GET", f"/torrents/{present[0]}", 200)
        assert (torrent["leechers"], torrent["shards_unavailable"]) == (
            1,
            unavailable,
        )  # its rank is one of all torrents
        refused = await asking.ask("GET", f"/torrents/{missing}", 503)
        assert refused["detail"] == f"unavailable: {named(unavailable)} (the node does not answer); try again later"


@pytest.mark.slow
async def test_every_page_and_list_is_shown_without_a_shard(without_node: tuple[Admin, list[int]]) -> None:
    admin, unavailable = without_node
    notice = f"<span data-store-notices-text>unavailable: {named(unavailable)}"
    async with admin.browser() as browser:
        for path in PATHS:
            async with browser.get(path) as response:
                text = await response.text()
                assert response.status == 200, (path, text)
                assert notice in text, path
    async with admin.client("admin") as client:
        async with client.get("/api/openapi.json") as response:
            document = await response.json()
        for path, methods in document["paths"].items():
            if "get" in methods and "{" not in path:
                async with client.get(path) as response:
                    text = await response.text()
                if path in ("/api/v1/peers", "/api/v1/user-torrents"):
                    # One shard after the other, up to the first that is unavailable; rows of users need all.
                    assert response.status == 503 or json.loads(text.splitlines()[-1])["error"], text
                else:
                    is_export = path.startswith(("/api/v1/torrents/csv", "/api/v1/torrents/json-lines"))
                    assert response.status in ((503,) if is_export else (200, 409, 422)), (path, text)
        async with client.get("/metrics") as response:
            text = await response.text()
        assert f"tracker_shards_unavailable {len(unavailable)}" in text and "tracker_store_up 1" in text
        others = {shard.connection.master for shard in admin.store.shards if shard.number not in unavailable}
        shown = set(re.findall(r'^tracker_store_memory_bytes\{node="([^"]*)"\}', text, re.MULTILINE))
        assert shown == {*others, admin.store.connection.master}
        async with client.get("/ready") as response:
            assert await response.text() == f"degraded\nunavailable: {named(unavailable)} (the node does not answer)\n"


WITHOUT_MAIN = """
/torrents /torrents/{torrent} /torrents/{torrent}/peers /users/9 /users/9/torrents/active /statistics /groups
/multipliers /changes /scores /denials /health /doctor /settings /hit-and-runs/pending
"""
NEED_MAIN = "/tokens /queues /work/projects /dht /audit /users /users/7"


@pytest.mark.slow
async def test_torrents_peers_and_users_are_shown_without_the_main_store(group: Cluster) -> None:
    """Sessions and tokens hold. What needs the main store says so."""
    main, places = places_in(group)
    cause = "unavailable: main store (the node does not answer)"
    async with filled(group) as admin, program(admin, "admin") as asking, admin.browser() as browser:
        served = [number for number, place in enumerate(places) if place is not main]
        present = next(each for each in HASHES if admin.store.shards.of(each).number in served)
        await admin.store.users.add("9", ALICE)
        await admin.store.multipliers.set("2", "1")
        of_alice = update(7, "s", info_hash=present, passkey=ALICE, uploaded=0)
        await admin.store.swarms.announce(of_alice)
        main.kill()
        await admin.store.torrents.count()
        assert cause in admin.store.shards.notices()
        for path in WITHOUT_MAIN.format(torrent=present.hex()).split():
            await asking.ask("GET", path, 200)
        statistics = await asking.ask("GET", "/statistics", 200)
        counted = sum(admin.store.shards.of(each).number in served for each in HASHES)
        assert (statistics["totals"]["leechers"], statistics["main_unavailable"]) == (counted + 1, True)
        user = await asking.ask("GET", "/users/9", 200)
        assert (user["enabled"], user["torrents"]["active"], user["main_unavailable"]) == (True, 1, True)
        assert (await asking.ask("GET", "/multipliers", 200))["upload_multiplier"] == 2
        for path in NEED_MAIN.split():
            assert cause in (await asking.ask("GET", path, 503))["detail"], path
        for path in ("/", "/torrents", f"/torrents/{present.hex()}", "/users/9", "/doctor", "/settings"):
            async with browser.get(path) as response:
                text = await response.text()
                assert (response.status, cause in text) == (200, True), (path, text)
        async with browser.get("/tokens") as response:
            assert (response.status, cause in await response.text()) == (503, True)
        async with admin.client("admin") as client, client.get("/metrics") as response:
            text = await response.text()
        assert "tracker_store_up 1" in text and f'tracker_peers{{state="leecher"}} {counted + 1}' in text
        assert "tracker_store_events_total" not in re.sub("(?m)^#.*", "", text)


@pytest.mark.slow
async def test_an_open_overview_stays_ready_while_only_the_main_store_is_unavailable(group: Cluster) -> None:
    """As /ready does: announces are served. The page names what is unavailable."""
    main, _ = places_in(group)
    async with filled(group) as admin, admin.browser() as browser, listening(browser) as stream:
        await stream.until("figures")
        main.kill()
        await admin.store.torrents.count()
        data = await stream.until("figures")
        while not data["notices"]:
            data = await stream.until("figures")
        assert (data["problems"], data["texts"]["announces"]) == ([], "–")
        assert data["notices"] == admin.store.shards.notices()
        assert data["notices"][-1] == "unavailable: main store (the node does not answer)"
