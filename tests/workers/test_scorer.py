"""Scoring on a real store: pace, processors, other trackers, and stopped or killed workers (B1 to B7)."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
from redis.exceptions import RedisError
from structlog.testing import capture_logs

from loadtest.servers import ROOT, Server
from tests.fake_time import FakeTime
from tests.store.harness import SCORED_EVERY, Store, endpoint, info_hash, running, update
from tests.store.jobs.harness import Metrics, jobs_of
from tests.waiting import eventually, in_background, loop_turns
from tests.workers.jobs import working
from tracker.bittorrent import InfoHash
from tracker.core.scoring import Source
from tracker.errors import ClientError, StoreUnavailable
from tracker.settings.background import ScoringSettings
from tracker.store.jobs.records import PROCESS_TORRENT
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.store.torrents.scores import LEASE_SECONDS
from tracker.workers.scorer import ASK_SECONDS, IDLE_SECONDS, MAX_PROCESSORS, SCORE_CAP, Ask, Scorer

PEERS_DEFAULT = 50
Answers = Mapping[InfoHash, Sequence[Source]]


@pytest.fixture
async def store(any_server: Server, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(any_server.url, Keys(prefix), SwarmRules())) as store:
        yield store


class Bench:
    """A scorer and its counters. ``settings`` are those of section ``scoring``."""

    def __init__(
        self,
        store: Store,
        ask: Ask | None = None,
        ask_seconds: float = ASK_SECONDS,
        *,
        cap: float = SCORE_CAP,
        max_processors: int = MAX_PROCESSORS,
        **settings: object,
    ) -> None:
        self.store = store
        self.time = FakeTime()
        self.counted = Metrics().follow(store).counts
        self.scorer = Scorer(
            store,
            ScoringSettings.model_validate(settings),
            lambda: PEERS_DEFAULT,
            ask,
            ask_seconds,
            self.time.timer,
            self.time,
            cap=cap,
            max_processors=max_processors,
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with in_background(self.scorer.run(), self.store.connection.watch()):
            yield

    async def turn(self) -> None:
        """Scores every torrent once."""
        self.store.clock.now += SCORED_EVERY
        async with self.working():
            await self.time.pass_until(self.idle)

    async def idle(self) -> bool:
        """Whether every torrent is scored and counted."""
        if (await self.store.scores.lag()).waiting or await leased(self.store):
            return False
        await self.store.scores.lag()  # on the scorer's pipe: what was in flight has its reply
        await loop_turns(10)  # the scorer counts what the store has finished
        return True


async def leased(store: Store) -> int:
    return int(await store.redis.zcard(store.keys.leases("torrents")))


async def scores(store: Store) -> dict[str, float]:
    return dict(await store.top_scores(1000))


async def fill(store: Store, torrent: int, peers: int, new: int) -> None:
    """A torrent with ``peers`` peers, of which ``new`` joined since the last scoring."""
    first = 1000 * torrent
    await asyncio.gather(
        *(store.announce(update(first + n, "s", torrent, endpoint=endpoint(first + n))) for n in range(peers))
    )
    await store.redis.hset(store.keys.torrent(info_hash(torrent)), "new", new)


async def register(store: Store, count: int) -> None:
    for number in range(1, count + 1):
        await store.torrents.add(info_hash(number))


async def nothing(_info_hashes: Sequence[InfoHash]) -> Answers:
    return {}


# One scoring


async def test_each_kind_of_swarm_has_its_factor(store: Store) -> None:
    """B1, B2: by announces. max_peers is the default number of peers per announce; scoring resets `new`."""
    await fill(store, 1, 50, 3)
    await fill(store, 2, 50, 2)
    await fill(store, 3, 49, 40)
    await store.torrents.add(info_hash(4))
    assert set((await scores(store)).values()) == {1.0}
    bench = Bench(store)
    await bench.turn()
    assert await scores(store) == {"1": 1.2, "2": 0.8, "3": 0.8, "4": 0.5}
    assert bench.counted == {"torrents.processed": 4}
    await bench.turn()  # no new peer since
    assert await scores(store) == pytest.approx({"1": 0.96, "2": 0.64, "3": 0.64, "4": 0.25})


async def test_max_peers_is_a_setting_and_scores_are_capped(store: Store) -> None:
    """B2."""
    await fill(store, 1, 10, 1)
    bench = Bench(store, max_peers=10, cap=1.1)
    await bench.turn()
    assert await scores(store) == {"1": 1.1}


@pytest.mark.parametrize(("peers", "turn"), [(0, 8), (1, 24)])
async def test_a_dead_torrent_leaves_the_ranking_and_a_join_returns_it(store: Store, peers: int, turn: int) -> None:
    """B3: at the 8th empty or the 24th weak scoring; the registration stays."""
    await store.torrents.add(info_hash(1))
    await fill(store, 1, peers, 0)
    bench = Bench(store)
    for number in range(1, turn + 1):
        assert await store.scores.count() == 1, number
        await bench.turn()
    assert await store.scores.count() == 0
    assert bench.counted == {"torrents.processed": turn}
    torrent = await store.torrents.get(info_hash(1))
    assert torrent is not None and torrent.registered
    await store.announce(update(9999, "s"))
    assert await scores(store) == {"1": 1.0}


async def test_the_most_favourable_tracker_determines_the_factor(store: Store) -> None:
    """B2: each tracker has its own max_peers."""
    asked: list[Sequence[InfoHash]] = []

    async def ask(info_hashes: Sequence[InfoHash]) -> Answers:
        asked.append(info_hashes)
        return {
            info_hash(1): [Source(0, 0, 50), Source(200, 20, 200)],
            info_hash(2): [Source(1, 0, 200)],
            info_hash(3): [Source(0, 0, 50)],
            info_hash(99): [Source(500, 500, 1)],
        }

    await fill(store, 3, 50, 5)
    for number in (1, 2, 4):
        await store.torrents.add(info_hash(number))
    await Bench(store, ask).turn()
    by_hash = {t.info_hash: t.score for t in await store.torrents.top("score", 9)}
    assert by_hash == {info_hash(1): 1.2, info_hash(2): 0.8, info_hash(3): 1.2, info_hash(4): 0.5}
    assert {i for batch in asked for i in batch} == {info_hash(n) for n in (1, 2, 3, 4)}


async def test_growth_elsewhere_counts_as_new_peers(store: Store) -> None:
    """B2: other trackers report peers, not new ones. The largest number is stored; missing replies change nothing."""
    known: list[int] = []

    async def ask(info_hashes: Sequence[InfoHash]) -> Answers:
        return {info_hash: [Source(peers, 0, 50) for peers in known] for info_hash in info_hashes}

    await register(store, 1)
    bench, expected = Bench(store, ask), 1.0
    turns = [([50, 7], 1.2), ([52], 0.8), ([], 0.5), ([57, 1], 1.2), ([57], 0.8), ([49], 0.8), ([60], 1.2)]
    for known, by in turns:  # the result of ask()
        await bench.turn()
        expected *= by
        assert await scores(store) == {"1": pytest.approx(expected)}, known


async def test_a_new_address_counts_for_the_swarms_of_all_trackers(store: Store) -> None:
    """B2: an address first seen here counts for another tracker's swarm too."""

    async def ask(info_hashes: Sequence[InfoHash]) -> Answers:
        return {info_hash: [Source(50, 0, 50)] for info_hash in info_hashes}

    await fill(store, 1, 1, 3)
    await fill(store, 2, 1, 2)
    for number in (1, 2):
        await store.redis.hset(store.keys.torrent(info_hash(number)), "elsewhere", 50)
    await Bench(store, ask).turn()
    assert await scores(store) == {"1": 1.2, "2": 0.8}


async def test_failing_and_hanging_trackers_do_not_stop_scoring(store: Store) -> None:
    await register(store, 1)

    async def fail(_info_hashes: Sequence[InfoHash]) -> Answers:
        raise ValueError("https://tracker.example/secret/announce")

    async def hang(_info_hashes: Sequence[InfoHash]) -> Answers:
        await asyncio.Event().wait()
        raise AssertionError

    with capture_logs() as logs:
        await Bench(store, fail).turn()
        await Bench(store, hang, ask_seconds=0.05).turn()
    assert await scores(store) == {"1": 0.25}
    errors = [(line["event"], line["error"]) for line in logs if line["log_level"] == "error"]
    assert errors == [("cannot ask other trackers", "ValueError"), ("cannot ask other trackers", "TimeoutError")]
    assert "secret" not in str(logs)


# On demand


async def test_a_job_scores_one_torrent_at_once(store: Store) -> None:
    """B7: a torrent counts as processed at most once an hour."""
    await register(store, 2)
    bench = Bench(store)
    for payload in ({"torrent_id": "2"}, {"torrent_id": 2}):
        await bench.scorer.handle(payload)
    assert await scores(store) == {"1": 1.0, "2": 0.25}
    assert bench.counted == {"torrents.processed": 1}
    await bench.scorer.handle({"torrent_id": "77"})
    assert await leased(store) == 0


async def test_a_job_waits_until_a_lease_has_ended(store: Store) -> None:
    """B5, Q7: it is postponed until the torrent is free, without using up a retry."""
    await register(store, 1)
    assert await store.scores.take_one("1"), "the lease is never returned"
    jobs, bench = jobs_of(store), Bench(store)
    id, _ = await jobs.enqueue(PROCESS_TORRENT, {"torrent_id": "1"}, max_retries=0)

    async def waits() -> bool:
        job = await jobs.get(id)
        return job is not None and job.status == "pending" and (job.run_after or 0) > store.clock.now

    async def completed() -> bool:
        job = await jobs.get(id)
        return job is not None and job.status == "completed"

    async with working(store, jobs, {PROCESS_TORRENT: bench.scorer.handle}):
        for _ in range(LEASE_SECONDS // 5):
            await eventually(waits)
            store.clock.now += 5
        await eventually(completed)
    assert await scores(store) == {"1": 0.5}
    assert bench.counted == {"torrents.processed": 1}


@pytest.mark.parametrize(
    "payload",
    [None, [], "1", {}, {"torrent_id": None}, {"torrent_id": ""}, {"torrent_id": "x"}, {"torrent_id": "1:2"},
     {"torrent_id": -1}, {"torrent_id": 1.5}, {"torrent_id": "9" * 400}, {"torrent_id": "٣"}],
)  # fmt: skip
async def test_a_job_without_a_valid_torrent_id_fails(store: Store, payload: object) -> None:
    """Q10."""
    with pytest.raises(ClientError, match="torrent_id"):
        await Bench(store).scorer.handle(payload)


# Pace and concurrency


async def test_the_pace_is_kept(store: Store) -> None:
    """At most per_second torrents per second, with any number of processors."""
    await register(store, 60)
    store.clock.now += SCORED_EVERY
    bench = Bench(store, per_second=40)
    async with bench.working():
        await bench.time.pass_until(bench.idle)
    assert bench.time.now >= (60 - 40) / 40
    assert bench.counted == {"torrents.processed": 60}


async def test_an_idle_scorer_polls_the_store_once_a_second(store: Store) -> None:
    await register(store, 3)
    bench = Bench(store, max_processors=8)
    bench.scorer.processors = 8
    async with bench.working():
        await bench.time.pass_by(3 * IDLE_SECONDS)
        before, since = await calls(store), bench.time.now

        async def has_polled() -> bool:
            return await calls(store) >= before + 10

        await bench.time.pass_until(has_polled)
        after = await calls(store)
    assert after - before <= (bench.time.now - since) / IDLE_SECONDS + 1


async def calls(store: Store) -> int:
    """How many script calls the store has served."""
    return int((await store.redis.info("commandstats"))["cmdstat_evalsha"]["calls"])


async def test_late_torrents_add_processors_and_warn_at_the_limit(store: Store) -> None:
    """B7: with slow trackers processors are added up to the limit, which is logged once an hour."""
    may_answer = asyncio.Event()
    asking = 0

    async def ask(_info_hashes: Sequence[InfoHash]) -> Answers:
        nonlocal asking
        asking += 1
        await may_answer.wait()
        return {}

    async def asking_at_once() -> bool:
        return asking == bench.scorer.processors

    await register(store, 300)
    bench = Bench(store, ask, per_second=400, max_processors=3)
    store.clock.now += SCORED_EVERY
    async with bench.working():
        await bench.time.pass_until(asking_at_once)
        await bench.scorer.adapt()
        assert bench.scorer.processors == 1, "torrents are due, but not late"
        store.clock.now += SCORED_EVERY + 1
        with capture_logs() as logs:
            for processors in (2, 3, 3, 3):
                await bench.scorer.adapt()
                assert bench.scorer.processors == processors
                await bench.time.pass_until(asking_at_once)
            store.clock.now += 3600
            await bench.scorer.adapt()
        warnings = [line for line in logs if line["log_level"] == "warning"]
        assert [line["torrents"] for line in warnings] == [300, 300]
        may_answer.set()
        await bench.time.pass_until(bench.idle)
        for processors in (2, 1, 1):
            await bench.scorer.adapt()
            assert bench.scorer.processors == processors


async def test_a_surplus_processor_takes_no_batch_until_it_is_needed_again(store: Store) -> None:
    """B7."""
    may_answer = asyncio.Event()
    asking: list[int] = []
    surplus: list[int] = []

    async def ask(_info_hashes: Sequence[InfoHash]) -> Answers:
        asking.append(1)
        surplus.extend(asking[bench.scorer.processors :])
        await may_answer.wait()
        asking.pop()
        return {}

    async def all_ask(since: float) -> bool:
        return len(asking) == bench.scorer.processors and bench.time.now >= since + 1

    await register(store, 300)
    bench = Bench(store, ask, per_second=400, max_processors=2)
    async with bench.working():
        for _ in range(2):
            may_answer.clear()
            store.clock.now += 3 * SCORED_EVERY
            await bench.time.pass_until(partial(all_ask, bench.time.now))
            while bench.scorer.processors == 1:
                await bench.scorer.adapt()
            await bench.time.pass_until(partial(all_ask, bench.time.now))
            assert len(asking) == 2
            may_answer.set()
            await bench.time.pass_until(bench.idle)
            while bench.scorer.processors == 2:
                await bench.scorer.adapt()
    assert surplus == []


# Stopping


async def test_a_graceful_stop_returns_unfinished_torrents(store: Store) -> None:
    """B5: at once, with their scores and due times."""
    asked = asyncio.Event()

    async def ask(_info_hashes: Sequence[InfoHash]) -> Answers:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    await register(store, 5)
    store.clock.now += SCORED_EVERY
    async with Bench(store, ask).working():
        await asked.wait()
        assert await leased(store) == 5
    assert await leased(store) == 0
    assert set((await scores(store)).values()) == {1.0}
    assert len(await store.scores.take(50)) == 5


async def test_a_stop_during_a_take_leaves_no_lease(start_server: Callable[..., Server], prefix: str) -> None:
    """The store receives the call, and replies after the cancellation."""
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        await register(store, 5)
        store.clock.now += SCORED_EVERY
        assert await store.scores.take_one("none") is None  # the script is loaded and the connection open
        os.kill(server.pid, signal.SIGSTOP)
        task = asyncio.Task(Bench(store).scorer.run())
        await loop_turns(100)  # the call is written within some of them
        task.cancel()
        await loop_turns(100)
        os.kill(server.pid, signal.SIGCONT)
        with suppress(asyncio.CancelledError):
            await task
        assert int(await store.redis.get(f"{store.keys.prefix}lease")) == 5
        assert await leased(store) == 0


CHILD = """
import asyncio, sys, time
from tracker.settings.background import ScoringSettings
from tracker.store.client.connection import Connection, connect
from tracker.store.jobs.records import PROCESS_TORRENT
from tracker.store.store import Store, StoreOptions
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.scorer import Scorer

async def ask(info_hashes):
    print("asked about", len(info_hashes), flush=True)
    await asyncio.Event().wait()

async def main(url, prefix, now):
    connection = Connection(connect(url, connect_timeout=5, timeout=5))
    options = StoreOptions(rules=SwarmRules(), scoring_interval_seconds=3600)
    store = Store(connection, prefix, options, clock=lambda: float(now))
    await Scorer(store, ScoringSettings(), lambda: 50, ask).run()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_torrents_of_a_killed_process_keep_their_scores(store: Store) -> None:
    """B5: SIGKILL during a scoring. After the lease each torrent is scored once."""
    await register(store, 5)
    for number in range(1, 6):
        await store.redis.zadd(store.keys.index("score"), {str(number): 2.0 + number / 10})
    before = await scores(store)
    store.clock.now += SCORED_EVERY
    words = [sys.executable, "-c", CHILD, store.url, store.keys.prefix, str(store.clock.now)]
    child = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"asked about 5\n"
        assert await leased(store) == 5
    finally:
        child.kill()
        await child.wait()
    assert await scores(store) == before
    assert await store.scores.take(50) == [], "the lease has not ended"
    store.clock.now += LEASE_SECONDS
    bench = Bench(store)
    async with bench.working():
        await bench.time.pass_until(bench.idle)
    assert await scores(store) == pytest.approx({tid: score * 0.5 for tid, score in before.items()})
    assert bench.counted == {"torrents.processed": 5}


async def test_scoring_continues_after_a_crash_of_the_store(start_server: Callable[..., Server], prefix: str) -> None:
    """B5: killed during scoring and restarted with its saved data. Every torrent is scored again."""
    server = start_server("--appendfsync", "always")
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        await register(store, 30)
        store.clock.now += SCORED_EVERY
        bench = Bench(store, per_second=10)

        async def some() -> bool:
            return bench.counted.total() >= 10

        async def every_turn_came() -> bool:
            with suppress(StoreUnavailable, RedisError):
                return await bench.idle()
            return False

        async with bench.working():
            await bench.time.pass_until(some)
            server.kill()
            await bench.time.pass_until(lambda: store.connection.unavailable)
            server.start()
            store.clock.now += LEASE_SECONDS
            await bench.time.pass_until(every_turn_came)
        assert set((await scores(store)).values()) == {0.5}


async def test_errors_of_the_store_are_logged_and_scoring_continues(store: Store) -> None:
    await register(store, 2)
    store.clock.now += SCORED_EVERY
    bench = Bench(store, nothing)
    await store.redis.set(store.keys.leases("torrents"), "no ranking")
    with capture_logs() as logs:
        async with bench.working():
            await bench.time.pass_until(lambda: bool(logs))
            await store.redis.delete(store.keys.leases("torrents"))
            await bench.time.pass_until(bench.idle)
    assert await scores(store) == {"1": 0.5, "2": 0.5}
    assert {line["event"] for line in logs} == {"scoring failed"}
