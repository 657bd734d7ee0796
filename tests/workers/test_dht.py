"""What a node of the DHT knows survives a restart."""

import asyncio

from tests.dht.test_node import Island, address, joined, made
from tests.fake_time import FakeTime
from tests.store.harness import START, Store
from tracker.bittorrent import Endpoint
from tracker.workers.dht import SAVE_SECONDS, keep_connected, keep_saved


async def test_saved_nodes_are_back_after_a_restart(store: Store) -> None:
    island: Island = joined(20)
    time = FakeTime()

    async def run() -> None:
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
