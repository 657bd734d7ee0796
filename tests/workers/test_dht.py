"""D14, D15, D20: what a node of the DHT knows survives a restart, and it forgets torrents that became private."""

import asyncio

from tests.dht.test_node import Island, address, joined, made
from tests.fake_time import FakeTime
from tests.store.harness import START, Store, info_hash
from tests.waiting import eventually
from tracker.bittorrent import Endpoint, InfoHash
from tracker.workers.dht import SAVE_SECONDS, Forgetter, follow_changes, keep_connected, keep_saved, restore


async def test_saved_nodes_are_back_after_a_restart(store: Store) -> None:
    island: Island = joined(20)
    time = FakeTime()

    async def run() -> None:
        restore(await store.dht_nodes.load("host"), {4: island.first()}, island.now)
        await keep_saved(
            store.dht_nodes,
            "host",
            {4: island.first()},
            clock=lambda: START,
            timer=lambda: island.now,
            sleep=time,
        )

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run())
        await time.pass_until(lambda: time.now >= SAVE_SECONDS)
        task.cancel()
    assert (await store.dht_nodes.load("host")).nodes[4]
    known = len(island.first().table)
    island.nodes[address(0)] = made(0)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run())
        await time.pass_until(lambda: time.now >= 2 * SAVE_SECONDS)
        island.run(10)
        task.cancel()
    assert known > 10 and len(island.first().table) >= known


async def test_bootstrap_nodes_are_asked_while_few_are_known() -> None:
    island, time = Island(3), FakeTime()
    asked: list[float] = []

    async def bootstrap() -> list[Endpoint]:
        asked.append(time.now)
        return [address(0)]

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(
            keep_connected(island.nodes[address(1)], bootstrap, timer=lambda: island.now, sleep=time)
        )
        await time.pass_until(lambda: len(asked) >= 2)
        task.cancel()
    island.run(30)
    assert len(island.nodes[address(1)].table) >= 1


async def test_a_torrent_made_private_is_forgotten(store: Store) -> None:
    island = Island(1)
    node = island.first()
    for number in (1, 2):
        await store.torrents.add(info_hash(number), {"private": "0"})
        node.announced.announce(info_hash(number), address(5), 0, seed=False)
    forgetter = Forgetter(store.dht_torrents, {4: node}, all_torrents=False, sleep=FakeTime())
    forgetter.changed(info_hash(1))
    await forgetter.round()
    assert len(node.announced) == 2
    await store.torrents.edit(info_hash(1), {"private": "1"})
    forgetter.changed(info_hash(2))
    await forgetter.round()
    assert len(node.announced) == 2
    forgetter.changed(info_hash(1))
    await forgetter.round()
    assert list(node.announced.hashes()) == [info_hash(2)]
    await store.torrents.deny(info_hash(2), "no")
    forgetter.changed(None)
    await forgetter.round()
    assert not len(node.announced)


async def test_changes_are_followed_as_they_are_published(store: Store) -> None:
    changed: list[InfoHash | None] = []
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follow_changes(store.connection, store.keys, changed.append))
        await eventually(lambda: changed == [None])
        await store.torrents.add(info_hash(1), {"private": "1"})
        await store.redis.publish(store.keys.channel("torrents"), "anything \xff")
        await eventually(lambda: changed == [None, info_hash(1), None])
        task.cancel()
