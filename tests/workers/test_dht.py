"""D14, D15, D20: what a node of the DHT knows survives a restart, and it forgets torrents that became private."""

import asyncio
from collections.abc import Callable

from tests.dht.test_node import Island, address, joined, made
from tests.fake_time import FakeTime
from tests.store.harness import START, Store, endpoint, info_hash, update
from tests.waiting import eventually, in_background
from tracker.bittorrent import Endpoint, InfoHash
from tracker.dht.node import DhtNode
from tracker.settings.background import DhtSettings
from tracker.workers.dht import (
    CHECK_SECONDS,
    FIRST_SAVE_SECONDS,
    MAX_OWN_PEERS,
    SAVE_SECONDS,
    Forgetter,
    StatusWorker,
    follow_changes,
    keep_connected,
    own_peers,
    restore,
)
from tracker.workers.loop import Sleep


def saver(store: Store, node: DhtNode, timer: Callable[[], float], sleep: Sleep = asyncio.sleep) -> StatusWorker:
    settings = DhtSettings(name="host")
    return StatusWorker(settings, {4: node}, store, clock=lambda: START, timer=timer, sleep=sleep)


async def test_saved_nodes_are_back_after_a_restart(store: Store) -> None:
    island: Island = joined(20)
    known = len(island.first().table)
    await saver(store, island.first(), lambda: island.now).save_nodes()
    assert (await store.dht_nodes.load("host")).nodes[4]
    island.nodes[address(0)] = made(0)
    restore(await store.dht_nodes.load("host"), {4: island.first()}, island.now)
    island.run(10)
    assert known > 10 and len(island.first().table) >= known


async def test_a_node_is_saved_soon_after_the_first_answer_then_every_five_minutes(store: Store) -> None:
    island, time = Island(3), FakeTime()
    saves: list[float] = []

    def timer() -> float:
        saves.append(time.now)
        return island.now

    async with in_background(saver(store, island.first(), timer, sleep=time)._save_nodes()):
        await time.pass_by(4 * FIRST_SAVE_SECONDS)
        assert not saves
        island.first().contact([address(1)], island.now)
        island.run(30)
        answered = time.now
        await time.pass_until(lambda: len(saves) == 1)
        assert saves[0] <= answered + FIRST_SAVE_SECONDS
        await time.pass_until(lambda: len(saves) == 2)
        assert saves[1] - saves[0] == SAVE_SECONDS
    assert (await store.dht_nodes.load("host")).nodes[4]


async def test_clients_of_public_swarms_are_asked_too(store: Store) -> None:
    """D20. Not those of other torrents, nor at addresses and ports where no client is."""
    await store.torrents.add(info_hash(1), {"private": "0"})
    await store.torrents.add(info_hash(2), {"private": "1"})
    await store.torrents.add(info_hash(3))
    public = [endpoint(1, port=1024), endpoint(2), endpoint(3, v6=True)]
    private_network = Endpoint(b"\x0a\0\0\x01\x1a\xe1")
    for number, each in enumerate([*public, endpoint(4, port=1023), private_network]):
        await store.announce(update(number, "s", endpoint=each))
    for torrent in (2, 3):
        await store.announce(update(10 + torrent, "s", torrent, endpoint=endpoint(10 + torrent)))

    async def found(family: int, *, private_addresses: bool = False) -> set[Endpoint]:
        return set(await own_peers(store.dht_torrents, family, all_torrents=False, private_addresses=private_addresses))

    assert await found(4) == {endpoint(1, port=1024), endpoint(2)}
    assert await found(4, private_addresses=True) == {endpoint(1, port=1024), endpoint(2), private_network}
    assert await found(6, private_addresses=True) == {endpoint(3, v6=True)}
    for number in range(20, 60):
        await store.announce(update(number, "s", endpoint=endpoint(number)))
    assert MAX_OWN_PEERS - 2 <= len(await found(4)) <= MAX_OWN_PEERS  # two of all have no client
    store.connection.unavailable = True
    assert await found(4) == set()


async def test_they_are_of_any_page_of_a_large_register(store: Store) -> None:
    """D20: most torrents have no seeders, and no clients either."""
    torrents = range(1, 801)
    await asyncio.gather(*(store.torrents.add(info_hash(each), {"private": "0"}) for each in torrents))
    await asyncio.gather(
        *(store.announce(update(each, "s", each, endpoint=endpoint(each), bytes_left=0)) for each in torrents[::40])
    )
    found = [await own_peers(store.dht_torrents, 4, all_torrents=False, private_addresses=False) for _ in range(50)]
    assert all(found) and len({peer for each in found for peer in each}) > 10


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


async def test_bootstrap_nodes_are_asked_when_all_known_nodes_are_gone() -> None:
    """D20: the addresses of a whole island have changed, so nobody answers, and nobody is dropped."""
    island = joined(12)
    node = island.first()
    for number in range(1, 12):
        del island.nodes[address(number)]
    newcomer = island.nodes[address(100)] = made(100)

    async def bootstrap() -> list[Endpoint]:
        return [address(100)]

    async def sleep(seconds: float) -> None:
        island.run(seconds, step=5)
        await asyncio.sleep(0)

    assert len(node.table) == 11
    async with in_background(keep_connected(node, bootstrap, timer=lambda: island.now, sleep=sleep)):
        await eventually(lambda: node.table.entry(newcomer.id) is not None or island.now > 3600)
    assert node.table.entry(newcomer.id) is not None


async def test_a_torrent_made_private_is_forgotten(store: Store) -> None:
    island = Island(1)
    node = island.first()
    for number in (1, 2):
        await store.torrents.add(info_hash(number), {"private": "0"})
        node.announced.announce(info_hash(number), address(5), 0, seed=False)
    forgetter = Forgetter(store.dht_torrents, {4: node}, all_torrents=False, sleep=FakeTime())
    assert info_hash(1) in node.announced and info_hash(3) not in node.announced
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


async def test_a_change_that_the_store_could_not_confirm_is_looked_at_again(store: Store) -> None:
    """D15: as soon as it can, not only at the next regular check."""
    node = Island(1).first()
    node.announced.announce(info_hash(1), address(5), 0, seed=False)
    await store.torrents.add(info_hash(1), {"private": "1"})
    pauses = 0

    async def sleep(seconds: float) -> None:
        nonlocal pauses
        if seconds == CHECK_SECONDS:
            await asyncio.Event().wait()
        pauses += 1
        await asyncio.sleep(0)

    forgetter = Forgetter(store.dht_torrents, {4: node}, all_torrents=False, sleep=sleep)
    store.connection.unavailable = True
    async with in_background(forgetter.run(draws=False)):
        forgetter.changed(info_hash(1))
        await eventually(lambda: pauses >= 2)
        assert len(node.announced) == 1
        store.connection.unavailable = False
        await eventually(lambda: not len(node.announced))


async def test_changes_are_followed_as_they_are_published(store: Store) -> None:
    changed: list[InfoHash | None] = []
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follow_changes(store, changed.append))
        await eventually(lambda: changed == [None])
        await store.torrents.add(info_hash(1), {"private": "1"})
        await store.redis.publish(store.keys.channel("torrents"), "anything \xff")
        await eventually(lambda: changed == [None, info_hash(1), None])
        task.cancel()
