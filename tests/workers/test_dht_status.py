"""D22: a node of the DHT saves every few seconds what it knows and does."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tests.dht.test_node import Island, address, joined
from tests.fake_time import FakeTime
from tests.store.harness import START, Store, info_hash
from tests.waiting import eventually
from tracker.bittorrent import Address
from tracker.dht.node import DhtNode
from tracker.dht.node_id import ExternalAddress
from tracker.settings.background import DhtSettings
from tracker.store.dht.nodes import AnnouncedHash, Mode, NodeStatus
from tracker.store.dht.torrents import Participation
from tracker.workers.dht import COUNT_SECONDS, StatusWorker


def worker(
    store: Store, nodes: Mapping[int, DhtNode], timer: Callable[[], float], torrents: Mode = "public", **options: Any
) -> StatusWorker:
    settings, clock = DhtSettings(name="host", torrents=torrents), options.pop("clock", lambda: START)
    return StatusWorker(settings, nodes, store, clock=clock, timer=timer, **options)


async def test_a_node_says_what_it_knows_and_does(store: Store) -> None:
    island: Island = joined(20)
    node, said = island.first(), worker(store, {4: island.first()}, lambda: island.now)
    node.external = ExternalAddress(Address(b"\xc0\0\2\1"))
    node.announced.announce(info_hash(1), address(5), island.now, seed=False)
    node.receive(b"no message", address(5), island.now)
    said.lookups["answered"] += 2
    status = said.status()
    assert (status.ids, status.externals) == ({4: node.id}, {4: "192.0.2.1"})
    assert status.nodes(4) == len(node.table) == 19
    assert status.buckets[4] == {at: size for at, size in enumerate(node.table.entries.sizes()) if size}
    assert (status.hashes, status.peers) == (1, 1)
    counts = node.counts
    assert (status.packets_in, status.bytes_in) == (counts.packets_in, counts.bytes_in)
    assert (status.packets_out, status.bytes_out) == (counts.packets_out, counts.bytes_out)
    assert 0 < status.packets_in < status.bytes_in
    assert sum(status.dropped.values()) == 1
    assert status.lookups == {"answered": 2, "unanswered": 0}
    assert node.table.last_answer is not None
    assert status.last_answer == int(START - (island.now - node.table.last_answer))


async def test_the_status_is_saved_at_the_start_and_then_regularly(store: Store) -> None:
    island, time = Island(1), FakeTime()
    for number in (1, 2):
        await store.torrents.add(info_hash(number), {"private": "0"} if number == 1 else {})

    async def saved() -> NodeStatus | None:
        return await store.dht_nodes.status("host")

    async def is_saved() -> bool:
        return await saved() is not None

    async def counted() -> bool:
        shown = await saved()
        return shown is not None and shown.participation == Participation(2, 2, 1, unknown=1)

    async def counted_again() -> bool:
        shown = await saved()
        return shown is not None and shown.participation == Participation(2, 2, 2)

    said = worker(store, {4: island.first()}, lambda: island.now, clock=lambda: START + time.now, sleep=time)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(said.run())
        await eventually(is_saved)
        first = await saved()
        assert first is not None and (first.started, first.saved, first.mode) == (START, START, "public")
        await time.pass_until(counted)
        await store.torrents.edit(info_hash(2), {"private": "0"})
        await time.pass_until(counted_again)
        task.cancel()
    last = await saved()
    assert last is not None and last.saved >= START + COUNT_SECONDS


async def test_announced_hashes_of_both_families_are_saved(store: Store) -> None:
    nodes = {4: Island(1).first(), 6: Island(1).first()}
    said = worker(store, nodes, lambda: 100, torrents="any")
    nodes[4].announced.announce(info_hash(1), address(5), 90, seed=True)
    nodes[4].announced.announce(info_hash(1), address(6), 95, seed=False)
    nodes[6].announced.announce(info_hash(1), address(7), 92, seed=False)
    nodes[6].announced.announce(info_hash(2), address(7), 60, seed=False)
    await said.save()
    await said.save_hashes()
    assert await store.dht_nodes.hashes(None, 0, 9) == (
        2,
        [AnnouncedHash(info_hash(1), 1, 3, START - 5), AnnouncedHash(info_hash(2), 0, 1, START - 40)],
    )


async def test_nothing_is_saved_while_another_tracker_runs_the_node(store: Store) -> None:
    nodes = {4: joined(3).first()}
    said = worker(store, nodes, lambda: 0, may_save=lambda: False)
    nodes[4].announced.announce(info_hash(1), address(5), 0, seed=False)
    await said.save()
    await said.save_hashes()
    await said.save_nodes()
    assert await store.dht_nodes.statuses() == []
    assert not (await store.dht_nodes.load("host")).nodes
    assert not await store.redis.exists(store.keys.dht_hashes("host"))
