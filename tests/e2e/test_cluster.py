"""A tracker on a cluster, as on a managed service: one prefix with a hash tag."""

import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from loadtest import trackers
from loadtest.cluster import Cluster, cluster
from tests import commands
from tests.e2e.conftest import StartTracker
from tests.e2e.test_udp import udp_url
from tests.store.harness import ALICE, BOB
from tests.waiting import until
from tracker.store.schema.keys import shard_prefixes
from tracker.store.sharding.shards import named

PREFIX = "t:{x}:"
PREFIXES = shard_prefixes("t:", 4)


@pytest.mark.long
@pytest.mark.slow
def test_two_web_processes_serve_from_a_cluster(start_tracker: StartTracker) -> None:
    """The URL names a node without the keys. They move to that node while the tracker serves."""
    with cluster() as nodes:
        other = next(node for node in nodes.nodes if node is not nodes.primary(PREFIX))
        tracker = start_tracker(
            TRACKER_REDIS__URL=other.tcp_url, TRACKER_REDIS__PREFIX=PREFIX, TRACKER_HTTP__WORKERS="2"
        )

        def join(number: int) -> object:
            return tracker.announce(peer_id=f"-TR4000-{number:012}", port=str(7000 + number))[b"complete"]

        for number in range(20):
            assert join(number) == number + 1
        nodes.move(PREFIX, other)
        for number in range(20, 40):
            assert join(number) == number + 1
        assert int(other.ask("GET", f"{PREFIX}stats:seeders")) == 40
        assert tracker.end() == 0


def test_a_tracker_does_not_start_on_a_cluster_with_the_default_prefix(tmp_path: Path) -> None:
    with cluster(primaries=1) as nodes:
        ended = trackers.run(tmp_path, "serve", TRACKER_REDIS__URL=nodes.url, **trackers.ANY_PORTS)
    assert ended.returncode == 1
    assert "TRACKER_REDIS__PREFIX needs a hash tag, as in t:{t}:" in ended.stderr


@pytest.mark.slow
def test_shards_are_spread_over_a_cluster(start_tracker: StartTracker) -> None:
    """Announces with and without users reach the node of their shard; one shard moves meanwhile."""
    with cluster() as nodes:
        tracker = start_tracker(TRACKER_REDIS__URL=nodes.url, TRACKER_REDIS__SHARDS="4", TRACKER_HTTP__WORKERS="2")

        def join(number: int) -> object:
            info_hash = f"%{number % 4:02x}" + "%00" * 19
            peer_id = f"-TR4000-{number:012}"
            return tracker.announce(info_hash=info_hash, peer_id=peer_id, port=str(7000 + number))[b"complete"]

        for number in range(20):
            assert join(number) == number // 4 + 1
        prefix = PREFIXES[2]
        other = next(node for node in nodes.nodes if node is not nodes.primary(prefix))
        nodes.move(prefix, other)
        for number in range(20, 40):
            assert join(number) == number // 4 + 1
        for each in PREFIXES:
            key = f"{each}stats:seeders"
            assert int(nodes.primary(key).ask("GET", key)) == 10
        assert tracker.end() == 0


@pytest.mark.slow
def test_a_tracker_starts_while_a_node_is_unavailable_and_names_its_shards(start_tracker: StartTracker) -> None:
    """The URL's first node is the unavailable one. Its shards are served once it is there."""
    with cluster() as nodes:
        nodes.be_patient()
        main = nodes.primary("t:{main}:")
        places = {shard: nodes.primary(prefix) for shard, prefix in enumerate(PREFIXES)}
        node = next(place for place in places.values() if place is not main)
        unavailable = [shard for shard, place in places.items() if place is node]
        node.stop()
        tracker = start_tracker(
            TRACKER_REDIS__URL=f"redis://127.0.0.1:{node.port},127.0.0.1:{main.port}/0", TRACKER_REDIS__SHARDS="4"
        )

        def join(shard: int) -> dict[bytes, Any]:
            return tracker.announce(info_hash=f"%{shard:02x}" + "%00" * 19)

        for shard in range(4):
            reply = join(shard)
            assert (b"retry in" in reply) if shard in unavailable else reply[b"complete"] == 1
        for base in (tracker.url, tracker.admin_url):
            assert ready(base) == f"degraded\nunavailable: {named(unavailable)} (the node does not answer)\n"
        node.start()
        for shard in unavailable:
            until(lambda shard=shard: b"complete" in join(shard))  # type: ignore[misc]
        until(lambda: ready(tracker.url) == "ready\n")
        main.stop()
        others = [shard for shard, place in places.items() if place is not main]
        until(lambda: "unavailable: main store" in ready(tracker.url))
        for shard in others:
            until(lambda shard=shard: b"complete" in join(shard))  # type: ignore[misc]
        assert tracker.end() == 0


@pytest.mark.slow
def test_a_tracker_starts_and_serves_without_the_main_store(start_tracker: StartTracker, tmp_path: Path) -> None:
    """Over HTTP and UDP, by several web processes. What is missing is named; when it is back, all is served."""
    with cluster() as nodes:
        nodes.be_patient()
        main = nodes.primary("t:{main}:")
        present = [shard for shard in range(4) if nodes.primary(PREFIXES[shard]) is not main]
        settings = {"TRACKER_REDIS__URL": urls(nodes), "TRACKER_REDIS__SHARDS": "4"}
        assert start_tracker(**settings).end() == 0  # which makes the store
        main.stop()
        tracker = start_tracker(**settings, TRACKER_HTTP__WORKERS="2")

        def join(shard: int) -> dict[bytes, Any]:
            return tracker.announce(info_hash=f"%{shard:02x}" + "%00" * 19)

        for shard in range(4):
            if shard in present:  # at once, or after the process has noticed which node is down
                until(lambda shard=shard: b"complete" in join(shard))  # type: ignore[misc]
                until(lambda shard=shard: announced_over_udp(udp_url(tracker), shard))  # type: ignore[misc]
            else:
                assert b"retry in" in join(shard)
                assert not announced_over_udp(udp_url(tracker), shard)
        until(lambda: "unavailable: main store (the node does not answer)" in ready(tracker.url))
        refused = trackers.run(tmp_path, "serve", **{**settings, "TRACKER_REDIS__SHARDS": "8"}, **trackers.ANY_PORTS)
        assert "the store was made with 4 shards" in refused.stderr
        main.start()
        until(lambda: ready(tracker.url) == "ready\n")
        for shard in range(4):
            until(lambda shard=shard: b"complete" in join(shard))  # type: ignore[misc]
        assert tracker.end() == 0


def urls(nodes: Cluster) -> str:
    return f"redis://{','.join(f'127.0.0.1:{node.port}' for node in nodes.nodes)}/0"


def ready(base: str) -> str:
    connection = HTTPConnection(base.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def announced_over_udp(url: str, shard: int, number: int = 999) -> bool:
    """Whether the join of a peer is answered, and not refused (BEP 15)."""
    host, _, port = url.removeprefix("udp://").partition("/")[0].rpartition(":")
    info_hash, peer_id = bytes([shard]) + bytes(19), b"-TR4000-%012d" % number
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(30)
        client.connect((host, int(port)))
        client.send(struct.pack(">QII", 0x41727101980, 0, 1))
        head = client.recv(100)[8:16], 1, 2, info_hash, peer_id
        client.send(struct.pack(">8sII20s20sQQQIIIiH", *head, 0, 0, 0, 2, 0, 7, -1, 7000 + number))
        return int.from_bytes(client.recv(2000)[:4], "big") == 1


@pytest.mark.slow
@pytest.mark.long
def test_a_tracker_starts_when_the_cluster_has_a_majority_again(tmp_path: Path) -> None:
    with cluster() as nodes:
        *down, left = nodes.nodes
        for node in down:
            node.stop()
        until(lambda: "cluster_state:fail" in str(left.ask("CLUSTER", "INFO")))
        settings = {"TRACKER_REDIS__URL": left.tcp_url, "TRACKER_REDIS__SHARDS": "4"}
        ended = trackers.run(tmp_path, "serve", "--fail-fast", **settings, **trackers.ANY_PORTS)
        assert ended.returncode == 1 and "no majority: 1 of 3 primaries answers" in ended.stderr
        with ThreadPoolExecutor(1) as threads:
            starting = threads.submit(trackers.start, tmp_path, **settings)
            until(lambda: "waiting for the store" in log_of(tmp_path))
            assert "no majority: 1 of 3 primaries answers" in log_of(tmp_path)
            assert not starting.done()
            for node in down:
                node.start()
            tracker = starting.result()
        try:
            assert tracker.announce()[b"complete"] == 1
            assert log_of(tmp_path).count("waiting for the store") == 1
        finally:
            tracker.end()


def log_of(directory: Path) -> str:
    path = directory / "log"
    return path.read_text() if path.exists() else ""


@pytest.mark.slow
def test_a_node_that_is_unavailable_affects_its_shards_only(start_tracker: StartTracker, tmp_path: Path) -> None:
    """S2, S4, T2, T10, T22: others are served, and no peer is removed there except those of users who were deleted
    meanwhile. These are refused when the node is back."""
    with cluster() as nodes:
        settings = {
            "TRACKER_REDIS__URL": nodes.primary("t:{main}:").tcp_url,
            "TRACKER_REDIS__SHARDS": "4",
            "TRACKER_USERS__PRIVATE": "required",
        }
        tracker = start_tracker(**settings)
        for user_id, passkey in (("7", ALICE), ("8", BOB)):
            added = commands.run(tmp_path, "user", "add", "--id", user_id, "--passkey", passkey, **settings)
            assert added.returncode == 0, added.stderr
        places = {shard: nodes.primary(prefix) for shard, prefix in enumerate(PREFIXES)}
        main = nodes.primary("t:{main}:")
        node = next(place for place in places.values() if place is not main)
        unavailable = [shard for shard, place in places.items() if place is node]

        def ask(shard: int, passkey: str, number: int) -> dict[bytes, Any]:
            return tracker.announce(
                passkey,
                info_hash=f"%{shard:02x}" + "%00" * 19,
                peer_id=f"-TR4000-{number:012}",
                port=str(7000 + number),
            )

        def is_served(shard: int, passkey: str, number: int) -> bool:
            return b"complete" in ask(shard, passkey, number)

        for shard in range(4):
            assert ask(shard, ALICE, 1)[b"complete"] == 1
            assert ask(shard, BOB, 2)[b"complete"] == 2
        node.stop()
        deleted = commands.run(tmp_path, "user", "delete", "7", "--yes", **settings)
        assert deleted.returncode == 0, deleted.stderr
        for shard in range(4):
            if shard in unavailable:
                assert not is_served(shard, BOB, 2)
            else:
                until(lambda shard=shard: ask(shard, BOB, 2)[b"complete"] == 1)  # type: ignore[misc]
                assert ask(shard, ALICE, 1)[b"failure reason"].startswith(b"unknown passkey")
        node.start()
        for shard in unavailable:
            until(lambda shard=shard: is_served(shard, BOB, 2))  # type: ignore[misc]
            assert ask(shard, ALICE, 1)[b"failure reason"].startswith(b"unknown passkey")
            assert ask(shard, BOB, 2)[b"complete"] == 1  # the node has lost its data, and got the users again
        assert tracker.end() == 0


@pytest.mark.slow
@pytest.mark.long
def test_two_trackers_share_the_shards_of_a_cluster(start_tracker: StartTracker) -> None:
    """S7, T10: peers of both are in the same swarms, and who falls silent is removed once. When one tracker is killed,
    the other does the background work of all shards."""
    with cluster() as nodes:
        settings = {
            "TRACKER_REDIS__URL": nodes.url,
            "TRACKER_REDIS__SHARDS": "4",
            "TRACKER_ANNOUNCE__INTERVAL_SECONDS": "1",
            "TRACKER_ANNOUNCE__MIN_INTERVAL_SECONDS": "1",
            "TRACKER_REAPER__INTERVAL_SECONDS": "30",
        }
        both = [start_tracker(name, **settings) for name in ("one", "two")]

        def ask(key: str, *words: str) -> Any:
            return nodes.primary(key).ask(words[0], key + words[1], *words[2:])

        def holders() -> set[bytes]:
            """Who has the leases of shards."""
            return {token for key in PREFIXES for token in ask(key, "HVALS", "leases:shard:tokens")}

        until(lambda: len(holders()) == 2)
        for number in range(24):
            reply = both[number % 2].announce(
                info_hash=f"%{number % 4:02x}" + "%00" * 19, peer_id=f"-TR4000-{number:012}", port=str(7000 + number)
            )
            assert reply[b"complete"] == number // 4 + 1

        def seeders() -> int:
            return sum(int(ask(key, "GET", "stats:seeders") or 0) for key in PREFIXES)

        assert seeders() == 24
        both[0].kill()
        until(lambda: seeders() == 0)
        until(lambda: len(holders()) == 1)
        main = "t:{main}:"
        assert int(nodes.primary(main).ask("GET", f"{main}stats:repairs") or 0) == 0
        assert both[1].end() == 0
