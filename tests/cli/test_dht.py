"""``tracker dht``: a command asks a running tracker's node, and finds who has a torrent."""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from loadtest import trackers
from tests.commands import Command
from tests.frontends.dht.harness import linux_only, serving
from tests.store.dht.harness import status
from tests.store.harness import START, Clock, Store, info_hash
from tracker.app.dht import ping_node, some_nodes
from tracker.frontends.dht import server
from tracker.settings.background import DhtSettings
from tracker.store.dht.nodes import AnnouncedHash, SavedNode
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

ON = {
    "TRACKER_DHT__ENABLED": "true",
    "TRACKER_DHT__LISTEN": "127.0.0.1:0",
    "TRACKER_DHT__NAME": "host",
    "TRACKER_DHT__PRIVATE_ADDRESSES": "true",
}
HASH = "01" * 20


@pytest.mark.slow
@pytest.mark.usefixtures("own_interpreter")
def test_a_torrent_is_found_in_the_dht(
    tracker: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str, prefix: str
) -> None:
    assert "no node of the DHT" in tracker("dht", "status").stderr
    tracker("torrent", "add", HASH)
    tracker("torrent", "edit", HASH, "--public")
    running = trackers.start(tmp_path, **ON, TRACKER_REDIS__URL=redis_url, TRACKER_REDIS__PREFIX=prefix)
    found = re.search(r"^ +dht +127\.0\.0\.1:(\d+)$", running.banner, re.MULTILINE)
    assert found, running.banner
    running.announce()
    assert "answered after" in tracker("dht", "ping", f"127.0.0.1:{found[1]}").stdout
    for name, value in ON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TRACKER_DHT__LISTEN", f"127.0.0.1:{found[1]}")
    shown = json.loads(tracker("dht", "find", HASH, "--json").stdout)
    assert (shown["seeders"], shown["endpoints"]) == (1, ["127.0.0.1:6881"])
    assert "127.0.0.1:6881" in tracker("dht", "find", HASH).stdout
    running.end()
    assert "no answer" in tracker("dht", "ping", f"127.0.0.1:{found[1]}", code=1).stderr
    assert "host" in tracker("dht", "status").stdout
    saved = json.loads(tracker("dht", "status", "--json").stdout)
    assert len(saved["id4"]) == 40 and saved["state"] in ("starting", "up")
    assert saved["torrents"] == "1 of 1 registered torrents take part"


def test_a_lookup_pings_some_of_the_saved_nodes_only() -> None:
    """Those of all nodes on the store, each once."""
    packed = [number.to_bytes(20, "big") + bytes((10, 0, number, 1)) + b"\1\1" for number in range(200)]
    saved = [SavedNode(nodes={4: b"".join(packed[start : start + 120])}) for start in (0, 80)]
    found = some_nodes(saved, 4)
    assert len(set(found)) == 64 and {b"".join(each) for each in found} <= set(packed)
    assert some_nodes(saved, 6) == []
    assert len(some_nodes([SavedNode(nodes={4: packed[0]})], 4)) == 1


def on_store(url: str, prefix: str, work: Callable[[Store], Awaitable[object]]) -> None:
    """Runs ``work`` on the store, as a tracker would."""

    async def inside() -> None:
        store = Store(url, Keys(prefix), SwarmRules(), Clock())
        try:
            await work(store)
        finally:
            await store.connection.close()

    asyncio.run(inside())


def test_the_status_of_each_node_is_shown(tracker: Command, redis_url: str, prefix: str) -> None:
    at = int(time.time())

    async def save(store: Store) -> None:
        for name in ("host", "other"):
            shown = status(name=name, started=at - 60, saved=at, last_answer=at - 1)
            await store.dht_nodes.save_status(shown)

    on_store(redis_url, prefix, save)
    lines = [" ".join(line.split()) for line in tracker("dht", "status").stdout.splitlines()]
    assert lines.count("state up") == 2
    for line in ("name host", "buckets4 0:80 17:2", "nodes4 82", "packets in 11", "looked up 0 torrents"):
        assert line in lines
    assert "TRACKER_DHT__TORRENTS=all" in " ".join(lines)
    as_json = tracker("dht", "status", "--json").stdout
    assert [json.loads(line)["name"] for line in as_json.splitlines()] == ["host", "other"]


def test_announced_hashes_are_listed(tracker: Command, redis_url: str, prefix: str) -> None:
    async def save(store: Store) -> None:
        await store.dht_nodes.save_tables("host", {})
        rows = [AnnouncedHash(info_hash(number), 1, number, START) for number in (1, 2, 3)]
        await store.dht_nodes.save_hashes("host", rows)

    on_store(redis_url, prefix, save)
    lines = tracker("dht", "hashes").stdout.splitlines()
    assert [line.split("\t")[:3] for line in lines] == [
        [info_hash(number).hex(), "1", str(number)] for number in (3, 2, 1)
    ]
    nearest = json.loads(tracker("dht", "hashes", info_hash(1).hex(), "--limit", "1", "--json").stdout)
    assert nearest == {"info_hash": info_hash(1).hex(), "seeders": 1, "peers": 1, "announced_at": START}
    tracker("dht", "hashes", "x", code=1)


def test_the_last_result_is_in_the_torrents_row(tracker: Command, redis_url: str, prefix: str) -> None:
    torrent = info_hash(1)
    tracker("torrent", "add", torrent.hex())
    tracker("torrent", "edit", torrent.hex(), "--public")

    async def save(store: Store) -> None:
        await store.dht_torrents.save_result(torrent, (3, 8), START, all_torrents=False)

    on_store(redis_url, prefix, save)
    row = json.loads(tracker("torrent", "show", torrent.hex(), "--json").stdout)
    assert (row["dht_seeds"], row["dht_peers"], row["dht_at"]) == (3, 8, START)


def test_a_lookup_says_that_the_dht_is_off(tracker: Command) -> None:
    assert "TRACKER_DHT__ENABLED=true" in tracker("dht", "find", HASH, code=1).stderr


def test_a_torrent_without_part_is_not_asked_for(tracker: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_DHT__ENABLED", "true")
    tracker("torrent", "add", HASH, "--private")
    for wanted in (HASH, "02" * 20):
        assert "does not take part" in tracker("dht", "find", wanted, code=1).stderr


def test_a_silent_node_is_named(tracker: Command) -> None:
    tracker("dht", "ping", "nothing", code=2)
    assert "the host is not known" in tracker("dht", "ping", "nothing.invalid:1", code=1).stderr
    assert "the host is not known" in tracker("dht", "ping", "a..b:1", code=1).stderr


@linux_only
async def test_a_ping_is_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time that is shown would be mostly that until the next tick."""
    monkeypatch.setattr(server, "TICK_SECONDS", 3600)
    async with serving() as served:
        seconds = await ping_node(DhtSettings(), f"127.0.0.1:{served.address[1]}")
    assert seconds is not None
