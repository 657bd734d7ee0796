"""D19: lookups of thin public swarms stay within a budget, and their results are kept."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from tests.dht.test_node import Island, address, joined, made
from tests.fake_time import FakeTime
from tests.store.harness import START, Store, info_hash, update
from tests.workers.test_prober import Probes
from tracker.bittorrent import Endpoint
from tracker.dht.lookup import LookupResult
from tracker.dht.node import DhtNode
from tracker.dht.node_id import to_id, to_number
from tracker.errors import ClientError, Postponed, StoreUnavailable
from tracker.settings.background import DhtSettings
from tracker.store.dht.torrents import LOOK_UP_AGAIN_SECONDS
from tracker.wire.krpc import Answer, GetPeers, Node, Query, encode_answer, parse_message
from tracker.workers.dht_lookups import AGAIN_SECONDS, CHECK_SECONDS, LookupWorker, counts
from tracker.workers.prober import is_target

PER_MINUTE = 10
DEFAULT = DhtSettings(lookups_per_minute=PER_MINUTE)


def worker(
    store: Store,
    island: Island,
    time: FakeTime,
    counted: Counter[str],
    settings: DhtSettings = DEFAULT,
    *,
    waits: bool = True,
) -> LookupWorker:
    """``waits``: whether its sleep ends when the test lets time pass. Else it ends at once."""

    async def sleep(seconds: float) -> None:
        if waits:
            await time(seconds)
        island.run(0.5)

    return on_nodes(store, {4: island.first()}, lambda: island.now, sleep, time, counted, settings)


def on_nodes(
    store: Store,
    nodes: Mapping[int, DhtNode],
    timer: Callable[[], float],
    sleep: Callable[[float], Awaitable[object]],
    time: FakeTime | None = None,
    counted: Counter[str] | None = None,
    settings: DhtSettings = DEFAULT,
) -> LookupWorker:
    counts_of = Counter[str]() if counted is None else counted
    time = time or FakeTime()
    return LookupWorker(
        store.dht_torrents,
        nodes,
        Probes(targets=is_target).prober,
        lambda: settings,
        count=lambda outcome: counts_of.update([outcome]),
        clock=lambda: START + time.now,
        timer=timer,
        rng=random.Random(1),
        sleep=sleep,
    )


@asynccontextmanager
async def running(worker: LookupWorker) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(worker.run())
        yield
        task.cancel()


async def test_thin_swarms_come_first_and_each_once_in_six_hours(store: Store) -> None:
    for number in range(1, 4):
        await store.torrents.add(info_hash(number), {"private": "0"})
    await store.torrents.add(info_hash(4), {"private": "1"})
    await store.torrents.add(info_hash(5))
    await store.announce(update(1, "s", 1, bytes_left=0))
    await store.announce(update(2, "s", 1, bytes_left=0))
    await store.announce(update(1, "s", 3, bytes_left=0))
    time, counted = FakeTime(), Counter[str]()
    chooser = worker(store, Island(1), time, counted)
    found = []
    while (torrent := await chooser.next_torrent()) is not None:
        found.append(torrent)
    assert found == [info_hash(2), info_hash(3), info_hash(1)]
    time.now = LOOK_UP_AGAIN_SECONDS + 1
    assert [await chooser.next_torrent() for _ in range(2)].count(None) <= 1


async def test_two_trackers_on_a_store_look_up_no_torrent_twice(store: Store) -> None:
    """Also one that both have read as due."""
    for number in range(1, 4):
        await store.torrents.add(info_hash(number), {"private": "0"})
    choosers = [worker(store, Island(1), FakeTime(), Counter()) for _ in range(2)]
    found = [await chooser.next_torrent() for _ in range(3) for chooser in choosers]
    assert sorted(each for each in found if each is not None) == [info_hash(number) for number in range(1, 4)]


async def with_seeders(store: Store, torrent: int, seeders: int) -> None:
    await store.torrents.add(info_hash(torrent), {"private": "0"})
    for number in range(seeders):
        await store.announce(update(number, "s", torrent, bytes_left=0))


async def next_seeders(store: Store, chooser: LookupWorker, lookups: int) -> list[int]:
    """Of the torrents that are looked up next."""
    found = []
    for _ in range(lookups):
        torrent = await chooser.next_torrent()
        assert torrent is not None
        found.append(int((await store.torrent(torrent))["seeders"]))
    return found


async def test_of_a_thousand_torrents_those_with_the_fewest_seeders_come_first(store: Store) -> None:
    """Also before the whole register has been read."""
    rng = random.Random(1)
    seeders = [rng.randrange(1, 6) for _ in range(1000)]
    await asyncio.gather(*(with_seeders(store, number, each) for number, each in enumerate(seeders, 1)))
    time = FakeTime()
    chooser = worker(store, Island(1), time, Counter())
    assert await next_seeders(store, chooser, 3) == [1] * 3
    await with_seeders(store, 1001, 0)
    assert await next_seeders(store, chooser, 1) == [1], "pages with more seeders are being read"
    time.now = AGAIN_SECONDS
    assert await next_seeders(store, chooser, 300) == [0, *sorted(seeders)[4:303]]


async def test_a_torrent_made_private_meanwhile_is_not_looked_up(store: Store) -> None:
    for number in (1, 2):
        await store.torrents.add(info_hash(number), {"private": "0"})
    chooser = worker(store, Island(1), FakeTime(), Counter())
    first = await chooser.next_torrent()
    (other,) = {info_hash(1), info_hash(2)} - {first}
    await store.torrents.edit(other, {"private": "1"})
    assert first is not None
    assert await chooser.next_torrent() is None


class SlowNodes:
    """Every node answers after 3 seconds, and names nodes that are nearer: a lookup goes on for half a minute."""

    def __init__(self) -> None:
        self.now = 0.0
        self.nodes = {4: made(1, limited=False), 6: made(2, limited=False)}
        self.asked: list[float] = []
        """When a node was asked for a torrent."""
        self._due: list[tuple[float, DhtNode, Endpoint, bytes]] = []
        self._named = 1
        for node in self.nodes.values():
            node.table.on_answer(Node(to_id(1 << 159), address(1)), 0)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        due, self._due = self._due, []
        for at, node, source, data in due:
            if at <= self.now:
                node.receive(data, source, self.now)
            else:
                self._due.append((at, node, source, data))
        for node in self.nodes.values():
            node.tick(self.now)
            for target, data in node.take_datagrams():
                query = parse_message(data)
                assert isinstance(query, Query)
                if isinstance(query.arguments, GetPeers):
                    self.asked.append(self.now)
                    self._answer(node, target, query)

    def _answer(self, node: DhtNode, target: Endpoint, query: Query) -> None:
        number = int.from_bytes(target[:4], "big") - 0x0A000000
        wanted = to_number(query.arguments.info_hash)  # type: ignore[union-attr]
        nodes = b""
        for _ in range(8):
            self._named += 1
            nodes += to_id(wanted ^ 1 << 158 - self._named % 150) + address(self._named)
        own = to_id(1 << 159) if number == 1 else to_id(wanted ^ 1 << 158 - number % 150)
        self._due.append((self.now + 3, node, target, encode_answer(Answer(query.transaction, own, nodes))))


@pytest.mark.parametrize("after", [0.0, 6.0, 12.0])
async def test_a_torrent_made_private_during_a_lookup_is_asked_for_no_longer(store: Store, after: float) -> None:
    """D15: after 10 seconds at most, and not in the other family."""
    network = SlowNodes()
    await store.torrents.add(info_hash(1), {"private": "0"})

    async def sleep(seconds: float) -> None:
        await network.sleep(seconds)
        if network.now >= after:
            await store.torrents.edit(info_hash(1), {"private": "1"})

    asked = on_nodes(store, network.nodes, lambda: network.now, sleep)
    with pytest.raises(ClientError, match="no node of the DHT answered"):
        await asked.handle({"info_hash": info_hash(1).hex()})
    for _ in range(60):
        await network.sleep(1)
    assert network.asked and max(network.asked) <= after + CHECK_SECONDS
    assert "dht_at" not in await store.torrent(info_hash(1))


async def test_a_public_torrent_is_asked_for_in_both_families(store: Store) -> None:
    """However long it takes."""
    network = SlowNodes()
    await store.torrents.add(info_hash(1), {"private": "0"})
    await on_nodes(store, network.nodes, lambda: network.now, network.sleep).handle({"info_hash": info_hash(1).hex()})
    assert max(network.asked) > 30


async def test_a_lookup_ends_when_the_store_is_lost(store: Store) -> None:
    """Nobody knows then whether the torrent takes part."""
    network = SlowNodes()
    await store.torrents.add(info_hash(1), {"private": "0"})

    async def sleep(seconds: float) -> None:
        store.connection.unavailable = network.now >= 6
        await network.sleep(seconds)

    asked = on_nodes(store, network.nodes, lambda: network.now, sleep)
    with pytest.raises(StoreUnavailable):
        await asked.handle({"info_hash": info_hash(1).hex()})
    for _ in range(60):
        await network.sleep(1)
    assert 5 < max(network.asked) <= 6 + CHECK_SECONDS


async def test_lookups_stay_within_the_budget_and_store_what_they_found(store: Store) -> None:
    island, time, counted = joined(20), FakeTime(), Counter[str]()
    torrents = [info_hash(number) for number in range(1, 31)]
    for torrent in torrents:
        await store.torrents.add(torrent, {"private": "0"})
        for node in island.nodes.values():
            node.announced.announce(torrent, address(900), island.now, seed=True)
    async with running(worker(store, island, time, counted)):
        await time.pass_until(lambda: time.now >= 60)
        assert 1 <= counted["answered"] <= PER_MINUTE
        await time.pass_until(lambda: counted["answered"] == len(torrents))
        await time.pass_by(120)
    assert counted == {"answered": len(torrents)}
    rows = [await store.torrent(torrent) for torrent in torrents]
    assert {(row["dht_seeds"], row["dht_peers"]) for row in rows} == {("1", "1")}


async def test_peers_to_hand_out_take_a_second_lookup_of_the_same_budget(store: Store) -> None:
    """D18, D19: only where a setting says so, and somebody has the torrent."""
    island, time, counted = joined(20), FakeTime(), Counter[str]()
    peers = [Endpoint(b"\x08\x08\x08" + bytes((number,)) + b"\x1a\xe1") for number in range(3)]
    for number in (1, 2):
        await store.torrents.add(info_hash(number), {"private": "0"})
    for node in island.nodes.values():
        for peer in peers:
            node.announced.announce(info_hash(1), peer, island.now, seed=True)
    giving = DhtSettings(lookups_per_minute=PER_MINUTE, give_peers=True, verify_peers=False)
    async with running(worker(store, island, time, counted)):
        await time.pass_by(120)
    assert counted["answered"] == 2 and "dht" not in await store.torrent(info_hash(1))
    await store.redis.delete(store.keys.dht_lookups())
    began, counted = time.now, Counter[str]()
    async with running(worker(store, island, time, counted, giving)):
        await time.pass_until(lambda: counted["answered"] == 3)
        assert time.now - began >= 3 * 60 / PER_MINUTE
        await time.pass_by(120)
    assert counted == {"answered": 3}
    # All nodes of the simulation are in one /16, which is one network.
    assert "dht" not in await store.torrent(info_hash(1))


async def test_a_job_looks_up_one_torrent(store: Store) -> None:
    """However recently it was looked up."""
    island, counted = joined(10), Counter[str]()
    for number, fields in enumerate(({"private": "0"}, {}), 1):
        await store.torrents.add(info_hash(number), fields)
    for node in island.nodes.values():
        node.announced.announce(info_hash(1), address(900), island.now, seed=True)
    asked = worker(store, island, FakeTime(), counted, waits=False)
    for _ in range(2):
        await asked.handle({"info_hash": info_hash(1).hex()})
    assert counted == {"answered": 2}
    assert (await store.torrent(info_hash(1)))["dht_seeds"] == "1"
    with pytest.raises(ClientError, match="does not take part"):
        await asked.handle({"info_hash": info_hash(2).hex()})
    for payload in ({}, {"info_hash": 5}):
        with pytest.raises(ClientError):
            await asked.handle(payload)


async def test_a_job_waits_while_no_node_is_known_and_fails_where_none_answers(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"private": "0"})
    payload = {"info_hash": info_hash(1).hex()}
    with pytest.raises(Postponed):
        await worker(store, Island(1), FakeTime(), Counter(), waits=False).handle(payload)
    island = joined(5)
    island.cut = set(island.nodes)
    with pytest.raises(ClientError, match="no node of the DHT answered"):
        await worker(store, island, FakeTime(), Counter(), waits=False).handle(payload)


def test_the_counts_of_two_families() -> None:
    """Most peers are in both."""
    four = LookupResult({address(1): frozenset(), address(2): frozenset()}, 1.0, 0.1, 3, ())
    six = LookupResult({}, 0.0, 5.2, 3, ())
    assert counts([four, six]) == (1, 5)
    assert counts([four]) == (1, 2)
    assert counts([]) is None
