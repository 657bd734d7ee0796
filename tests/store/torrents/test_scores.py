"""Turns, leases and results of scorings on a real store (rows B1 to B6)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from redis.exceptions import ResponseError

from tests.store.harness import SCORED_EVERY, START, Store, endpoint, info_hash, peer_id, update
from tests.store.jobs.harness import number_of
from tracker.core.scoring import EMPTY, STRONG, WEAK, next_score
from tracker.store.torrents.scores import (
    COUNTED_ONCE_IN_SECONDS,
    LEASE_SECONDS,
    Lag,
    Leased,
    Scored,
    ScorePlace,
    Scores,
    Taken,
)
from tracker.store.torrents.torrents import Point

CAP = 4.0
HOUR = 3600


async def register(store: Store, count: int) -> None:
    """Registers torrents 1 to ``count``."""
    for number in range(1, count + 1):
        await store.torrents.add(info_hash(number))


async def scores(store: Store) -> dict[str, float]:
    return dict(await store.top_scores(10_000))


async def times(store: Store) -> dict[str, float]:
    """The time of the last scoring of each torrent."""
    pairs = await store.redis.zrange(store.keys.processed(), 0, -1, withscores=True)
    return {torrent_id.decode(): time for torrent_id, time in pairs}


async def set_score(store: Store, torrent: int | str, score: float) -> None:
    await store.redis.zadd(store.keys.index("score"), {str(torrent): score})


async def score_all(store: Store, by: float, count: int = 50) -> int:
    """Scores each torrent that is due; returns how many counted as processed."""
    taken = await store.scores.take(count)
    return (await store.scores.finish([Scored(t, next_score(t.score, by, CAP)) for t in taken])).counted


# Turns


async def test_a_torrent_is_scored_an_interval_after_its_entry_and_each_scoring(store: Store) -> None:
    """B1, B2."""
    await store.announce(update(1, "s"))
    assert await store.scores.take(50) == []
    for turn in range(1, 4):
        store.clock.now += SCORED_EVERY - 1
        assert await store.scores.take(50) == []
        store.clock.now += 1
        await score_all(store, STRONG)
        assert await scores(store) == {"1": pytest.approx(1.2**turn)}
        assert await times(store) == {"1": store.clock.now}


async def test_a_taken_torrent_carries_the_state_of_its_swarm(store: Store) -> None:
    await store.announce(update(1, "s", bytes_left=0))
    await store.announce(update(2, "s"))
    await store.announce(update(3, "s"))
    await store.redis.hset(store.keys.torrent(info_hash(1)), "new", 7)
    store.clock.now += SCORED_EVERY + 100
    (taken,) = await store.scores.take(50)
    assert (taken.torrent_id, taken.info_hash, taken.score) == ("1", info_hash(1), 1.0)
    assert (taken.seeders, taken.leechers, taken.new) == (1, 2, 7)
    assert taken.waited_seconds == SCORED_EVERY + 100


async def test_a_taken_torrent_is_not_given_out_again(store: Store) -> None:
    await register(store, 120)
    store.clock.now += SCORED_EVERY
    batches = await asyncio.gather(*(store.scores.take(50) for _ in range(4)))
    assert sorted(len(batch) for batch in batches) == [0, 20, 50, 50]
    ids = [taken.torrent_id for batch in batches for taken in batch]
    assert len(set(ids)) == 120
    tokens = [taken.token for batch in batches for taken in batch]
    assert len(set(tokens)) == 120


async def test_half_of_the_turns_go_to_the_maximum_wait_and_half_to_the_best(store: Store) -> None:
    """B4: the torrents that waited for the maximum time; of the others rather high scores than low ones."""
    await register(store, 100)
    for number in range(1, 101):
        await store.redis.zadd(store.keys.processed(), {str(number): START + number})
        await set_score(store, number, 4.0 if number > 60 and number % 2 else 0.01)
    store.clock.now = START + 100 + SCORED_EVERY
    chosen: Counter[str] = Counter()
    for _ in range(10):
        batch = await store.scores.take(20)
        assert [t.torrent_id for t in batch[:10]] == [str(n) for n in range(1, 11)]
        assert len({t.torrent_id for t in batch}) == 20
        chosen.update(t.torrent_id for t in batch[10:])
        await store.scores.give_back(batch)
    good = sum(n for torrent, n in chosen.items() if int(torrent) > 60 and int(torrent) % 2)
    assert good > 45


async def test_an_odd_number_of_turns_is_halved_alternately(store: Store) -> None:
    await register(store, 40)
    await store.redis.zadd(store.keys.processed(), {"1": START - 1000})
    await set_score(store, 1, 0.006)
    store.clock.now += SCORED_EVERY
    first = []
    for _ in range(8):
        batch = await store.scores.take(1)
        first.append(batch[0].torrent_id == "1")
        await store.scores.give_back(batch)
    assert first[::2] == [True] * 4 and sum(first[1::2]) < 4


async def test_a_torrent_can_be_taken_by_its_id_before_its_turn(store: Store) -> None:
    await register(store, 2)
    taken = await store.scores.take_one("2")
    assert taken is not None and taken.info_hash == info_hash(2)
    store.clock.now += 20
    with pytest.raises(Leased) as leased:
        await store.scores.take_one("2")
    assert leased.value.seconds == LEASE_SECONDS - 20
    assert await store.scores.take_one("99") is None
    await store.scores.finish([Scored(taken, 1.2)])
    assert await scores(store) == {"1": 1.0, "2": 1.2}
    store.clock.now += 10
    again = await store.scores.take_one("2")
    assert again is not None and number_of(again.token) > number_of(taken.token)
    await store.scores.finish([Scored(again, None)])
    assert await store.scores.take_one("2") is None, "it has left the ranking"


# Results


@pytest.mark.parametrize(("by", "turn"), [(EMPTY, 8), (WEAK, 24)])
async def test_a_torrent_leaves_the_ranking_and_stays_registered(store: Store, by: float, turn: int) -> None:
    """B3: on the 8th empty and the 24th weak processing, with the numbers as stored."""
    await store.announce(update(1, "s"))
    for number in range(1, turn + 1):
        assert await store.scores.count() == 1, number
        store.clock.now += SCORED_EVERY
        assert await score_all(store, by) == 1
    assert await store.scores.count() == 0 and await times(store) == {}
    torrent = await store.torrents.get(info_hash(1))
    assert torrent is not None and torrent.registered and torrent.leechers == 1
    store.clock.now += SCORED_EVERY
    assert await store.scores.take(50) == []
    await store.announce(update(1))
    assert await store.scores.count() == 0
    await store.announce(update(2, "s"))
    assert await scores(store) == {"1": 1.0}


async def test_a_join_during_the_scoring_keeps_a_weak_torrent_in_the_ranking(store: Store) -> None:
    """B3: a join after the scoring would bring it back. Leaving peers and other announces do not keep it."""
    for event in ("s", "u", "x"):
        await store.announce(update(1, "s"))
        store.clock.now += SCORED_EVERY
        (taken,) = await store.scores.take(50)
        await store.announce(update(2 if event == "s" else 1, event))
        await store.scores.finish([Scored(taken, None)])
        assert await scores(store) == ({"1": 1.0} if event == "s" else {})
        await store.announce(update(1, "x"))
        await store.announce(update(2, "x"))


async def test_a_stored_score_is_exact(store: Store) -> None:
    """B3: no digit is lost, whatever the order of multiplications."""
    await store.announce(update(1, "s"))
    expected = 1.0
    for turn in range(60):
        by = (STRONG, WEAK, STRONG, STRONG, WEAK)[turn % 5]
        expected = min(CAP, expected * by)
        store.clock.now += SCORED_EVERY
        await score_all(store, by)
        assert await scores(store) == {"1": expected}


async def test_a_result_counts_once(store: Store) -> None:
    """B2: a second result, or one after the end of the lease, is void."""
    await store.announce(update(1, "s"))
    store.clock.now += SCORED_EVERY
    (taken,) = await store.scores.take(50)
    assert (await store.scores.finish([Scored(taken, 0.8)])).void == ()
    again = await store.scores.finish([Scored(taken, 0.64)])
    assert (again.counted, again.void) == (0, ("1",))
    assert await scores(store) == {"1": 0.8}


async def test_a_lapsed_lease_returns_the_torrent_with_its_old_score(store: Store) -> None:
    """B5: the late worker's result is void."""
    await store.announce(update(1, "s"))
    await set_score(store, 1, 2.5)
    store.clock.now += SCORED_EVERY
    (late,) = await store.scores.take(50)
    store.clock.now += LEASE_SECONDS - 1
    assert await store.scores.take(50) == []
    store.clock.now += 1
    (taken,) = await store.scores.take(50)
    assert taken.score == 2.5 and number_of(taken.token) > number_of(late.token)
    assert (await store.scores.finish([Scored(late, 0.1)])).void == ("1",)
    assert await scores(store) == {"1": 2.5}
    assert (await store.scores.finish([Scored(taken, 3.0)])).void == ()
    assert await scores(store) == {"1": 3.0}


async def test_a_lease_set_by_a_clock_that_was_ahead_ends_in_time(store: Store) -> None:
    """B5: the worker was killed, and the clock was corrected."""
    await register(store, 2)
    store.clock.now += 30 * 24 * HOUR
    assert len(await store.scores.take(50)) == 2
    store.clock.now = START + SCORED_EVERY
    one = await store.scores.take_one("1")
    assert one is not None
    with pytest.raises(Leased):
        await store.scores.take_one("1")
    assert [taken.torrent_id for taken in await store.scores.take(50)] == ["2"]


async def test_small_differences_between_clocks_end_no_lease(store: Store) -> None:
    await register(store, 2)
    store.clock.now += SCORED_EVERY + 600
    ahead = await store.scores.take(50)
    store.clock.now -= 600
    assert await store.scores.take(50) == []
    assert (await store.scores.finish([Scored(taken, 1.2) for taken in ahead])).void == ()


async def test_a_returned_torrent_keeps_its_score_and_turn(store: Store) -> None:
    await register(store, 3)
    store.clock.now += SCORED_EVERY
    before = await store.redis.zrange(store.keys.processed(), 0, -1, withscores=True)
    await store.scores.give_back(await store.scores.take(50))
    assert await store.redis.zrange(store.keys.processed(), 0, -1, withscores=True) == before
    assert await store.redis.zcard(store.keys.leases("torrents")) == 0
    assert await store.redis.hlen(f"{store.keys.prefix}leases:torrents:tokens") == 0
    assert len(await store.scores.take(50)) == 3
    await store.scores.give_back([])


async def test_new_users_are_taken_once_and_later_ones_kept(store: Store) -> None:
    """B2: users counted between taking and result belong to the next scoring."""
    await store.announce(update(1, "s"))
    key = store.keys.torrent(info_hash(1))
    await store.redis.hset(key, "new", 5)
    store.clock.now += SCORED_EVERY
    (taken,) = await store.scores.take(50)
    await store.redis.hincrby(key, "new", 2)
    await store.scores.finish([Scored(taken, 1.0)])
    assert await store.redis.hget(key, "new") == b"2"
    store.clock.now += SCORED_EVERY
    (taken,) = await store.scores.take(50)
    assert taken.new == 2
    await store.redis.hset(key, "new", 1)  # another program lowered it
    await store.scores.finish([Scored(taken, 1.0)])
    assert await store.redis.hget(key, "new") == b"0"


async def test_a_torrent_that_was_not_scored_keeps_its_new_users(store: Store) -> None:
    """B5."""
    await store.announce(update(1, "s"))
    await store.redis.hset(store.keys.torrent(info_hash(1)), "new", 5)
    store.clock.now += SCORED_EVERY
    await store.scores.give_back(await store.scores.take(50))
    (taken,) = await store.scores.take(50)
    assert taken.new == 5


async def test_a_torrent_counts_as_processed_once_an_hour(store: Store) -> None:
    """B7: however often it is requested."""
    await store.announce(update(1, "s"))
    counted = []
    for _ in range(13):
        store.clock.now += 600
        taken = await store.scores.take_one("1")
        assert taken is not None
        counted.append((await store.scores.finish([Scored(taken, 1.0)])).counted)
    assert counted == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    assert COUNTED_ONCE_IN_SECONDS == HOUR


async def test_a_reset_restarts_the_score_and_voids_a_scoring_in_progress(store: Store) -> None:
    """B6: on request, also for a torrent that has left the ranking."""
    await register(store, 3)
    await set_score(store, 1, 3.5)
    await store.redis.zrem(store.keys.index("score"), "2")
    await store.redis.zrem(store.keys.processed(), "2")
    taken = await store.scores.take_one("1")
    assert taken is not None
    store.clock.now += 60
    for number in (1, 2):
        await store.torrents.add(info_hash(number), reset_score=True)
    assert (await store.scores.finish([Scored(taken, 3.0)])).void == ("1",)
    assert await scores(store) == {"1": 1.0, "2": 1.0, "3": 1.0}
    assert await times(store) == {"1": START, "2": START + 60, "3": START}


async def test_a_second_registration_keeps_the_score_without_a_request(store: Store) -> None:
    """B6."""
    await store.torrents.add(info_hash(1))
    await set_score(store, 1, 3.5)
    await store.torrents.add(info_hash(1), {"name": "known"})
    assert await scores(store) == {"1": 3.5}
    await store.torrents.add(info_hash(1), reset_score=True)
    assert await scores(store) == {"1": 1.0}


# Changes by other programs meanwhile


async def test_a_removed_torrent_is_not_scored(store: Store) -> None:
    await register(store, 3)
    await store.redis.delete(store.keys.torrent_id("1"))
    store.clock.now += SCORED_EVERY
    assert {t.torrent_id for t in await store.scores.take(50)} == {"2", "3"}
    assert (await scores(store)).keys() == (await times(store)).keys() == {"2", "3"}


async def test_a_torrent_removed_during_its_scoring_does_not_return(store: Store) -> None:
    await register(store, 2)
    store.clock.now += SCORED_EVERY
    batch = await store.scores.take(50)
    await store.torrents.remove(info_hash(1))
    finished = await store.scores.finish([Scored(taken, 1.2) for taken in batch])
    assert (finished.counted, finished.void) == (1, ("1",))
    assert await scores(store) == {"2": 1.2} and (await times(store)).keys() == {"2"}
    assert not await store.redis.exists(store.keys.torrent(info_hash(1)))
    assert await store.redis.zcard(store.keys.leases("torrents")) == 0


async def test_a_broken_torrent_does_not_stop_the_others(store: Store) -> None:
    await register(store, 6)
    await store.redis.delete(store.keys.torrent(info_hash(1)))
    await store.redis.set(store.keys.torrent(info_hash(1)), "no hash")
    await store.redis.delete(store.keys.torrent(info_hash(2)))
    await store.redis.set(store.keys.torrent_id("3"), "no info hash")
    await store.redis.delete(store.keys.torrent_id("4"))
    await store.redis.sadd(store.keys.torrent_id("4"), "no text")
    wrong = {"new": "many", "seeders": "-1", "leechers": "9" * 5000}
    await store.redis.hset(store.keys.torrent(info_hash(5)), mapping=wrong)
    store.clock.now += SCORED_EVERY
    batch = await store.scores.take(50)
    assert {t.torrent_id: (t.new, t.seeders) for t in batch} == {"5": (0, 0), "6": (0, 0)}
    assert (await store.scores.finish([Scored(taken, 1.2) for taken in batch])).counted == 2


async def test_a_torrent_broken_during_its_scoring_is_void_alone(store: Store) -> None:
    await register(store, 2)
    store.clock.now += SCORED_EVERY
    batch = await store.scores.take(50)
    await store.redis.delete(store.keys.torrent(info_hash(1)))
    await store.redis.set(store.keys.torrent(info_hash(1)), "no hash")
    finished = await store.scores.finish([Scored(taken, 1.2) for taken in batch])
    assert (finished.counted, finished.void) == (1, ("1",))
    assert await scores(store) == {"1": 1.0, "2": 1.2}


async def test_a_ranking_written_by_a_site_gets_its_turns(store: Store) -> None:
    """Scores without a time start waiting, times without a score are forgotten, and times in the future are reset."""
    await register(store, 4)
    await store.redis.zrem(store.keys.processed(), "1", "2")
    await store.scores.take(50)
    assert await times(store) == dict.fromkeys("1234", START)
    await store.redis.zrem(store.keys.index("score"), "3")
    await store.redis.zadd(store.keys.processed(), {"4": START + 10**8})
    store.clock.now += SCORED_EVERY
    assert {t.torrent_id for t in await store.scores.take(50)} == {"1", "2"}
    assert (await times(store)).keys() == {"1", "2", "4"}
    store.clock.now += SCORED_EVERY
    assert "4" in {t.torrent_id for t in await store.scores.take(50)}


@pytest.mark.parametrize("key", ["i:score", "i:processed", "leases:torrents", "leases:torrents:tokens", "lease"])
async def test_keys_of_the_wrong_type_change_nothing(store: Store, key: str) -> None:
    await register(store, 3)
    store.clock.now += SCORED_EVERY
    (taken,) = await store.scores.take(1)
    name = store.keys.prefix + key
    await store.redis.delete(name)
    await store.redis.sadd(name, "a set")
    before = await store.dump()
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await store.scores.take(50)
    with suppress(ResponseError):
        await store.scores.finish([Scored(taken, 1.2)])
    if key != "lease":
        assert await store.dump() == before


# Rankings and counts


async def test_the_ranking_is_readable(store: Store) -> None:
    """``t:i:score`` is a ranking like the others: for redis-cli and for the command line."""
    await register(store, 4)
    for number, score in enumerate((0.5, 4.0, 1.0, 2.0), 1):
        await set_score(store, number, score)
    assert await store.top_scores(2) == [("2", 4.0), ("4", 2.0)]
    assert await store.top_scores(9, offset=3) == [("1", 0.5)]
    assert await store.top_scores(9, offset=4) == []
    assert [(t.torrent_id, t.score) for t in await store.torrents.top("score", 2)] == [("2", 4.0), ("4", 2.0)]
    await store.redis.zrem(store.keys.index("score"), "1")
    torrent = await store.torrents.get(info_hash(1))
    assert torrent is not None and torrent.score is None


async def test_the_lag_is_the_overdue_time(store: Store) -> None:
    """B7."""
    assert await store.scores.lag() == Lag(count=0, waiting=0, late=0, longest_seconds=0)
    await register(store, 3)
    assert await store.scores.lag() == Lag(count=3, waiting=0, late=0, longest_seconds=0)
    store.clock.now += SCORED_EVERY
    assert await store.scores.lag() == Lag(count=3, waiting=3, late=0, longest_seconds=SCORED_EVERY)
    store.clock.now += SCORED_EVERY
    assert (await store.scores.lag()).late == 0
    store.clock.now += 1
    await store.scores.take(1)
    assert await store.scores.lag() == Lag(count=3, waiting=2, late=3, longest_seconds=2 * SCORED_EVERY + 1)


# Fairness, hour by hour


class Simulation:
    """Scores torrents at a steady pace on the test's clock. ``score_of`` returns each torrent's next score."""

    def __init__(self, store: Store, per_hour: int, score_of: Callable[[Taken], float], batch: int = 5) -> None:
        self.store, self.score_of, self.batch = store, score_of, batch
        self.step = HOUR * batch / per_hour
        self.turns: Counter[str] = Counter()
        self.max_wait = 0.0

    async def run(self, hours: float) -> None:
        for _ in range(int(hours * HOUR / self.step)):
            self.store.clock.now += self.step
            taken = await self.store.scores.take(self.batch)
            self.turns.update(t.torrent_id for t in taken)
            self.max_wait = max(self.max_wait, *(t.waited_seconds for t in taken), 0)
            await self.store.scores.finish([Scored(t, self.score_of(t)) for t in taken])
        waiting = (await self.store.scores.lag()).longest_seconds
        self.max_wait = max(self.max_wait, waiting)


def _steady(taken: Taken) -> float:
    return taken.score


def _extreme(taken: Taken) -> float:
    return 0.005 if int(taken.torrent_id) % 10 == 0 else 4.0


def _contrary(taken: Taken) -> float:
    """A long wait lowers the score and a short one raises it: the worst case for waiting torrents."""
    return 0.005 if taken.waited_seconds > 2 * HOUR else 4.0


@pytest.mark.parametrize("score_of", [_steady, _extreme, _contrary])
async def test_every_torrent_gets_a_turn_whatever_the_scores(store: Store, score_of: Callable[[Taken], float]) -> None:
    """B4: N torrents and capacity C per hour: within 2N/C hours, here 2 * 120 / 60 = 4."""
    await register(store, 120)
    simulation = Simulation(store, per_hour=60, score_of=score_of)
    await simulation.run(hours=20)
    assert len(simulation.turns) == 120
    assert simulation.turns.total() == 19 * 60 + 5, "no turn is unused once torrents are due"
    assert simulation.max_wait <= 4 * HOUR + simulation.step


async def test_new_torrents_starve_no_other(store: Store) -> None:
    """B4: a stream of new torrents with high scores, each waiting its interval, beside old ones with low scores."""
    await register(store, 60)
    for number in range(1, 61):
        await set_score(store, number, 0.006)
    simulation = Simulation(store, per_hour=60, score_of=_steady)
    for hour in range(10):
        for number in range(6):
            torrent_id, _ = await store.torrents.add(info_hash(1000 + 6 * hour + number))
            await set_score(store, torrent_id, 4.0)
        await simulation.run(hours=1)
    assert all(simulation.turns[str(number)] for number in range(1, 61))
    assert simulation.max_wait <= 2 * 120 / 60 * HOUR + simulation.step


@pytest.mark.parametrize("share", [2, 10], ids=["half", "a tenth"])
async def test_a_doubled_score_is_scored_more_often(store: Store, share: int) -> None:
    """B4: where capacity is short, whether many torrents or few have that score."""
    count = 100
    await register(store, count)
    better = {str(number) for number in range(1, count + 1) if number % share == 0}
    for torrent_id in better:
        await set_score(store, torrent_id, 2.0)
    simulation = Simulation(store, per_hour=25, score_of=_steady)
    await simulation.run(hours=60)
    mean = sum(simulation.turns[t] for t in better) / len(better)
    others = (simulation.turns.total() - mean * len(better)) / (count - len(better))
    assert mean > 1.15 * others, (mean, others)


async def test_many_trackers_share_the_turns(store: Store) -> None:
    """Two processes with their own objects take turns at the same time."""
    other = Scores(store.shards, store.clock, interval_seconds=SCORED_EVERY)
    await register(store, 40)
    for _ in range(3):
        store.clock.now += SCORED_EVERY
        batches = await asyncio.gather(*(each.take(7) for each in (store.scores, other) * 4))
        taken = [t for batch in batches for t in batch]
        assert len({t.torrent_id for t in taken}) == len(taken) == 40
        await asyncio.gather(*(other.finish([Scored(t, 1.1) for t in batch]) for batch in batches))
    assert await scores(store) == {str(n): 1.1 for n in range(1, 41)}


async def test_an_hour_of_a_small_tracker_gives_the_expected_scores(store: Store) -> None:
    """Peers come and go, and torrents are scored by their swarms: the numbers of B2 and B3 from announces on."""
    for number in range(60):
        await store.announce(update(number, "s", torrent=1, endpoint=endpoint(number)))
    await store.announce(update(100, "s", torrent=2))
    await store.announce(update(101, "s", torrent=3))
    await store.announce(update(101, "x", torrent=3))
    store.clock.now += SCORED_EVERY
    found = {t.torrent_id: t.seeders + t.leechers for t in await store.scores.take(50)}
    assert found == {"1": 60, "2": 1, "3": 0}
    assert await store.redis.sismember(store.keys.swarm_peers(info_hash(2)), peer_id(100).hex())


# Places and histories


async def test_a_torrent_has_a_place_and_a_time_of_its_next_turn(store: Store) -> None:
    await register(store, 3)
    await set_score(store, 2, 3.0)
    await set_score(store, 3, 0.5)
    assert await store.scores.place("1") == ScorePlace(1, 3, START, START + SCORED_EVERY, False)
    store.clock.now += SCORED_EVERY + 100
    taken = await store.scores.take_one("2")
    assert taken
    place = await store.scores.place("2")
    assert place == ScorePlace(0, 3, START, START + SCORED_EVERY, True)
    await store.scores.finish([Scored(taken, 0.1)])
    now = int(store.clock.now)
    assert await store.scores.place("2") == ScorePlace(2, 3, now, now + SCORED_EVERY, False)
    await store.redis.zrem(store.keys.processed(), "3")  # a site wrote its score without a time
    assert await store.scores.place("3") == ScorePlace(1, 3, now, now + SCORED_EVERY, False)
    assert await store.scores.place("9") is None


async def test_each_scoring_adds_a_point_up_to_the_maximum(store: Store) -> None:
    scores = Scores(store.shards, store.clock, interval_seconds=SCORED_EVERY, history=3)
    await store.announce(update(1, "s"))
    for turn, score in enumerate((1.2, 1.44, 0.9216, 0.0061)):
        await store.announce(update(10 + turn, "s", bytes_left=0))
        store.clock.now += SCORED_EVERY
        (taken,) = await scores.take(1)
        await scores.finish([Scored(taken, score)])
    torrent = await store.torrents.get(info_hash(1))
    assert torrent
    assert await store.torrents.history(torrent) == [
        Point(START + 2 * SCORED_EVERY, 2, 1, 0, 1.44),
        Point(START + 3 * SCORED_EVERY, 3, 1, 0, 0.922),
        Point(START + 4 * SCORED_EVERY, 4, 1, 0, 0.0061),
    ]
    assert await store.redis.ttl(store.keys.history(1)) == -1


async def test_a_history_ends_a_week_after_its_torrent_left_the_ranking(store: Store) -> None:
    await register(store, 1)
    taken = await store.scores.take_one("1")
    assert taken
    await store.scores.finish([Scored(taken, None)])
    history = store.keys.history(1)
    assert await store.redis.lrange(history, 0, -1) == [b"%d 0 0 0 0" % START]
    assert 604_000 < await store.redis.ttl(history) <= 604_800
    await store.announce(update(1, "s"))
    taken = await store.scores.take_one("1")
    assert taken
    await store.scores.finish([Scored(taken, 1.2)])
    assert await store.redis.ttl(history) == -1
    assert await store.redis.llen(history) == 2


async def test_a_history_is_removed_with_its_torrent(store: Store) -> None:
    await register(store, 1)
    taken = await store.scores.take_one("1")
    assert taken
    await store.scores.finish([Scored(taken, 1.2)])
    assert await store.redis.exists(store.keys.history(1))
    await store.torrents.remove(info_hash(1))
    assert not await store.redis.exists(store.keys.history(1))


@pytest.mark.parametrize("history", [0, 3])
async def test_a_torrent_is_scored_without_a_history(store: Store, history: int) -> None:
    """History is disabled and the old one removed, or another program's key is in its place."""
    scores = Scores(store.shards, store.clock, interval_seconds=SCORED_EVERY, history=history)
    await register(store, 1)
    await store.redis.set(store.keys.history(1), "another program's")
    taken = await scores.take_one("1")
    assert taken
    assert (await scores.finish([Scored(taken, 1.2)])).counted == 1
    assert await store.redis.exists(store.keys.history(1)) == (history > 0)


async def test_a_void_result_adds_no_point(store: Store) -> None:
    await register(store, 1)
    taken = await store.scores.take_one("1")
    assert taken
    await store.scores.give_back([taken])
    assert (await store.scores.finish([Scored(taken, 1.2)])).void == ("1",)
    assert not await store.redis.exists(store.keys.history(1))
