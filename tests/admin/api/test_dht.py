"""D22: the API shows the nodes of the DHT, and looks up torrents."""

from functools import partial

import pytest

from tests.admin.api.api_client import ApiClient, all_pages, program
from tests.admin.conftest import Admin, Serve
from tests.store.dht.harness import STATUS, status
from tests.store.harness import info_hash
from tracker.settings.background import DhtSettings
from tracker.settings.model import RedisSettings, Settings
from tracker.store.dht.nodes import AnnouncedHash, NodeStatus
from tracker.store.jobs.records import DHT_LOOKUP

ONE = info_hash(1)
LOOK_UP = f"/torrents/{ONE.hex()}/dht-lookup"


async def save(admin: Admin, *nodes: NodeStatus) -> None:
    for each in nodes:
        await admin.store.dht_nodes.save_status(each)


def now(admin: Admin) -> int:
    return int(admin.clock())


async def test_the_nodes_of_all_trackers_are_shown(reader: ApiClient, admin: Admin) -> None:
    assert await reader.get("/dht") == {"items": []}
    at = now(admin)
    other = status(name="other", ids={6: b"b" * 20}, participation=None, saved=at - 3600, mode="all")
    await save(admin, status(started=at - 100, saved=at, last_answer=at - 5), other)
    host, stopped = (await reader.get("/dht"))["items"]
    assert host == {
        "name": "host.example",
        "state": "up",
        "torrents": "public",
        "started": at - 100,
        "saved": at,
        "last_answer": at - 5,
        "ipv4": {"id": (b"a" * 20).hex(), "external_address": "192.0.2.1", "nodes": 82, "buckets": {"0": 80, "17": 2}},
        "ipv6": {"id": (b"b" * 20).hex(), "external_address": "", "nodes": 0, "buckets": {}},
        "hashes": 3,
        "peers": 7,
        "packets_in": 11,
        "packets_out": 12,
        "bytes_in": 1300,
        "bytes_out": 1400,
        "dropped": dict(STATUS.dropped),
        "lookups": dict(STATUS.lookups),
        "participation": {
            "registered": 40,
            "looked_at": 40,
            "torrents": 1,
            "advice": "set TRACKER_DHT__TORRENTS=all to include torrents of unknown privacy",
        },
    }
    assert (stopped["name"], stopped["state"], stopped["torrents"]) == ("other", "stopped", "all")
    assert stopped["ipv4"] is None and stopped["participation"] is None


async def test_a_lookup_is_a_job(full: ApiClient, reader: ApiClient, admin: Admin) -> None:
    await full.ask("POST", LOOK_UP, 404)
    await admin.store.torrents.add(ONE, {"private": "0"})
    assert "runs a node" in (await full.ask("POST", LOOK_UP, 409))["detail"]
    await save(admin, status(saved=now(admin)))
    await reader.ask("POST", LOOK_UP, 403)
    queued = await full.ask("POST", LOOK_UP, 202)
    job = await full.get(f"/jobs/{queued['id']}")
    assert (job["queue"], job["max_retries"]) == (DHT_LOOKUP, 0)
    assert job["payload"] == f'{{"info_hash":"{ONE.hex()}"}}'
    again = await full.ask("POST", LOOK_UP, 202)
    assert again == {"id": queued["id"], "new": False}


@pytest.mark.parametrize(("mode", "code"), [("public", 409), ("all", 202)])
async def test_a_torrent_of_unknown_privacy_is_looked_up_only_where_all_take_part(
    full: ApiClient, admin: Admin, mode: str, code: int
) -> None:
    await admin.store.torrents.add(ONE)
    await save(admin, status(saved=now(admin), mode=mode))
    await full.ask("POST", LOOK_UP, code)


async def test_results_are_in_the_torrents_rows(reader: ApiClient, admin: Admin) -> None:
    at = now(admin)
    for number in range(1, 6):
        await admin.store.torrents.add(info_hash(number), {"private": "0"})
    await admin.store.dht_torrents.save_result(info_hash(2), (3, 8), at - 50, all_torrents=False)
    await admin.store.dht_torrents.save_result(info_hash(4), None, at, all_torrents=False)
    rows = await all_pages(reader, "/dht/lookups", limit=1)
    assert [(row["info_hash"], row["dht_seeds"], row["dht_peers"], row["dht_at"]) for row in rows] == [
        (info_hash(4).hex(), None, None, None),
        (info_hash(2).hex(), 3, 8, at - 50),
    ]
    shown = await reader.get(f"/torrents/{info_hash(2).hex()}")
    assert (shown["dht_seeds"], shown["dht_peers"], shown["dht_at"]) == (3, 8, at - 50)


async def test_announced_hashes_are_listed_by_peers_or_distance(reader: ApiClient, admin: Admin) -> None:
    at = now(admin)
    await save(admin, status(saved=at, mode="any"))
    rows = [AnnouncedHash(info_hash(number), 1, number, at) for number in (1, 2, 3)]
    await admin.store.dht_nodes.save_hashes(STATUS.name, rows)
    found = await all_pages(reader, "/dht/hashes", limit=2)
    assert [row["peers"] for row in found] == [3, 2, 1]
    assert found[0] == {"info_hash": info_hash(3).hex(), "seeders": 1, "peers": 3, "announced_at": at}
    nearest = await reader.get(f"/dht/hashes?near={ONE.hex()}&limit=1")
    assert (nearest["total"], nearest["items"][0]["info_hash"]) == (3, ONE.hex())
    await reader.ask("GET", "/dht/hashes?near=x", 422)


async def test_the_health_of_the_node_is_shown(serve: Serve, prefix: str) -> None:
    """It does not affect readiness."""
    admin = await serve(Settings(redis=RedisSettings(prefix=prefix), dht=DhtSettings(enabled=True)))
    async with program(admin, "read") as reader:
        assert (await reader.get("/health"))["dht"] == "waiting"
        for up, health in ((1, "up"), (0, "down")):
            admin.telemetry.gauge("dht_up", partial(int, up))
            found = await reader.get("/health")
            assert (found["dht"], found["ready"]) == (health, True)
