"""D9, D15: public torrents among the samples: never others, the same for an interval, and none that has left."""

import asyncio
import random

import pytest

from tests.dht.test_node import address
from tests.fake_time import FakeTime
from tests.store.harness import Store, info_hash
from tests.waiting import in_background
from tracker.app.dht import build_nodes
from tracker.bittorrent import InfoHash
from tracker.dht.node import DhtNode
from tracker.settings.background import DhtSettings
from tracker.store.dht.nodes import SavedNode
from tracker.wire.krpc import Answer, NodeId, Query, SampleInfohashes, encode_query, parse_message
from tracker.workers.dht import SHOWN_SECONDS, Forgetter
from tracker.workers.loop import forever

INTERVAL = 3600
PUBLIC, PRIVATE, UNKNOWN = range(1, 51), range(51, 61), range(61, 71)


class Shown:
    """A node as a tracker builds it, and its worker."""

    def __init__(self, store: Store, *, all_torrents: bool = False) -> None:
        settings = DhtSettings(samples="public", private_addresses=True, address_burst=1000)
        self.node: DhtNode = build_nodes(settings, [4], SavedNode(), 0)[4]
        self.time = FakeTime()
        self.worker = Forgetter(
            store.dht_torrents,
            {4: self.node},
            all_torrents=all_torrents,
            timer=self.time.timer,
            rng=random.Random(1),
            sleep=self.time,
        )

    def answer(self) -> tuple[list[InfoHash], int, int]:
        """What another node gets: info hashes, the size of what they were drawn from, and the interval."""
        query = encode_query(Query(b"aa", NodeId(b"a" * 20), SampleInfohashes(bytes(20))))
        self.node.receive(query, address(1), self.time.now)
        found = [parse_message(data) for _, data in self.node.take_datagrams()]
        (answer,) = (each for each in found if isinstance(each, Answer))
        assert answer.samples is not None
        packed, total, interval = answer.samples
        return [InfoHash(packed[at : at + 20]) for at in range(0, len(packed), 20)], total, interval

    def announce(self, *numbers: int) -> None:
        for number in numbers:
            self.node.announced.announce(info_hash(number), address(2), self.time.now, seed=True)


async def fill(store: Store) -> None:
    for numbers, fields in ((PUBLIC, {"private": "0"}), (PRIVATE, {"private": "1"}), (UNKNOWN, {})):
        await asyncio.gather(*(store.torrents.add(info_hash(number), fields) for number in numbers))


async def test_only_public_torrents_are_shown_and_the_same_for_an_interval(store: Store) -> None:
    await fill(store)
    shown = Shown(store)
    shown.announce(1, 2)
    assert shown.answer() == ([], 0, 0)
    await shown.worker.draw()
    first, total, interval = shown.answer()
    assert (len(set(first)), total, interval) == (20, len(PUBLIC), INTERVAL)
    assert set(first) <= {info_hash(number) for number in PUBLIC}
    for now in (10, INTERVAL - 1):
        shown.time.now = now
        await shown.worker.draw()
        assert shown.answer() == (first, total, INTERVAL - now)
    shown.time.now = INTERVAL
    assert shown.answer() == (first, total, 0), "a packet draws none"
    await shown.worker.draw()
    second, *others = shown.answer()
    assert set(second) != set(first) and others == [total, interval]


@pytest.mark.parametrize("change", ["private", "unknown", "disabled", "pending", "denied", "removed"])
async def test_a_torrent_that_takes_part_no_longer_is_not_shown_after_ten_seconds(store: Store, change: str) -> None:
    for number in (1, 2):
        await store.torrents.add(info_hash(number), {"private": "0"})
    shown = Shown(store)
    async with in_background(forever(shown.worker.draw, SHOWN_SECONDS, sleep=shown.time)):
        await shown.time.pass_until(lambda: shown.answer()[1] == 2)
        if change == "private":
            await store.torrents.edit(info_hash(1), {"private": "1"})
        elif change == "unknown":
            await store.redis.hdel(store.keys.torrent(info_hash(1)), "private")
        elif change in ("disabled", "pending"):
            await store.torrents.edit(info_hash(1), {"enabled": {"disabled": "0"}.get(change, change)})
        elif change == "denied":
            await store.torrents.deny(info_hash(1), "no")
        else:
            await store.torrents.remove(info_hash(1))
        changed = shown.time.now
        await shown.time.pass_until(lambda: shown.answer()[:2] == ([info_hash(2)], 1))
    assert shown.time.now - changed <= 10


async def test_a_published_change_applies_at_once(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"private": "0"})
    shown = Shown(store)
    await shown.worker.draw()
    assert shown.answer()[0] == [info_hash(1)]
    await store.torrents.edit(info_hash(1), {"private": "1"})
    shown.worker.changed(info_hash(1))
    await shown.worker.round()
    assert shown.answer() == ([], 0, INTERVAL)


async def test_nothing_is_shown_without_the_store(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"private": "0"})
    shown = Shown(store)
    await shown.worker.draw()
    store.connection.unavailable = True
    await shown.worker.draw()
    assert shown.answer() == ([], 0, 0)
    store.connection.unavailable = False
    await shown.worker.draw()
    assert shown.answer() == ([info_hash(1)], 1, INTERVAL)


async def test_where_all_torrents_take_part_announced_ones_are_shown_too(store: Store) -> None:
    """Those of unknown privacy only if a node announced them."""
    await fill(store)
    for number in PUBLIC[5:]:
        await store.torrents.remove(info_hash(number))
    announced = UNKNOWN[0], PUBLIC[0], 99
    shown = Shown(store, all_torrents=True)
    shown.announce(*announced, PRIVATE[0])
    await shown.worker.draw()
    hashes, total, _ = shown.answer()
    assert set(hashes) == {info_hash(number) for number in (*PUBLIC[:5], *announced)} and total == 7
    await store.torrents.edit(info_hash(UNKNOWN[0]), {"private": "1"})
    await shown.worker.draw()
    assert info_hash(UNKNOWN[0]) not in shown.answer()[0]
