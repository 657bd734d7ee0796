"""Steps of the tracker's clock, of the store's, and of both cost no peer its place, and no user a hit-and-run, a lease
or traffic."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, START, Clock, Store, info_hash, timeout_key, update
from tests.store.work.harness import add, claimed, project
from tracker.store.sharding.shards import Shard
from tracker.store.swarms.reaping import Reaping

NUMBERS_OF_SHARDS = (1, 4)
TIMEOUT, GRACE = 3600, 1860
MINUTE, HOUR, DAY = 60, 3600, 86_400
TORRENTS = range(1, 6)
TRACKER, STORE, BOTH = "tracker", "store", "both"


@dataclass
class Timer:
    now: float = 50.0

    def __call__(self) -> float:
        return self.now


class Machine:
    """A tracker of one process, whose clock and whose store's clock can be set. The server's clock is real, so it is
    ahead when the timer is behind, and timeouts are shortened by hand."""

    def __init__(self, store: Store) -> None:
        self.store, self.timer, self._passed = store, Timer(), 0.0
        self.reapings = [
            Reaping(shard, store.shards, store.rules, store.clock, timer=self.timer) for shard in store.shards.all
        ]

    async def heartbeat(self) -> None:
        await asyncio.gather(*(reaping.heartbeat() for reaping in self.reapings))

    async def step(self, which: str, seconds: int) -> None:
        if which == STORE:
            self.timer.now -= seconds + self._passed
            self._passed = 0.0
        else:
            self.store.clock.now += seconds
        if which != TRACKER:
            await self._shorten_timeouts(seconds)

    async def _shorten_timeouts(self, seconds: float) -> None:
        """The store's clock has gone on by so much."""
        pipe = self.store.redis.pipeline(transaction=False)
        all_shards = self.store.keys.prefix.partition("{")[0]
        keys = [key async for key in self.store.redis.scan_iter(f"{all_shards}*ptimeout:*", 10_000)]
        left = await pipe.execute() if [pipe.pttl(key) for key in keys] else []
        for key, milliseconds in zip(keys, left, strict=True):
            pipe.pexpire(key, int(milliseconds - 1000 * seconds))  # deletes it below 0
        await pipe.execute()

    async def end_timeout(self, torrent: int) -> None:
        ih = info_hash(torrent)
        tid, keys = (await self.store.torrent(ih))["tid"], self.store.shard(ih).keys
        await self.store.redis.delete(timeout_key(keys, tid, alice(torrent).peer_id))
        announced = int(self.store.clock.now) - TIMEOUT
        await self.store.redis.hset(keys.peer(tid, alice(torrent).peer_id), "last_announce", announced)

    async def pass_time(self, seconds: float) -> None:
        """Heartbeats in time, at most five seconds apart where that matters."""
        for part in [5.0] * min(4, int(seconds // 5)):
            await self._wait(part)
            await self.heartbeat()
            seconds -= part
        while seconds > 0:
            await self._wait(min(seconds, 55.0))
            await self.heartbeat()
            seconds -= min(seconds, 55.0)

    async def _wait(self, seconds: float) -> None:
        self.timer.now += seconds
        self._passed += seconds
        self.store.clock.now += seconds
        await self._shorten_timeouts(seconds)

    async def reap_all(self) -> int:
        """What the reaper does with expiry events, due lists and the sweep; returns how many peers it removed."""
        pairs = zip(self.reapings[-len(self.store.shards) :], self.store.shards, strict=True)
        return sum(await asyncio.gather(*(self._reap(*pair) for pair in pairs)))

    async def _reap(self, reaping: Reaping, shard: Shard) -> int:
        removed, prefix = 0, shard.keys.prefix
        for torrent_id in await self.torrent_ids(shard):
            ih = (await self.store.redis.get(f"{prefix}torrent_id:{torrent_id}")).decode()
            members = await self.store.redis.smembers(f"{prefix}tpeers:{ih}")
            removed += await reaping.reap([(torrent_id, member.decode()) for member in members])
        for key in [key async for key in self.store.redis.scan_iter(f"{prefix}due:*", 10_000)]:
            removed += (await reaping.reap_due(int(key.rpartition(b":")[2]), 0, 100, 100))[1]
        return removed + (await reaping.sweep(await self.torrent_ids(shard), "", 1000)).reaped

    async def torrent_ids(self, shard: Shard) -> list[str]:
        return [each.decode() for each in await self.store.redis.zrange(shard.keys.index("seeders"), 0, -1)]


def alice(torrent: int, event: str = "u", **changes: Any) -> Any:
    return update(torrent, event, torrent, passkey=ALICE, timeout_seconds=TIMEOUT, **changes)


@pytest.fixture
async def machine(make_store: MakeStore) -> Machine:
    """A user who downloads five torrents, and would have five hit-and-runs."""
    store = await make_store(
        accounts="required", peer_memory=3600, hnr_min_bytes=100, hnr_threshold=DAY, max_gap=7200, grace=GRACE,
        min_timeout=TIMEOUT, max_timeout=TIMEOUT,
    )  # fmt: skip
    await store.users.add("7", ALICE)
    machine = Machine(store)
    await machine.heartbeat()
    for torrent in TORRENTS:
        await store.announce(alice(torrent, "s"))
    await machine.pass_time(20)
    for torrent in TORRENTS:
        await store.announce(alice(torrent, downloaded=5000))
    await machine.pass_time(20)
    return machine


async def owed(machine: Machine) -> int:
    for shard in machine.store.shards:
        await machine.store.user_sums.save_changed(shard)
    return sum(number for _, number in await machine.store.users.hit_and_runs())


SEQUENCES: list[list[tuple[str, int]]] = [
    *([(which, seconds)] for which in (TRACKER, STORE, BOTH) for seconds in (90, -90, 2 * HOUR, -2 * HOUR)),
    *([(BOTH, seconds), (BOTH, -seconds)] for seconds in (20 * MINUTE, -20 * MINUTE, 2 * HOUR, -2 * HOUR, 9 * DAY)),
    *([(which, 2 * HOUR), (which, -2 * HOUR)] for which in (TRACKER, STORE)),
    *([(which, -2 * HOUR), (which, 2 * HOUR)] for which in (TRACKER, STORE)),
    [(TRACKER, -2 * HOUR), (STORE, 2 * HOUR)],
    [(STORE, 2 * HOUR), (TRACKER, -2 * HOUR)],
    [(BOTH, 50), (BOTH, 50), (BOTH, 50)],
    [(STORE, 50), (STORE, 50), (STORE, 50)],
]  # fmt: skip


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("sequence", SEQUENCES, ids=str)
async def test_no_peer_is_reaped_or_gets_a_hit_and_run(
    machine: Machine, sequence: list[tuple[str, int]], noticed: bool
) -> None:
    """Whether the reaper or the heartbeat is the first to run after a step."""
    for which, seconds in sequence:
        await machine.step(which, seconds)
        if not noticed:
            assert await machine.reap_all() == 0
        await machine.heartbeat()
        assert await machine.reap_all() == 0
        await machine.pass_time(20)
        assert await machine.reap_all() == 0
    await machine.pass_time(GRACE - 100)
    assert await machine.reap_all() == 0
    for torrent in TORRENTS[:-1]:
        await machine.store.announce(alice(torrent, downloaded=5000))
    await machine.end_timeout(TORRENTS[-1])
    await machine.pass_time(200)
    assert await machine.reap_all() == 1, "a peer that stays silent is removed"


async def test_a_step_ahead_and_back_between_two_heartbeats_is_noticed(machine: Machine) -> None:
    await machine.step(STORE, 2 * HOUR)
    assert await machine.reap_all() == 0
    await machine.step(STORE, -2 * HOUR)
    assert await machine.reap_all() == 0
    await machine.heartbeat()
    assert await machine.reap_all() == 0


async def test_a_step_back_and_ahead_between_two_heartbeats_ends_no_new_timeout(machine: Machine) -> None:
    """Timeouts that are set while the store's clock is behind are over when it is right again. Nothing else tells that
    it was behind: the peers get the rest of their time."""
    await machine.step(STORE, -2 * HOUR)
    for torrent in TORRENTS[:4]:
        await machine.store.announce(alice(torrent, downloaded=5000))
    await machine.store.announce(update(9, "s", torrent=2, passkey=ALICE, timeout_seconds=TIMEOUT))
    await machine.step(STORE, 2 * HOUR)
    for _ in range(2):
        assert await machine.reap_all() == 0
        await machine.heartbeat()
    await machine.pass_time(TIMEOUT - 100)
    assert await machine.reap_all() == 0 and await owed(machine) == 0
    await machine.pass_time(200)
    assert await machine.reap_all() == 6
    assert await owed(machine) == 5


async def test_random_steps_reap_no_peer_that_announces(machine: Machine) -> None:
    choice = random.Random(7)
    for _ in range(12):
        which = choice.choice((TRACKER, STORE, BOTH))
        await machine.step(which, choice.choice((-1, 1)) * choice.choice((7, 70, 700, 7000, 70_000)))
        assert await machine.reap_all() == 0
        await machine.pass_time(choice.choice((5, 20, 300)))
        assert await machine.reap_all() == 0
        for torrent in TORRENTS:
            await machine.store.announce(alice(torrent, downloaded=5000))
    assert await owed(machine) == 0


@pytest.mark.parametrize("seconds", [20 * MINUTE, 2 * HOUR])
async def test_traffic_and_time_across_steps_are_credited(machine: Machine, seconds: int) -> None:
    """Ahead for 20 s and back: of peers that announced before, meanwhile and after."""
    store = machine.store
    before = await store.users.find("7")
    uploaded = 0
    for way in (seconds, -seconds):
        await machine.step(BOTH, way)
        await machine.heartbeat()
        for torrent in TORRENTS[: 3 if way > 0 else 5]:
            uploaded += 10**8
            await store.announce(alice(torrent, downloaded=5000, uploaded=uploaded))
            await machine.pass_time(4)
    user = await store.users.find("7")
    gained = [10**8, 2 * 10**8, 3 * 10**8, 3 * 10**8, 3 * 10**8, 3 * 10**8, 7 * 10**8, 8 * 10**8]
    assert user.uploaded - before.uploaded == sum(gained)
    assert user.downloaded == before.downloaded
    times = [(await account_of(store, torrent))["total_time"] for torrent in TORRENTS]
    assert times == [52, 56, 60, 64, 68]


async def test_time_counts_again_at_once_after_a_step_back(machine: Machine) -> None:
    """The account remembers until when time was counted: two hours from now."""
    before = (await account_of(machine.store, 1))["total_time"]
    await machine.step(BOTH, -2 * HOUR)
    await machine.heartbeat()
    for _ in range(3):
        await machine.pass_time(100)
        await machine.store.announce(alice(1, downloaded=5000))
    assert (await account_of(machine.store, 1))["total_time"] == before + 320


async def test_a_limit_of_credit_holds_across_a_step_back(machine: Machine) -> None:
    """Steps give no more credit than a rate allows for the time that passed, and what was unused before."""
    store = machine.store
    limit, saved = store.rules.current.max_user_credit, store.rules.current.credit_saved
    await machine.step(BOTH, -2 * HOUR)
    await machine.heartbeat()
    for number in range(1, 11):
        await machine.pass_time(10)
        await store.announce(alice(1, downloaded=5000, uploaded=number * 10**13))
    assert (await store.users.find("7")).uploaded <= limit * (saved + 40 + 100)


async def test_an_announce_before_the_heartbeat_is_credited(machine: Machine) -> None:
    await machine.step(BOTH, -2 * HOUR)
    await machine.store.announce(alice(1, downloaded=5000, uploaded=10**9))
    await machine.heartbeat()
    await machine.pass_time(10)
    await machine.store.announce(alice(1, downloaded=5000, uploaded=2 * 10**9))
    assert (await machine.store.users.find("7")).uploaded == 2 * 10**9


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("sequence", [each for each in SEQUENCES if each[0][0] != STORE], ids=str)
async def test_leases_of_work_last_as_long_as_they_should(
    machine: Machine, sequence: list[tuple[str, int]], noticed: bool
) -> None:
    store = machine.store
    await project(store, lease_seconds=1000)
    await add(store, "a")
    claim = await claimed(store, "alice")
    for which, seconds in sequence:
        await machine.step(which, seconds)
        if not noticed:
            assert await store.work.claims.lapse("proj", 100) == 0
        await machine.heartbeat()
        assert await store.work.claims.lapse("proj", 100) == 0
        await machine.pass_time(20)
    assert await store.work.claims.extend("proj", "alice", "a", claim.token) is not None
    await machine.pass_time(900)
    assert await store.work.claims.lapse("proj", 100) == 0
    await machine.pass_time(300)
    assert await store.work.claims.lapse("proj", 100) == 1


async def test_a_lease_survives_a_sleep_of_the_machine(machine: Machine) -> None:
    """The clocks go on, and the timer of the process does not."""
    await project(machine.store, lease_seconds=1000)
    await add(machine.store, "a")
    await claimed(machine.store, "alice")
    machine.store.clock.now += HOUR
    machine.timer.now -= HOUR  # as seen by the timer, the store's clock is an hour ahead
    assert await machine.store.work.claims.lapse("proj", 100) == 0
    machine.timer.now += HOUR
    await machine.heartbeat()
    assert await machine.store.work.claims.lapse("proj", 100) == 0
    await machine.pass_time(900)
    assert await machine.store.work.claims.lapse("proj", 100) == 0


async def test_a_grace_period_is_as_long_as_it_should_be(make_store: MakeStore) -> None:
    """A clock that was ten days behind is set right, after the user has left."""
    store = await make_store(accounts="required", hnr_min_bytes=100, hnr_threshold=DAY, hnr_grace=3 * DAY, grace=GRACE)
    await store.users.add("7", ALICE)
    machine = Machine(store)
    await machine.heartbeat()
    await store.announce(alice(1, "s"))
    await store.announce(alice(1, downloaded=5000))
    await store.announce(alice(1, "x", downloaded=5000))
    await machine.step(TRACKER, 10 * DAY)
    assert await store.hit_and_runs.decide() == 0
    await machine.heartbeat()
    end = int(store.clock.now) + 3 * DAY
    assert [each.at for each in await store.hit_and_runs.pending()] == [end]
    tid = (await store.torrent(info_hash(1)))["tid"]
    assert [each.at for each in await store.hit_and_runs.pending_of("7", [tid])] == [end]
    await store.pass_time(2 * DAY)
    assert await store.hit_and_runs.decide() == 0
    await store.pass_time(DAY)
    assert await store.hit_and_runs.decide() == 1


async def test_processes_report_a_step_once(make_store: MakeStore) -> None:
    store = await make_store(grace=GRACE)
    processes = [Machine(store) for _ in range(3)]
    for process in processes:
        await process.heartbeat()
    for seconds in (2 * HOUR, -2 * HOUR, 30, -30):
        store.clock.now += 5 + seconds
        for process in processes:
            process.timer.now += 5
            await process.heartbeat()
        ahead = int((await store.redis.get(store.keys.gap())).split()[2])
        expected = {2 * HOUR: 2 * HOUR, -2 * HOUR: 0, 30: 30, -30: 0}[seconds]
        assert ahead == expected


async def test_trackers_whose_clocks_differ_are_no_interruption(make_store: MakeStore) -> None:
    """`tracker doctor` warns of it. Each start of a tracker is one, as its clock cannot be told from an outage."""
    store = await make_store(grace=GRACE)
    other = Store(store.url, store.keys, store.rules.current, Clock(START + 2 * HOUR), len(store.shards))
    one, two = Machine(store), Machine(other)
    gaps = []
    for _ in range(3):
        for each in (one, two):
            await each._wait(5)
            await each.heartbeat()
        gaps.append(await store.redis.get(store.keys.gap()))
    assert len(set(gaps)) == 1
    await other.connection.close()


async def account_of(store: Store, torrent: int) -> dict[str, int]:
    ih = info_hash(torrent)
    shard = store.shard(ih)
    tid = (await store.torrent(ih))["tid"]
    row = await store.redis.hgetall(shard.keys.user_torrent("7", tid))
    return {k.decode(): int(v) for k, v in row.items() if k != b"peer_ids"}
