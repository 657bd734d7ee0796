"""docs/cluster.md, command by command: from the private store to a cluster of three nodes, then four; back, failover,
backup and restore."""

import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from loadtest import trackers
from loadtest.cluster import Cluster, Node, cluster
from loadtest.servers import ROOT, SYSTEM_REDIS
from tests.e2e.conftest import StartTracker
from tests.waiting import until

PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
BLOCKS = "".join(re.findall(r"^```.*?^```", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^((?:redis-cli|tracker) .+)$", BLOCKS, re.MULTILINE)
CLI = shutil.which("redis-cli")
needs_cli = pytest.mark.skipif(CLI is None, reason="no redis-cli")
PEERS, HASHES = 24, 12


class Operator:
    """Runs the commands of the page on nodes of loopback. ``home`` is the folder of the tracker."""

    def __init__(self, nodes: Cluster, home: Path) -> None:
        self.nodes = nodes
        self.home = home

    def on_loopback(self, command: str, id: str) -> str:
        """The command for the nodes of this test: 10.0.0.1 is the first."""
        for number, node in enumerate(self.nodes.nodes, 1):
            command = command.replace(f"10.0.0.{number}:6379", f"127.0.0.1:{node.port}")
            command = command.replace(f"-h 10.0.0.{number} ", f"-h 127.0.0.1 -p {node.port} ")
        return re.sub(r"\bID\b", id, command)

    def run(self, start: str, id: str = "", **settings: str) -> str:
        """Runs this command of the page, or those that begin so; returns what they print."""
        found = [start] if start in COMMANDS else [command for command in COMMANDS if command.startswith(start)]
        assert found, f"the page has no such command: {start}"
        output = ""
        for command in found:
            ended = self._run(command, id, settings)
            assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
            assert "ERR" not in ended.stdout, (command, ended.stdout)
            output += ended.stdout
        return output

    def _run(self, command: str, id: str, settings: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        words = shlex.split(self.on_loopback(command, id))
        if words[0] == "tracker":
            yes = ("--yes",) if words[1] == "reshard" else ()
            return trackers.run(self.home, *words[1:], *yes, **settings)
        self.nodes.wait_for_agreement()
        return subprocess.run(words, cwd=self.home, capture_output=True, text=True, timeout=120, check=False)

    def reshard(self, start: str, **settings: str) -> str:
        """The same, as soon as the heartbeat of the tracker that was stopped is old enough."""
        command = next(command for command in COMMANDS if command.startswith(start))

        def is_stopped() -> bool:
            ended = self._run(f"{command} --dry-run", "", settings)
            assert ended.returncode == 0 or "seconds ago" in ended.stderr, ended.stderr
            return ended.returncode == 0

        until(is_stopped)
        return self.run(start, **settings)


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with cluster(primaries=3) as nodes:
        (home := tmp_path / "tracker").mkdir()
        yield Operator(nodes, home)


def join(tracker: trackers.RunningTracker, number: int, **changes: str) -> dict[bytes, Any]:
    return tracker.announce(
        info_hash=f"%{number % HASHES * 21:02x}" + "%00" * 19,
        peer_id=f"-TR4000-{number:012}",
        port=str(7000 + number),
        **changes,
    )


def check_all_known(tracker: trackers.RunningTracker) -> None:
    """As soon as it is served, each swarm has all its peers, and each peer is known."""

    def count(number: int) -> object:
        replies: list[dict[bytes, Any]] = [{}]

        def is_served() -> bool:
            replies.append(join(tracker, number, event=""))
            return b"complete" in replies[-1]

        until(is_served)
        return replies[-1][b"complete"]

    assert [count(number) for number in range(PEERS)] == [PEERS // HASHES] * PEERS


@needs_cli
@pytest.mark.long
@pytest.mark.timeout(600)
def test_from_the_private_store_to_a_cluster_that_grows(start_tracker: StartTracker, operator: Operator) -> None:
    """Peers are the same after each step. While slots move, announces are answered, or refused for a second."""
    nodes = operator.nodes
    tracker = start_tracker()
    for number in range(PEERS):
        join(tracker, number)
    assert tracker.end() == 0
    operator.run("tracker backup")
    assert "All 16384 slots covered" in operator.run("redis-cli --cluster check")
    printed = operator.reshard("tracker reshard --url")
    assert re.search(rf"^torrents +{HASHES} before +{HASHES} after$", printed, re.MULTILINE), printed
    settings = {"TRACKER_REDIS__URL": nodes.url, "TRACKER_REDIS__SHARDS": "64"}
    tracker = start_tracker(**settings)
    check_all_known(tracker)
    doctored = trackers.run(operator.home, "doctor", **settings)
    assert "64" in doctored.stdout or doctored.returncode in (0, 1)

    fourth = nodes.add_node(join=False)
    operator.run("redis-cli --cluster add-node 10.0.0.4:6379")
    nodes.until(lambda: all(fourth.id in node.ask("CLUSTER", "NODES").decode() for node in nodes.nodes))
    refused = move_under_announces(operator, tracker, fourth)
    assert all(reply[b"retry in"] == 1 for reply in refused)  # as the slot changes hands
    check_all_known(tracker)
    assert fourth.ask("DBSIZE") > 0

    replica = nodes.add_node(join=False)
    primary = nodes.nodes[0]
    nodes.until(lambda: b"cluster_state:ok" in primary.ask("CLUSTER", "INFO"))
    operator.run("redis-cli --cluster add-node 10.0.0.5:6379", id=primary.id)
    for command in ("redis-cli -h 10.0.0.5 cluster failover", "redis-cli -h 10.0.0.5 cluster failover takeover"):
        nodes.until(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"))
        operator.run(command)
        nodes.until(lambda: b"role:master" in replica.ask("INFO", "replication"))
        check_all_known(tracker)
        nodes.until(lambda: b"master_link_status:up" in primary.ask("INFO", "replication"))
        primary.ask("CLUSTER", "FAILOVER")
    assert tracker.end() == 0


def move_under_announces(operator: Operator, tracker: trackers.RunningTracker, fourth: Node) -> list[dict[bytes, Any]]:
    """Moves slots as the page says; returns the announces that were refused meanwhile."""
    refused: list[dict[bytes, Any]] = []
    ended = threading.Event()

    def announce() -> None:
        while not ended.is_set():
            for number in range(PEERS):
                reply = join(tracker, number, event="")
                if b"complete" not in reply:
                    refused.append(reply)

    thread = threading.Thread(target=announce)
    thread.start()
    try:
        for node in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
            operator.run(f"redis-cli -h {node} cluster migrateslots", id=fourth.id)
        operator.run("redis-cli -h 10.0.0.1 cluster getslotmigrations")
        for slot in (0, 1364, 5462, 6827, 10924, 12288):
            operator.nodes.until(
                lambda slot=slot: all(node.server_of(slot) == fourth.id for node in operator.nodes.nodes)  # type: ignore[misc]
            )
    finally:
        ended.set()
        thread.join()
    return refused


@needs_cli
@pytest.mark.long
@pytest.mark.timeout(600)
def test_backup_restore_and_the_way_back(start_tracker: StartTracker, operator: Operator) -> None:
    nodes = operator.nodes
    settings = {"TRACKER_REDIS__URL": nodes.url, "TRACKER_REDIS__SHARDS": "64"}
    tracker = start_tracker(**settings)
    for number in range(PEERS):
        join(tracker, number)
    assert tracker.end() == 0
    for number, node in enumerate(nodes.nodes, 1):
        operator.run(f"redis-cli -h 10.0.0.{number} --rdb")
        node.stop()
        shutil.copy(operator.home / f"node{number}.rdb", node.directory / "dump.rdb")
    for node in nodes.nodes:
        node.start()  # without an append-only file, as the page says
    for number in (1, 2, 3):
        operator.run(f"redis-cli -h 10.0.0.{number} config set appendonly yes")
    nodes.until(lambda: all(b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in nodes.nodes))
    tracker = start_tracker(**settings)
    check_all_known(tracker)
    assert tracker.end() == 0

    operator.reshard("tracker reshard --prefix t2:", **settings)
    tracker = start_tracker(**settings | {"TRACKER_REDIS__PREFIX": "t2:", "TRACKER_REDIS__SHARDS": "128"})
    check_all_known(tracker)
    assert tracker.end() == 0

    operator.reshard("tracker reshard --private", **settings)
    tracker = start_tracker()
    check_all_known(tracker)
    assert tracker.end() == 0


@needs_cli
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(SYSTEM_REDIS is None, reason="no redis-server")
def test_a_node_of_redis_comes_and_goes_key_by_key(start_tracker: StartTracker, tmp_path: Path) -> None:
    """Announces of a slot that moves are refused. Peers are the same afterwards."""
    with cluster(binary="redis") as nodes:
        operator = Operator(nodes, tmp_path)
        tracker = start_tracker(TRACKER_REDIS__URL=nodes.url, TRACKER_REDIS__SHARDS="64")
        for number in range(PEERS):
            join(tracker, number)
        fourth = nodes.add_node(join=False)
        operator.run("redis-cli --cluster add-node 10.0.0.4:6379")
        nodes.until(lambda: all(fourth.id in node.ask("CLUSTER", "NODES").decode() for node in nodes.nodes))
        nodes.until(lambda: b"cluster_state:ok" in fourth.ask("CLUSTER", "INFO"))
        operator.run("redis-cli --cluster reshard", id=fourth.id)
        check_all_known(tracker)
        assert fourth.ask("DBSIZE") > 0
        operator.run("redis-cli --cluster rebalance", id=fourth.id)
        check_all_known(tracker)
        assert fourth.id.encode() not in {row[2][2] for row in nodes.nodes[0].ask("CLUSTER", "SLOTS")}
        operator.run("redis-cli --cluster del-node", id=fourth.id)
        check_all_known(tracker)
        assert tracker.end() == 0


def test_the_page_has_no_other_commands() -> None:
    """Those that these tests do not run: two that run a tracker, and one of tests/deploy."""
    run = ("tracker backup", "tracker reshard", "redis-cli --cluster add-node", "redis-cli --cluster check")
    by_key = tuple(f"redis-cli --cluster {name}" for name in ("reshard", "rebalance", "del-node"))
    nodes = (
        "cluster info",
        "cluster migrateslots",
        "cluster getslotmigrations",
        "cluster failover",
        "--rdb",
        "config set appendonly",
    )
    left = [command for command in COMMANDS if not command.startswith(run + by_key)]
    left = [command for command in left if not re.match(rf"redis-cli -h \S+ (?:{'|'.join(nodes)})", command)]
    assert [command.partition(" 10.0.0.1")[0] for command in left] == [
        "redis-cli --cluster create",
        "tracker doctor",
        "tracker serve",
    ]
