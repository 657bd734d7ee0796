"""D22: the page of the DHT shows nodes, traffic, the last answer and lookups."""

import aiohttp
import pytest

from tests.admin.conftest import Admin, Serve
from tests.admin.pages.page import Page, get, post_form, send
from tests.store.dht.harness import STATUS, status
from tests.store.harness import info_hash
from tracker.settings.background import DhtSettings
from tracker.settings.model import RedisSettings, Settings
from tracker.store.dht.nodes import AnnouncedHash, NodeStatus
from tracker.store.jobs.records import DHT_LOOKUP

ONE = info_hash(1)


@pytest.fixture
async def admin(serve: Serve, prefix: str) -> Admin:
    """Of a tracker whose node is ``STATUS``."""
    dht = DhtSettings(enabled=True, name=STATUS.name)
    return await serve(Settings(redis=RedisSettings(prefix=prefix), dht=dht))


async def shown(admin: Admin, browser: aiohttp.ClientSession, node: NodeStatus) -> Page:
    await admin.store.dht_nodes.save_status(node)
    return await get(browser, "/dht")


def now(admin: Admin) -> int:
    return int(admin.clock())


def running(admin: Admin, **changes: object) -> NodeStatus:
    at = now(admin)
    return status(**{"started": at - 100, "saved": at, "last_answer": at - 7, **changes})


async def test_a_node_is_shown(admin: Admin, reader: aiohttp.ClientSession) -> None:
    page = await shown(admin, reader, running(admin))
    tiles = [each.text for each in page.all("div", **{"class": "tile"})]
    assert tiles == [
        "Nodes over IPv4 82",
        "Nodes over IPv6 0",
        "Announced torrents 3 7 peers",
        "Lookups 6 5 answered",
        "Last answer 7 s ago of another node",
    ]
    for text in ((b"a" * 20).hex(), "192.0.2.1", "unknown until other nodes report it", "host.example up"):
        assert text in page.text
    rows = [each.text for each in page.all("tr")]
    for row in ("Received 11 1.3 KiB", "Sent 12 1.4 KiB", "Dropped: port 0 1 –", "0 80 0", "17 2 0"):
        assert row in rows
    assert "1 of 40 registered torrents take part: set TRACKER_DHT__TORRENTS=all" in page.text


async def test_every_node_on_the_store_is_shown(admin: Admin, reader: aiohttp.ClientSession) -> None:
    await shown(admin, reader, running(admin))
    page = await shown(admin, reader, running(admin, name="other", ids={6: b"c" * 20}, buckets={6: {3: 1}}))
    assert "host.example up" in page.text and "other up" in page.text
    assert "no IPv4 socket" in page.text and (b"c" * 20).hex() in page.text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"last_answer": None}, "No node of the DHT has answered since the start. Open its UDP port"),
        ({"last_answer": 5}, "No node of the DHT has answered for more than a minute"),
        ({"saved": 5}, "This node has stopped"),
        ({"participation": None}, "not counted yet"),
        ({"buckets": {}}, "No nodes are known"),
        ({"buckets": {}}, "this node keeps none, as their addresses are private"),
    ],
)
async def test_what_is_wrong_is_one_sentence(
    admin: Admin, reader: aiohttp.ClientSession, changes: dict[str, object], says: str
) -> None:
    assert says in (await shown(admin, reader, running(admin, **changes))).text


async def test_a_new_node_looks_for_others(admin: Admin, reader: aiohttp.ClientSession) -> None:
    assert "has not saved its status yet" in (await get(reader, "/dht")).text
    page = await shown(admin, reader, running(admin, started=now(admin) - 1, last_answer=None))
    assert "looks for other nodes" in page.text and "never" in page.text


async def test_without_a_node_one_sentence_says_so(serve: Serve) -> None:
    other = await serve()
    async with other.browser("read") as reader:
        page = await get(reader, "/dht")
        assert "The DHT is off" in page.text and "TRACKER_DHT__ENABLED=true" in page.text
        assert "The node of this tracker is off" in (await shown(other, reader, running(other))).text


async def test_lookups_are_shown_latest_first(admin: Admin, reader: aiohttp.ClientSession) -> None:
    assert "No torrent has been looked up yet" in (await shown(admin, reader, running(admin))).text
    for number in (1, 2):
        await admin.store.torrents.add(info_hash(number), {"private": "0", "name": f"film {number}"})
    at = now(admin)
    await admin.store.dht_torrents.save_result(ONE, (3, 8), at - 60, all_torrents=False)
    await admin.store.dht_torrents.save_result(info_hash(2), None, at, all_torrents=False)
    page = await get(reader, "/dht")
    assert page.torrents == [info_hash(2).hex(), ONE.hex()]
    rows = [each.text for each in page.all("tr")]
    assert "film 1 0 3 8 1 min ago 1 min ago" in rows and "film 2 0 – – no answer now" in rows


async def test_announced_torrents_are_shown(admin: Admin, reader: aiohttp.ClientSession) -> None:
    assert "No torrent is announced" in (await shown(admin, reader, running(admin))).text
    await admin.store.torrents.add(ONE, {"private": "0", "name": "film"})
    rows = [AnnouncedHash(info_hash(number), 1, number, now(admin) - 60) for number in (1, 2)]
    await admin.store.dht_nodes.save_hashes(STATUS.name, rows)
    page = await get(reader, "/dht")
    found = [each.text for each in page.all("tr")]
    assert f"{info_hash(2).hex()} 1 2 1 min ago" in found and "film 1 1 1 min ago" in found
    assert page.torrents == [ONE.hex()] and "2 torrents announced by other nodes" in page.text


async def test_values_are_live(admin: Admin, reader: aiohttp.ClientSession) -> None:
    """htmx asks for the part every few seconds."""
    page = await shown(admin, reader, running(admin))
    assert page.one("div", id="dht").attributes["hx-trigger"] == "every 5s"
    await admin.store.dht_nodes.save_status(running(admin, packets_in=4711))
    part = await get(reader, "/dht", part=True)
    assert not part.all("h1") and "Received 4,711" in part.text


async def test_a_torrent_is_looked_up_now(
    admin: Admin, browser: aiohttp.ClientSession, reader: aiohttp.ClientSession
) -> None:
    here = f"/torrents/{ONE.hex()}"
    await admin.store.torrents.add(ONE, {"private": "0"})
    assert f"{here}/dht-lookup" in (await get(browser, here)).changes
    assert f"{here}/dht-lookup" not in (await get(reader, here)).changes
    refused = await send(browser, f"{here}/dht-lookup", status=422)
    assert "runs a node of the DHT" in refused.text
    await admin.store.dht_nodes.save_status(running(admin))
    assert "Lookup in the DHT queued" in (await post_form(browser, f"{here}/dht-lookup")).text
    assert (await admin.store.jobs.sizes(DHT_LOOKUP))["pending"] == 1
    await admin.store.dht_torrents.save_result(ONE, (3, 8), now(admin) - 60, all_torrents=False)
    assert "3 seeders, 8 peers, 1 min ago" in (await get(reader, here)).text
