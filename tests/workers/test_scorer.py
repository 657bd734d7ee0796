"""Processors at work on a real store: pace, concurrency, other trackers, and what a killed or stopped one leaves (B1 to B7)."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from redis.exceptions import RedisError
from structlog.testing import capture_logs

from tests.servers import ROOT, Server
from tests.store.harness import SCORED_EVERY, Store, endpoint, info_hash, running, update
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, StoreAway
from tracker.scoring import Source
from tracker.settings import ScoringSettings
from tracker.store.keys import Keys
from tracker.store.scores import LEASE_SECONDS
from tracker.store.swarms import SwarmRules
from tracker.workers import scorer as module
from tracker.workers.scorer import Ask, Scorer

PEERS_DEFAULT = 50
Answers = Mapping[InfoHash, Sequence[Source]]


@pytest.fixture
async def store(any_server: Server, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(any_server.url, Keys(prefix), SwarmRules())) as store:
        yield store


class Bench:
    """A scorer and what it counted. ``settings`` are of section ``scoring``."""

    def __init__(self, store: Store, ask: Ask | None = None, **settings: object) -> None:
        self.store = store
        self.counted: Counter[str] = Counter()
        self.scorer = Scorer(
            store.scores,
            store.connection,
            ScoringSettings.model_validate(settings),
            PEERS_DEFAULT,
            self._count,
            store.clock,
            ask,
        )

    def _count(self, *names: str, by: int = 1) -> None:
        self.counted.update(dict.fromkeys(names, by))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        tasks = [asyncio.Task(self.scorer.run()), asyncio.Task(self.store.connection.watch())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    async def turn(self) -> None:
        """One turn of everything that is there."""
        self.store.clock.now += SCORED_EVERY
        async with self.working():
            await until(self.idle)

    async def idle(self) -> bool:
        lag = await self.store.scores.lag()
        return not lag.waiting and await leased(self.store) == 0


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    started = time.monotonic()
    while not await condition():
        assert time.monotonic() - started < seconds, f"not within {seconds} s"
        await asyncio.sleep(0.01)


async def leased(store: Store) -> int:
    return int(await store.redis.zcard(store.keys.leases("torrents")))


async def scores(store: Store) -> dict[str, float]:
    return dict(await store.scores.top(1000))


async def crowd(store: Store, torrent: int, peers: int, new: int) -> None:
    """A torrent with so many peers, of which ``new`` were first seen since the last scoring."""
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


# What a processing does


async def test_each_outcome_has_its_factor(store: Store) -> None:
    """B1, B2: from announces on; max_peers is what one announce is given by default, and `new` is taken."""
    await crowd(store, 1, 50, 3)
    await crowd(store, 2, 50, 2)
    await crowd(store, 3, 49, 40)
    await store.torrents.add(info_hash(4))
    assert set((await scores(store)).values()) == {1.0}
    bench = Bench(store)
    await bench.turn()
    assert await scores(store) == {"1": 1.2, "2": 0.8, "3": 0.8, "4": 0.5}
    assert bench.counted == {"torrents.processed": 4}
    await bench.turn()  # nobody is new since
    assert await scores(store) == pytest.approx({"1": 0.96, "2": 0.64, "3": 0.64, "4": 0.25})


async def test_max_peers_and_the_cap_are_settings(store: Store) -> None:
    """B2."""
    await crowd(store, 1, 10, 1)
    bench = Bench(store, max_peers=10, cap=1.1)
    await bench.turn()
    assert await scores(store) == {"1": 1.1}


@pytest.mark.parametrize(("peers", "turn"), [(0, 8), (1, 24)])
async def test_the_ranking_is_left_in_time_and_a_join_brings_back(
    store: Store, peers: int, turn: int
) -> None:
    """B3: on the 8th empty, the 24th weak processing; the registration stays."""
    await store.torrents.add(info_hash(1))
    await crowd(store, 1, peers, 0)
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


async def test_other_trackers_answers_count_where_they_are_better(store: Store) -> None:
    """B2: one factor, of the most favourable source, each with a max_peers of its own."""
    asked: list[Sequence[InfoHash]] = []

    async def ask(info_hashes: Sequence[InfoHash]) -> Answers:
        asked.append(info_hashes)
        return {
            info_hash(1): [Source(0, 0, 50), Source(200, 20, 200)],
            info_hash(2): [Source(1, 0, 200)],
            info_hash(3): [Source(0, 0, 50)],
            info_hash(99): [Source(500, 500, 1)],
        }

    await crowd(store, 3, 50, 5)
    for number in (1, 2, 4):
        await store.torrents.add(info_hash(number))
    await Bench(store, ask).turn()
    by_hash = {t.info_hash: t.score for t in await store.torrents.top("score", 9)}
    assert by_hash == {info_hash(1): 1.2, info_hash(2): 0.8, info_hash(3): 1.2, info_hash(4): 0.5}
    assert {i for batch in asked for i in batch} == {info_hash(n) for n in (1, 2, 3, 4)}


async def test_what_is_new_elsewhere_is_by_how_much_it_has_grown(store: Store) -> None:
    """B2: other trackers tell how many peers there are, not who is new. The most that any of them knows is remembered,
    and what nobody answered changes nothing."""
    known: list[int] = []

    async def ask(info_hashes: Sequence[InfoHash]) -> Answers:
        return {info_hash: [Source(peers, 0, 50) for peers in known] for info_hash in info_hashes}

    await register(store, 1)
    bench, expected = Bench(store, ask), 1.0
    turns = [([50, 7], 1.2), ([52], 0.8), ([], 0.5), ([57, 1], 1.2), ([57], 0.8), ([49], 0.8), ([60], 1.2)]
    for known, by in turns:  # what ask() answers
        await bench.turn()
        expected *= by
        assert await scores(store) == {"1": pytest.approx(expected)}, known


async def test_who_is_new_is_new_to_the_torrent_wherever_it_was_seen(store: Store) -> None:
    """B2: addresses first seen here count for the swarm of another tracker too."""

    async def ask(info_hashes: Sequence[InfoHash]) -> Answers:
        return {info_hash: [Source(50, 0, 50)] for info_hash in info_hashes}

    await crowd(store, 1, 1, 3)
    await crowd(store, 2, 1, 2)
    for number in (1, 2):
        await store.redis.hset(store.keys.torrent(info_hash(number)), "elsewhere", 50)
    await Bench(store, ask).turn()
    assert await scores(store) == {"1": 1.2, "2": 0.8}


async def test_others_that_fail_or_hang_do_not_stop_the_scoring(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK_SECONDS", 0.05)
    await register(store, 1)

    async def fail(_info_hashes: Sequence[InfoHash]) -> Answers:
        raise ValueError("https://tracker.example/secret/announce")

    async def hang(_info_hashes: Sequence[InfoHash]) -> Answers:
        await asyncio.Event().wait()
        raise AssertionError

    with capture_logs() as logs:
        await Bench(store, fail).turn()
        await Bench(store, hang).turn()
    assert await scores(store) == {"1": 0.25}
    errors = [(line["event"], line["error"]) for line in logs if line["log_level"] == "error"]
    assert errors == [
        ("asking other trackers failed", "ValueError"),
        ("asking other trackers failed", "TimeoutError"),
    ]
    assert "secret" not in str(logs)


# On demand


async def test_a_job_scores_one_torrent_at_once(store: Store) -> None:
    """B7: it counts as processed at most once an hour."""
    await register(store, 2)
    bench = Bench(store)
    for payload in ({"torrent_id": "2"}, {"torrent_id": 2}):
        await bench.scorer.process(payload)
    assert await scores(store) == {"1": 1.0, "2": 0.25}
    assert bench.counted == {"torrents.processed": 1}
    await bench.scorer.process({"torrent_id": "77"})
    assert await leased(store) == 0


@pytest.mark.parametrize(
    "payload",
    [None, [], "1", {}, {"torrent_id": None}, {"torrent_id": ""}, {"torrent_id": "x"}, {"torrent_id": "1:2"},
     {"torrent_id": -1}, {"torrent_id": 1.5}, {"torrent_id": "9" * 400}, {"torrent_id": "٣"}],
)  # fmt: skip
async def test_a_job_without_a_torrent_fails(store: Store, payload: object) -> None:
    """Q10."""
    with pytest.raises(ClientError, match="torrent_id"):
        await Bench(store).scorer.process(payload)


# Pace and concurrency


async def test_the_pace_is_kept(store: Store) -> None:
    """At most per_second torrents in a second, however many processors there are."""
    await register(store, 60)
    store.clock.now += SCORED_EVERY
    bench = Bench(store, per_second=40)
    started = time.monotonic()
    async with bench.working():
        await until(bench.idle)
    assert time.monotonic() - started > (60 - 40) / 40 * 0.9
    assert bench.counted == {"torrents.processed": 60}


async def test_while_nothing_is_due_the_store_is_asked_once_a_second(store: Store) -> None:
    await register(store, 3)
    bench = Bench(store, processors_max=8)
    bench.scorer._processors = 8
    async with bench.working():
        await asyncio.sleep(0.1)
        before, started = await store.redis.info("commandstats"), time.monotonic()
        await asyncio.sleep(1.2)
        after = await store.redis.info("commandstats")
    calls = [stats["cmdstat_evalsha"]["calls"] for stats in (before, after)]
    assert calls[1] - calls[0] <= time.monotonic() - started + 1


async def test_torrents_that_wait_bring_more_processors_and_a_warning_at_the_limit(store: Store) -> None:
    """B7: others answer slowly; processed < count adds processors, up to the limit, where a line an hour says so."""
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
    bench = Bench(store, ask, per_second=400, processors_max=3)
    store.clock.now += SCORED_EVERY
    async with bench.working():
        await until(asking_at_once)
        await bench.scorer.adapt()
        assert bench.scorer.processors == 1, "their turn has come, but nobody waits for long"
        store.clock.now += SCORED_EVERY + 1
        with capture_logs() as logs:
            for processors in (2, 3, 3, 3):
                await bench.scorer.adapt()
                assert bench.scorer.processors == processors
                await until(asking_at_once)
            store.clock.now += 3600
            await bench.scorer.adapt()
        warnings = [line for line in logs if line["log_level"] == "warning"]
        assert [line["torrents"] for line in warnings] == [300, 300]
        may_answer.set()
        await until(bench.idle)
        for processors in (2, 1, 1):
            await bench.scorer.adapt()
            assert bench.scorer.processors == processors


async def test_a_processor_too_many_ends_and_can_come_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B7."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    await register(store, 1)
    bench = Bench(store, processors_max=2)

    async def alive_as_wanted() -> bool:
        return len(bench.scorer._alive) == bench.scorer.processors

    async with bench.working():
        for _ in range(2):
            taken = await store.scores.take_one("1")  # in other hands it stays late
            assert taken is not None
            store.clock.now += 3 * SCORED_EVERY
            await bench.scorer.adapt()
            assert bench.scorer.processors == 2
            await until(alive_as_wanted)
            await until(bench.idle)  # that lease is over
            await bench.scorer.adapt()
            assert bench.scorer.processors == 1
            await until(alive_as_wanted)


# Ends


async def test_a_graceful_stop_gives_back_what_is_under_work(store: Store) -> None:
    """B5: at once, with score and turn."""
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


async def test_a_stop_in_the_middle_of_the_taking_leaves_no_lease(
    start_server: Callable[..., Server], prefix: str
) -> None:
    """The store gets the call, and answers when the scorer has been told to stop."""
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        await register(store, 5)
        store.clock.now += SCORED_EVERY
        assert await store.scores.take_one("none") is None  # the script is there, the line is up
        os.kill(server.pid, signal.SIGSTOP)
        task = asyncio.Task(Bench(store).scorer.run())
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.sleep(0.05)
        os.kill(server.pid, signal.SIGCONT)
        with suppress(asyncio.CancelledError):
            await task
        assert int(await store.redis.get(store.keys.last_token())) == 5
        assert await leased(store) == 0


CHILD = """
import asyncio, sys, time
from tracker.settings import ScoringSettings
from tracker.store.connection import Connection, connect
from tracker.store.keys import Keys
from tracker.store.scores import Scores
from tracker.store.scripts import Scripts
from tracker.workers.scorer import Scorer

async def ask(info_hashes):
    print("asked about", len(info_hashes), flush=True)
    await asyncio.sleep(60)

async def main(url, prefix, now):
    keys = Keys(prefix)
    connection = Connection(connect(url, connect_timeout=5), timeout=5)
    clock = lambda: float(now)
    scores = Scores(connection, Scripts(connection, prefix), keys, clock, interval_seconds=3600)
    await Scorer(scores, connection, ScoringSettings(), 50, lambda *names, by=1: None, clock, ask).run()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_killed_worker_leaves_torrents_with_their_scores(store: Store) -> None:
    """B5: SIGKILL in the middle of a scoring; they come back when its lease is over, and each is scored once."""
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
    assert await store.scores.take(50) == [], "the lease is not over"
    store.clock.now += LEASE_SECONDS
    bench = Bench(store)
    async with bench.working():
        await until(bench.idle)
    assert await scores(store) == pytest.approx({tid: score * 0.5 for tid, score in before.items()})
    assert bench.counted == {"torrents.processed": 5}


async def test_scoring_survives_the_loss_of_the_store(
    start_server: Callable[..., Server], prefix: str
) -> None:
    """B5: killed in the middle, started again with the data it had kept; every torrent is scored once more."""
    server = start_server("--appendfsync", "always")
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        await register(store, 30)
        store.clock.now += SCORED_EVERY
        bench = Bench(store, per_second=10)

        async def some() -> bool:
            return bench.counted.total() >= 10

        async def every_turn_came() -> bool:
            with suppress(StoreAway, RedisError):
                return (await store.scores.lag()).waiting == 0
            return False

        async with bench.working():
            await until(some)
            server.kill()
            await asyncio.sleep(0.2)
            server.start()
            store.clock.now += LEASE_SECONDS
            await until(every_turn_came)
        assert set((await scores(store)).values()) == {0.5}


async def test_errors_of_the_store_are_told_and_scoring_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.01)
    await register(store, 2)
    store.clock.now += SCORED_EVERY
    bench = Bench(store, nothing)
    await store.redis.set(store.keys.leases("torrents"), "no ranking")
    with capture_logs() as logs:
        async with bench.working():
            await asyncio.sleep(0.1)
            await store.redis.delete(store.keys.leases("torrents"))
            await until(bench.idle)
    assert await scores(store) == {"1": 0.5, "2": 0.5}
    assert {line["event"] for line in logs} == {"scoring failed"}
