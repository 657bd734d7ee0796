"""D19: lookups of thin public swarms stay within a budget, and their results are kept."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.dht.test_node import Island, address, joined
from tests.fake_time import FakeTime
from tests.store.harness import START, Store, info_hash, update
from tests.workers.test_prober import Probes
from tracker.bittorrent import Endpoint
from tracker.dht.lookup import LookupResult
from tracker.errors import ClientError, Postponed
from tracker.settings.dht import DhtSettings
from tracker.store.dht.torrents import LOOK_UP_AGAIN_SECONDS
from tracker.workers.dht_lookups import AGAIN_SECONDS, LookupWorker, counts
from tracker.workers.dht_peers import PeerCollector
from tracker.workers.prober import is_target

PER_MINUTE = 10
DEFAULT = DhtSettings()


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

    return LookupWorker(
        store.dht_torrents,
        {4: island.first()},
        per_minute=PER_MINUTE,
        all_torrents=False,
        count=lambda outcome: counted.update([outcome]),
        clock=lambda: START + time.now,
        timer=lambda: island.now,
        collector=PeerCollector(
            store.dht_torrents,
            Probes(targets=is_target).prober,
            lambda: settings,
            clock=lambda: START + time.now,
            rng=random.Random(1),
        ),
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
        await store.dht_torrents.save_result(torrent, None, START, all_torrents=False)
    assert found == [info_hash(2), info_hash(3), info_hash(1)]
    time.now = LOOK_UP_AGAIN_SECONDS + 1
    assert [await chooser.next_torrent() for _ in range(2)].count(None) <= 1


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
        await store.dht_torrents.save_result(torrent, None, START, all_torrents=False)
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
    await store.dht_torrents.save_result(first, None, START, all_torrents=False)
    assert await chooser.next_torrent() is None


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
    giving = DhtSettings(give_peers=True, verify_peers=False)
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
    with pytest.raises(ClientError, match="takes no part"):
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
