"""Three nodes with a replica each, and two trackers, in the worst moments of a cluster: no peer that goes on announcing
is removed, no user gets a hit-and-run by that, and afterwards the store has what each answered announce must have done.

``python -m tests.e2e.test_partitions EVENT`` is the part that runs in a network namespace of its own, where each node
has an address. Peers announce every 20 s, and time out after 1.5 or 2.5 intervals.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from loadtest import trackers
from loadtest.cluster import NODE_TIMEOUT_MILLISECONDS, Cluster, Node, cluster
from loadtest.invariants import check_invariants
from loadtest.trackers import RunningTracker
from tests import namespaces
from tests.e2e.test_cluster import ready
from tests.store.client.test_cluster import until_replicated
from tests.store.harness import Clock, Store, redis_of, running, update
from tests.store.sharding.harness import SHARDS, hash_in
from tests.waiting import eventually, in_background
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
LINK_SET_UP = (
    f"{namespaces.set_up(*HOSTS[1:])} && ip link add near type veth peer name far && ip link set near up"
    f" && ip route add {HOSTS[0]} dev near"
)
"""The first node is not at ``lo``, but at the other end of a link."""
LINK_UP = "ip link set far up && ip route add default dev far"
INTERVAL, GRACE, PEERS = 20.0, 40, 240
JOIN_SECONDS = 4.0
OUTAGE_SECONDS = 61
"""A little more than the least that the store takes for an outage: without its grace, peers time out meanwhile."""
SECONDS = 500
LINK_DOWN, MAIN_DEAD = "link down", "main node dead"

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(SECONDS + 60)]


@pytest.mark.parametrize(
    ("event", "pauses"),
    [
        ("cut off from the others", True),
        ("cut off from all", None),
        (LINK_DOWN, None),
        ("stopped for 1 s", None),
        ("stopped for 5 s", None),
        ("stopped for 20 s", None),
        ("stopped for 60 s", None),
        ("no majority for 8 s", None),
        ("no majority for 61 s", True),
        (MAIN_DEAD, True),
        ("planned failover", False),
    ],
)
def test_no_live_peer_is_removed(event: str, pauses: bool | None) -> None:
    set_up = LINK_SET_UP if event == LINK_DOWN else SET_UP
    if reason := namespaces.why_not(set_up, "nsenter" if event == LINK_DOWN else "iptables"):
        pytest.skip(reason)
    done = namespaces.run_module(set_up, "tests.e2e.test_partitions", event, seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["removed"], found["hit_and_runs"], found["wrong"]) == ([], 0, []), found
    assert pauses is None or bool(found["interrupted"]) == pauses, found
    assert event != MAIN_DEAD or found["interrupted"] == found["victims"], found
    assert event != "cut off from the others" or found["answered_by_the_old_node"] > 0, found


class RealClock(Clock):
    def __call__(self) -> float:
        return time.time()


@asynccontextmanager
async def tracker(nodes: Cluster) -> AsyncIterator[Store]:
    """What a tracker does on the store, but for reaping."""
    rules = SwarmRules(
        accounts="required", peer_memory=3600, hnr_min_bytes=1, hnr_threshold=86_400, max_gap=600, grace=GRACE,
        min_timeout=1.5 * INTERVAL, max_timeout=2.5 * INTERVAL,
    )  # fmt: skip
    first = nodes.nodes[0]
    topology = Topology(
        lambda address: connect(url_at(first.tcp_url, address), connect_timeout=2, timeout=1.5, address=address),
        [(first.host, first.port)],
    )
    connection = topology.of(main_prefix_of("t:", SHARDS))
    store = Store(first.tcp_url, Keys("t:"), rules, RealClock(), shards=SHARDS, connection=connection)
    async with running(store):
        await store.upgrade()
        await store.load_secret()
        for each in store.shards:
            await store.start_shard(each)
        async with in_background(connection.watch(), connection.topology.follow()):
            yield store


@asynccontextmanager
async def reaping(store: Store) -> AsyncIterator[None]:
    """Reapers of all shards, until the block ends."""
    reapers = [Reaper(store, each, lambda: 5.0, time.time) for each in store.shards]
    for each, reaper in zip(store.shards, reapers, strict=True):
        each.connection.on_reconnect(reaper.on_reconnect)
    async with in_background(*(each.run() for each in reapers)):
        yield


@dataclass
class Peers:
    """Peers that announce an interval after their last answer, and again after a second if refused. From the event on,
    one in seven is a seeder, and one in seven stops for ever."""

    trackers: list[Store]
    victims: list[int]
    """The shards whose node has the accident."""
    asked_at: dict[int, float] = field(default_factory=dict)
    """When each peer sent its last announce that was answered."""
    removed: list[int] = field(default_factory=list)
    """Peers that had to join again although their timeout had not ended, without the time of an outage."""
    outages: Counter[int] = field(default_factory=Counter)
    """By shard the whole seconds of an outage that is long enough for grace."""
    answers: Counter[int] = field(default_factory=Counter)
    stopped: set[int] = field(default_factory=set)
    """Whose stop was answered."""
    cut_at: float = 0.0
    promoted_at: float = 0.0
    answered_by_the_old_node: int = 0

    async def run(self, number: int) -> None:
        await asyncio.sleep(JOIN_SECONDS * number / PEERS)
        await self.announce(number)
        await asyncio.sleep(INTERVAL * (number + 1) / PEERS)
        while number not in self.stopped:
            await self.announce(number)
            await asyncio.sleep(INTERVAL)

    async def announce(self, number: int) -> str:
        """The outcome of the first announce that is answered."""
        while True:
            sent, last = time.monotonic(), self.asked_at.get(number)
            event = "s" if last is None else "x" if self.stops(number) else "u"
            try:
                reply = await self.trackers[number % 2].announce(self.announce_of(number, event))
            except StoreUnavailable:
                await asyncio.sleep(1.0)
                continue
            self.asked_at[number] = sent
            timeout = self.timeout_of(number) + self.outages[number // 2 % SHARDS]
            if last is not None and reply.outcome == "join" and time.monotonic() < last + timeout:
                self.removed.append(number)
            if event == "x":
                self.stopped.add(number)
            self.answers[number] += 1
            if self.cut_at and not self.promoted_at and number // 2 % SHARDS in self.victims:
                self.answered_by_the_old_node += 1
            return reply.outcome

    def announce_of(self, number: int, event: str) -> Any:
        return update(
            number, event, passkey=passkey_of(number), info_hash=torrent_of(number), downloaded=self.downloaded(number),
            timeout_seconds=self.timeout_of(number), bytes_left=0 if self.seeds(number) else 1000,
        )  # fmt: skip

    @staticmethod
    def timeout_of(number: int) -> float:
        return INTERVAL * (2.5 if number % 3 == 0 else 1.5)

    def downloaded(self, number: int) -> int:
        """Nothing of who stops: that would be a hit-and-run."""
        return 0 if number % 7 == 1 else 1000 * self.answers[number]

    def seeds(self, number: int) -> bool:
        return bool(self.cut_at) and number % 7 == 0

    def stops(self, number: int) -> bool:
        return bool(self.cut_at) and number % 7 == 1

    async def announced(self, more: int) -> None:
        """Waits until each has had so many answers more, or has stopped."""
        wanted = {number: self.answers[number] + more for number in range(PEERS)}
        while any(self.answers[number] < wanted[number] for number in wanted.keys() - self.stopped):
            await asyncio.sleep(0.2)

    def counts(self) -> dict[InfoHash, tuple[int, int, int]]:
        """Seeders, leechers and completions of each torrent, as the answers say."""
        seeders = Counter(torrent_of(number) for number in range(PEERS) if self.seeds(number))
        present = Counter(torrent_of(number) for number in range(PEERS) if number not in self.stopped)
        return {each: (seeders[each], present[each] - seeders[each], seeders[each]) for each in present}

    async def miscounted(self) -> list[str]:
        """Torrents whose counts stay other than the answers say, while all peers go on. A stop that was lost times
        out."""
        expected = self.counts()

        async def held() -> dict[InfoHash, tuple[int, int, int]]:
            files = await self.trackers[0].swarms.scrape(list(expected), passkey_of(0))
            assert isinstance(files, dict), files
            return {each: (file.seeders, file.leechers, file.completions) for each, file in files.items()}

        with suppress(AssertionError):
            await eventually(lambda: is_equal(held, expected))
        counts = await held()
        return [
            f"{each.hex()}: {counts[each]}, not {expected[each]}" for each in expected if counts[each] != expected[each]
        ]

    async def wrong(self) -> list[str]:
        """What the store has, other than what each answered announce must have done, after one more announce of each
        peer, which makes up for what was lost before. No reaper runs: peers would time out meanwhile."""
        left = [number for number in range(PEERS) if number not in self.stopped]
        downloaded = {number: self.downloaded(number) for number in range(PEERS)}
        outcomes = {number: await self.announce(number) for number in left}
        found = [f"{number} was not there: {outcome}" for number, outcome in outcomes.items() if outcome != "update"]
        store = self.trackers[0]
        for number, said in downloaded.items():
            user = await store.users.by_id(str(number + 1))
            assert user is not None
            if (user.downloaded, user.snatches) != (said, self.seeds(number)):
                found.append(f"user of {number}: {user.downloaded}, not {said}; {user.snatches} completions")
        for each in store.shards:
            await check_invariants(redis_of(each.connection), each.keys)
        for tracker in self.trackers:
            await tracker.counters.flush()
        if repairs := int(await store.connection.command("GET", store.keys.stat("repairs")) or 0):
            found.append(f"{repairs} repairs")
        return found


async def is_equal(read: Callable[[], Awaitable[object]], expected: object) -> bool:
    return await read() == expected


def torrent_of(number: int) -> InfoHash:
    return hash_in(number // 2 % SHARDS, number // 20)


def passkey_of(number: int) -> str:
    return f"{number + 1:020}"


def run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True)


def block(*pairs: tuple[str, str], end: bool = False) -> None:
    """Packets of these addresses to those are lost."""
    for source, target in pairs:
        run(["iptables", "-D" if end else "-A", "INPUT", "-s", source, "-d", target, "-j", "DROP"])


@contextmanager
def at_the_end_of_a_link() -> Iterator[list[str]]:
    """A namespace with the first node's address alone, at the other end of the link; what runs a command in it."""
    nsenter = shutil.which("nsenter")
    assert nsenter is not None
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo made; exec sleep 1000"], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"made\n"
        within = [nsenter, f"--net=/proc/{holder.pid}/ns/net"]
        run(["ip", "link", "set", "far", "netns", str(holder.pid)])
        set_up = f"ip link set lo up && ip address add {HOSTS[0]}/32 dev far && {LINK_UP}"
        run([*within, "sh", "-c", set_up])
        yield within
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


@asynccontextmanager
async def whole_tracker(nodes: Cluster) -> AsyncIterator[RunningTracker]:
    """A tracker as a process, on the same store."""
    urls = ",".join(f"{node.host}:{node.port}" for node in nodes.nodes[:SHARDS])
    with TemporaryDirectory() as directory:
        found = await asyncio.to_thread(
            trackers.start,
            Path(directory),
            TRACKER_REDIS__URL=f"redis://{urls}/0",
            TRACKER_REDIS__SHARDS=str(SHARDS),
            TRACKER_USERS__PRIVATE="required",
            TRACKER_ANNOUNCE__INTERVAL_SECONDS=str(int(INTERVAL)),
            TRACKER_ANNOUNCE__MIN_INTERVAL_SECONDS=str(int(INTERVAL)),
        )
        try:
            yield found
        finally:
            found.kill()
            assert "Traceback" not in found.log, found.log


async def says(tracker: RunningTracker, text: str) -> None:
    """Waits until /ready has this text."""
    await eventually(lambda: is_equal(lambda: asyncio.to_thread(lambda: text in ready(tracker.url)), True))


async def is_served(tracker: RunningTracker, shard: int) -> bool:
    """Whether the join of a user who has been there is answered; else it is refused with a time to retry."""
    hashed = "".join(f"%{byte:02x}" for byte in hash_in(shard, 1000))
    reply = await asyncio.to_thread(tracker.announce, passkey_of(2 * shard), info_hash=hashed)
    assert b"complete" in reply or b"retry in" in reply, reply
    return b"complete" in reply


@dataclass
class Accident:
    """What happens to ``old``, a node of the cluster with a replica."""

    nodes: Cluster
    old: Node
    replica: Node
    peers: Peers
    within: list[str]
    """What runs a command where the link's end is."""

    async def happen(self, event: str) -> None:
        others = [host for host in HOSTS if host != self.old.host]
        cut = [*product([self.old.host], others), *product(others, [self.old.host])]
        if event not in ("planned failover", MAIN_DEAD):
            self.nodes.be_patient(NODE_TIMEOUT_MILLISECONDS)
        self.peers.cut_at = time.monotonic()
        if event == "cut off from the others":
            await self.cut_off(cut)
        elif event == "cut off from all":
            await self.cut_off([*cut, (self.old.host, self.old.host)])
        elif event == LINK_DOWN:
            await self.take_link_down()
        elif event.startswith("stopped for"):
            os.kill(self.old.pid, signal.SIGSTOP)
            await asyncio.sleep(float(event.split()[2]))
            os.kill(self.old.pid, signal.SIGCONT)
        elif event.startswith("no majority for"):
            await self.lose_majority(float(event.split()[3]))
        elif event == MAIN_DEAD:
            await self.start_without_main()
        else:
            assert event == "planned failover"
            await asyncio.to_thread(self.nodes.fail_over, self.replica)

    async def promoted(self) -> None:
        while b"role:master" not in await asyncio.to_thread(self.replica.ask, "INFO", "replication"):
            await asyncio.sleep(0.1)
        self.peers.promoted_at = time.monotonic()

    async def cut_off(self, pairs: list[tuple[str, str]]) -> None:
        block(*pairs)
        await self.promoted()
        await asyncio.sleep(3.0)
        block(*pairs, end=True)

    async def take_link_down(self) -> None:
        run([*self.within, "ip", "link", "set", "far", "down"])
        await self.promoted()
        await asyncio.sleep(3.0)
        run([*self.within, "sh", "-c", LINK_UP])

    async def lose_majority(self, seconds: float) -> None:
        """No node reaches another one, and trackers reach all."""
        pairs = [pair for pair in product(HOSTS, HOSTS) if pair[0] != pair[1]]
        async with whole_tracker(self.nodes) as tracker:
            await says(tracker, "ready\n")
            block(*pairs)
            await says(tracker, "no majority: 1 of 3 primaries answers")
            for shard in range(SHARDS):  # not all nodes notice it at once
                await eventually(lambda shard=shard: is_equal(lambda: is_served(tracker, shard), False))  # type: ignore[misc]
            until = time.monotonic() + seconds
            if seconds >= OUTAGE_SECONDS:
                self.peers.outages.update(dict.fromkeys(range(SHARDS), OUTAGE_SECONDS))
            await asyncio.sleep(until - time.monotonic())
            block(*pairs, end=True)
            await says(tracker, "ready\n")
            assert all([await is_served(tracker, shard) for shard in range(SHARDS)])

    async def start_without_main(self) -> None:
        """A tracker starts while the main node and its replica are dead, and serves the shards of others."""
        self.old.kill()
        self.replica.kill()
        until = time.monotonic() + OUTAGE_SECONDS
        self.peers.outages.update(dict.fromkeys(self.peers.victims, OUTAGE_SECONDS))
        async with whole_tracker(self.nodes) as tracker:
            await says(tracker, "unavailable: main store")
            for shard in range(SHARDS):
                if shard in self.peers.victims:
                    assert not await is_served(tracker, shard)
                else:
                    await eventually(lambda shard=shard: is_served(tracker, shard))  # type: ignore[misc]
            await asyncio.sleep(until - time.monotonic())
            await asyncio.to_thread(self.old.start)
            await asyncio.to_thread(self.replica.start)
            await says(tracker, "ready\n")
            for shard in range(SHARDS):
                await eventually(lambda shard=shard: is_served(tracker, shard))  # type: ignore[misc]


async def interrupted(store: Store) -> list[int]:
    return [each.number for each in store.shards if await each.connection.command("EXISTS", each.keys.gap())]


async def main(event: str) -> None:
    persistence = "yes" if event == MAIN_DEAD else "no"
    with ExitStack() as stack:
        within = stack.enter_context(at_the_end_of_a_link()) if event == LINK_DOWN else []
        nodes = stack.enter_context(cluster(hosts=HOSTS, options=("--appendonly", persistence), first_within=within))
        primaries = list(nodes.nodes)
        replicas = [nodes.start_replica(each) for each in primaries]
        nodes.be_patient()  # until the event: on a busy machine there would be others
        async with tracker(nodes) as one, tracker(nodes) as two:
            for number in range(PEERS):
                await one.users.add(str(number + 1), passkey_of(number))
            old = nodes.primary(main_prefix_of("t:", SHARDS)) if event == MAIN_DEAD else primaries[0]
            victims = [each.number for each in one.shards if nodes.primary(each.keys.prefix) is old]
            peers = Peers([one, two], victims)
            accident = Accident(nodes, old, replicas[primaries.index(old)], peers, within)
            async with reaping(one), reaping(two), asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(peers.run(number)) for number in range(PEERS)]
                await peers.announced(2)
                await asyncio.to_thread(until_replicated, old)
                before = len(peers.removed)
                await accident.happen(event)
                await peers.announced(3)
                nodes.be_patient()
                wrong = await peers.miscounted()
                for each in running:
                    each.cancel()
            found = {
                "wrong": wrong + await peers.wrong(),
                "removed": peers.removed[before:],
                "hit_and_runs": len(await one.users.hit_and_runs()),
                "interrupted": await interrupted(one),
                "victims": victims,
                "answered_by_the_old_node": peers.answered_by_the_old_node,
            }
            sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        asyncio.run(main(sys.argv[1]))
