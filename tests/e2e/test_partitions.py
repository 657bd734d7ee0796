"""Three nodes with a replica each, and two trackers, in the worst moments of a cluster: no peer that goes on announcing
is removed, and no user gets a hit-and-run by that.

``python -m tests.e2e.test_partitions EVENT INTERVALS`` is the part that runs in a network namespace of its own, where
each node has an address. Peers announce every 20 s, and time out after so many intervals.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from loadtest.cluster import NODE_TIMEOUT_MILLISECONDS, Cluster, Node, cluster
from tests import namespaces
from tests.store.client.test_cluster import replicated
from tests.store.harness import Clock, Store, running, update
from tests.store.sharding.harness import SHARDS, hash_in
from tests.waiting import in_background, until
from tracker.bittorrent import InfoHash
from tracker.errors import StoreUnavailable
from tracker.store.client.cluster import Cluster as Topology
from tracker.store.client.connection import connect
from tracker.store.client.url import url_at
from tracker.store.schema.keys import Keys, main_prefix_of
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.reaper import Reaper

HOSTS = [f"10.9.0.{number}" for number in range(1, 7)]
SET_UP = f"{namespaces.set_up(*HOSTS)} && iptables -S"
INTERVAL, GRACE, PEERS = 20.0, 40, 240
SECONDS = 500

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(SECONDS + 60)]


@pytest.mark.parametrize("intervals", [1.5, 2.5])
@pytest.mark.parametrize(
    ("event", "pauses"),
    [
        ("cut off from the others", True),
        ("cut off from all", None),
        ("stopped for 1 s", None),
        ("stopped for 8 s", None),
        ("no majority for 8 s", None),
        ("planned failover", False),
    ],
)
def test_no_live_peer_is_removed(event: str, pauses: bool | None, intervals: float) -> None:
    if reason := namespaces.why_not(SET_UP, "iptables"):
        pytest.skip(reason)
    done = namespaces.run_module(SET_UP, "tests.e2e.test_partitions", event, str(intervals), seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["removed"], found["hit_and_runs"]) == ([], 0), found
    assert pauses is None or bool(found["interrupted"]) == pauses, found
    assert not pauses or found["answered_by_the_old_node"] > 0, found


class RealClock(Clock):
    def __call__(self) -> float:
        return time.time()


@asynccontextmanager
async def tracker(nodes: Cluster, intervals: float) -> AsyncIterator[Store]:
    """What a tracker does on the store, with reapers of all shards."""
    timeout = int(intervals * INTERVAL)
    rules = SwarmRules(
        accounts="required", peer_memory=3600, hnr_min_bytes=1, hnr_threshold=86_400, max_gap=600, grace=GRACE,
        min_timeout=timeout, max_timeout=timeout,
    )  # fmt: skip
    first = nodes.nodes[0]
    topology = Topology(
        lambda address: connect(url_at(first.tcp_url, address), connect_timeout=2, timeout=1.5, address=address),
        [(first.host, first.port)],
    )
    connection = topology.of(main_prefix_of("t:", SHARDS))
    store = Store(first.tcp_url, Keys("t:"), rules, RealClock(), shards=SHARDS, connection=connection)
    reapers = [
        Reaper(store.reapings[each], each.connection, each.keys, store.counters, lambda: 5.0, time.time)
        for each in store.shards
    ]
    for each, reaper in zip(store.shards, reapers, strict=True):
        each.connection.on_reconnect(reaper.on_reconnect)
    async with (
        running(store),
        in_background(connection.watch(), connection.follow(), *(each.run() for each in reapers)),
    ):
        yield store


@dataclass
class Peers:
    """Peers that never leave. Each announces an interval after its last answer, and again after a second if refused."""

    trackers: list[Store]
    timeout_seconds: float
    victims: set[int]
    """The shards whose node has the accident."""
    asked_at: dict[int, float] = field(default_factory=dict)
    """When each peer sent its last announce that was answered."""
    removed: list[int] = field(default_factory=list)
    """Peers that had to join again although their timeout had not ended."""
    answers: dict[int, int] = field(default_factory=dict)
    cut_at: float = 0.0
    promoted_at: float = 0.0
    answered_by_the_old_node: int = 0

    async def run(self, number: int) -> None:
        await asyncio.sleep(INTERVAL * number / PEERS)
        while True:
            sent, last = time.monotonic(), self.asked_at.get(number)
            event = "s" if last is None else "u"
            try:
                reply = await self.trackers[number % 2].announce(self.announce_of(number, event))
            except StoreUnavailable:
                await asyncio.sleep(1.0)
                continue
            self.asked_at[number] = sent
            if last is not None and reply.outcome == "join" and time.monotonic() < last + self.timeout_seconds:
                self.removed.append(number)
            self.answers[number] = self.answers.get(number, 0) + 1
            if self.cut_at and not self.promoted_at and number // 2 % SHARDS in self.victims:
                self.answered_by_the_old_node += 1
            await asyncio.sleep(INTERVAL)

    def announce_of(self, number: int, event: str) -> Any:
        return update(
            number, event, passkey=f"{number + 1:020}", info_hash=self.torrent_of(number),
            timeout_seconds=self.timeout_seconds, downloaded=1000 * self.answers.get(number, 0),
        )  # fmt: skip

    @staticmethod
    def torrent_of(number: int) -> InfoHash:
        return hash_in(number // 2 % SHARDS, number // 20)

    async def announced(self, more: int) -> None:
        """Waits until each has had so many answers more."""
        wanted = {number: self.answers.get(number, 0) + more for number in range(PEERS)}
        while any(self.answers.get(number, 0) < wanted[number] for number in wanted):
            await asyncio.sleep(0.2)


def block(*pairs: tuple[str, str], end: bool = False) -> None:
    """Packets of these addresses to those are lost."""
    for source, target in pairs:
        rule = ["iptables", "-D" if end else "-A", "INPUT", "-s", source, "-d", target, "-j", "DROP"]
        subprocess.run(rule, check=True)


async def away_for(seconds: float, pairs: list[tuple[str, str]], until_then: Callable[[], Awaitable[None]]) -> None:
    block(*pairs)
    await until_then()
    await asyncio.sleep(seconds)
    block(*pairs, end=True)


async def happen(event: str, nodes: Cluster, old: Node, replica: Node, peers: Peers) -> None:
    others = [host for host in HOSTS if host != old.host]
    cut = [*product([old.host], others), *product(others, [old.host])]

    async def promoted() -> None:
        while b"role:master" not in await asyncio.to_thread(replica.ask, "INFO", "replication"):
            await asyncio.sleep(0.1)
        peers.promoted_at = time.monotonic()

    async def at_once() -> None:
        pass

    if event != "planned failover":
        nodes.be_patient(NODE_TIMEOUT_MILLISECONDS)
    peers.cut_at = time.monotonic()
    if event == "cut off from the others":
        await away_for(3.0, cut, promoted)
    elif event == "cut off from all":
        await away_for(3.0, [*cut, (old.host, old.host)], promoted)
    elif event.startswith("stopped for"):
        os.kill(old.pid, signal.SIGSTOP)
        await asyncio.sleep(float(event.split()[2]))
        os.kill(old.pid, signal.SIGCONT)
    elif event == "no majority for 8 s":
        await away_for(8.0, [pair for pair in product(HOSTS, HOSTS) if pair[0] != pair[1]], at_once)
    else:
        assert event == "planned failover"
        await asyncio.to_thread(nodes.fail_over, replica)


async def interrupted(store: Store) -> list[int]:
    return [each.number for each in store.shards if await each.connection.command("EXISTS", each.keys.gap())]


async def main(event: str, intervals: float) -> None:
    with cluster(hosts=HOSTS) as nodes:
        primaries = list(nodes.nodes)
        replicas = [nodes.start_replica(each) for each in primaries]
        nodes.be_patient()  # until the event: on a busy machine there would be others
        async with tracker(nodes, intervals) as one, tracker(nodes, intervals) as two:
            for number in range(PEERS):
                await one.users.add(str(number + 1), f"{number + 1:020}")
            serving = [nodes.primary(each.keys.prefix) for each in one.shards]
            old = serving[0]
            victims = {number for number, node in enumerate(serving) if node is old}
            peers = Peers([one, two], intervals * INTERVAL, victims)
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(peers.run(number)) for number in range(PEERS)]
                await peers.announced(2)
                await asyncio.to_thread(until, lambda: replicated(old))
                before = len(peers.removed)
                await happen(event, nodes, old, replicas[primaries.index(old)], peers)
                await peers.announced(3)
                for each in running:
                    each.cancel()
            found = {
                "removed": peers.removed[before:],
                "hit_and_runs": len(await one.users.hit_and_runs()),
                "interrupted": await interrupted(one),
                "answered_by_the_old_node": peers.answered_by_the_old_node,
            }
            sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        asyncio.run(main(sys.argv[1], float(sys.argv[2])))
