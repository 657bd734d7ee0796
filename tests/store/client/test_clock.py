"""The store's clock: what counts as a jump. A jump removes no active peer and keeps no timed-out one."""

from dataclasses import dataclass

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import START, Store, info_hash, peer_id, timeout_key, update
from tracker.store.client.clock import ClockStepBack, StoreClock, own_step, seconds_ahead
from tracker.store.swarms.reaping import Reaping
from tracker.store.swarms.rules import LiveRules, SwarmRules

HOUR = 3600
TIMEOUT = 2700
RULES = SwarmRules(min_timeout=TIMEOUT, max_timeout=TIMEOUT, grace=2700)


@dataclass
class Timer:
    now: float = 50.0

    def __call__(self) -> float:
        return self.now


def test_passing_time_is_no_jump() -> None:
    timer = Timer()
    clock = StoreClock(timer)
    unknown = clock.expected
    assert unknown == ""
    assert clock.note(START, START + 7) == 0
    timer.now += 5
    assert clock.expected == START + 12
    assert clock.note(START + 5, START + 12) == 0
    timer.now += 1000
    assert clock.note(START + 5, START + 1012 + 59) == 0, "the tracker's clock may jump, and a minute is no jump"
    assert clock.step_back is None


def test_a_jump_ahead_is_reported_once() -> None:
    timer = Timer()
    clock = StoreClock(timer)
    clock.note(START, START)
    timer.now += 5
    assert clock.note(START + 5, START + 5 + HOUR) == HOUR
    timer.now += 5
    assert clock.note(START + 10, START + 10 + HOUR) == 0
    assert clock.step_back is None


def test_a_step_back_is_remembered_until_it_is_handled() -> None:
    timer = Timer()
    clock = StoreClock(timer)
    clock.note(START, START)
    timer.now += 5
    assert clock.note(START + 5, START + 5 - HOUR) == -HOUR
    assert clock.step_back == ClockStepBack(HOUR, START - 1)
    timer.now += 5
    assert clock.note(START + 10, START + 10 - 2 * HOUR) == -HOUR
    assert clock.step_back == ClockStepBack(2 * HOUR, START + 4)


def test_small_jumps_add_up() -> None:
    clock = StoreClock(Timer())
    clock.note(START, START)
    assert [clock.note(START, START + seconds) for seconds in (25, 50, 75, 100)] == [0, 0, 75, 0]


def test_a_process_knows_the_steps_of_its_clock_since_its_last_heartbeat() -> None:
    assert own_step(None, 50.0, START) == ("", 0), "nothing to compare with"
    last = 50.0, START
    assert own_step(last, 55.0, START + 5) == (0, 5)
    assert own_step(last, 55.0, START + 5 + HOUR) == (HOUR, 5)
    assert own_step(last, 55.0, START + 5 - HOUR) == (-HOUR, 5), "the heartbeat did not arrive: it is asked again"
    assert own_step(last, 111.0, START + 61) == ("", 0), "an outage may have begun"


@pytest.mark.parametrize(("gap", "seconds"), [(None, 0), (b"5 9 4 0", 4), (b"9 5 -4 4", -4), (b"5 9", 0), (b"x", 0)])
def test_the_distance_from_the_steady_clock_is_read(gap: bytes | None, seconds: int) -> None:
    assert seconds_ahead(gap) == seconds


@pytest.fixture
async def store(make_store: MakeStore) -> Store:
    return await make_store(min_timeout=TIMEOUT, max_timeout=TIMEOUT, grace=2700)


def on(store: Store, timer: Timer) -> Reaping:
    """The reaping of another tracker, for which the store's clock jumps when ``timer`` does."""
    return Reaping(store.shards.main, store.shards, LiveRules(RULES), store.clock, timer=timer)


async def members(store: Store) -> int:
    return int(await store.redis.scard(store.keys.swarm_peers(info_hash(1))))


@pytest.mark.parametrize("noticed", [False, True])
async def test_a_jump_ahead_reaps_no_active_peer(store: Store, noticed: bool) -> None:
    """The timeouts of peers that announced a minute ago end all together."""
    timer = Timer()
    reaping = on(store, timer)
    await reaping.heartbeat()
    await store.announce(update(1, "s", timeout_seconds=TIMEOUT))
    await store.announce(update(2, "s", timeout_seconds=TIMEOUT))
    await store.pass_time(5)
    for peer in (1, 2):
        await store.redis.delete(timeout_key(store.keys, 1, peer_id(peer)))
    timer.now -= HOUR
    if noticed:
        assert await reaping.heartbeat() == int(store.clock.now)
    assert await reaping.reap([("1", peer_id(1).hex())]) == 0
    [due] = [int(key.rpartition(b":")[2]) async for key in store.redis.scan_iter(f"{store.keys.prefix}due:1*")]
    assert await reaping.reap_due(due, 0, 64, 64) == (2, 0)
    assert (await reaping.sweep(["1"], "", 200)).reaped == 0
    assert await members(store) == 2

    await reaping.heartbeat()
    await store.pass_time(60)
    await store.announce(update(2, timeout_seconds=TIMEOUT))
    await store.pass_time(RULES.grace)
    assert (await reaping.sweep(["1"], "", 200)).reaped == 1, (
        "a peer that stays silent is removed after a reap interval"
    )
    assert await members(store) == 1


async def test_timeouts_set_before_a_step_back_do_not_last_longer(store: Store) -> None:
    timer = Timer()
    reaping = on(store, timer)
    await reaping.heartbeat()
    await store.pass_time(10)
    for peer, seconds in ((1, TIMEOUT), (2, TIMEOUT), (3, 20)):
        await store.announce(update(peer, "s", timeout_seconds=seconds))
        await store.redis.pexpire(timeout_key(store.keys, 1, peer_id(peer)), (seconds + HOUR) * 1000)
    await store.pass_time(10)
    await store.announce(update(2, timeout_seconds=TIMEOUT))  # its timeout is set after the step
    timer.now += HOUR
    await reaping.heartbeat()
    noticed = reaping.was_set_back
    assert noticed
    await reaping.shorten_timeouts()
    assert not reaping.was_set_back
    left = [await store.redis.ttl(timeout_key(store.keys, 1, peer_id(peer))) for peer in (1, 2, 3)]
    assert [round(seconds, -2) for seconds in left] == [2700, 2700, 0] and left[2] > 0
    await reaping.shorten_timeouts()
    assert await store.redis.ttl(timeout_key(store.keys, 1, peer_id(1))) > TIMEOUT - 100


async def test_a_step_back_below_the_maximum_timeout_is_ignored(store: Store) -> None:
    timer = Timer()
    reaping = on(store, timer)
    await reaping.heartbeat()
    await store.announce(update(1, "s", timeout_seconds=TIMEOUT))
    timer.now += 600
    await reaping.heartbeat()
    await reaping.shorten_timeouts()
    assert await store.redis.ttl(timeout_key(store.keys, 1, peer_id(1))) > TIMEOUT - 100
