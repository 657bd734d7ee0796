"""Cost of background work: `python -m loadtest.bench.background [--runs 3]`.

Each part runs the tracker's code without HTTP, on a store without append-only file, both on one core. Costs are CPU
time of this process and of the store (/proc/PID/schedstat). Two yardsticks allow comparing machines: one `redis.call`
of INCR in a script, and a join without any of this.
"""

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from loadtest.bench import processes
from loadtest.bench.loader import BenchError
from loadtest.bench.population import ZIPF_EXPONENT
from tracker.bittorrent import Digits, Endpoint, InfoHash, PeerId
from tracker.settings.background import ScoringSettings
from tracker.store.client.connection import Connection, connect
from tracker.store.client.scripts import Scripts
from tracker.store.jobs.jobs import Jobs
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shards
from tracker.store.stats.counters import Counters
from tracker.store.stats.metric_names import place_names
from tracker.store.stats.unique_users import MAX_BATCH, UniqueUserEvent, UniqueUsers
from tracker.store.store import Store as WholeStore
from tracker.store.swarms.announce_counts import AnnounceCounts
from tracker.store.swarms.codec import EVENT_CODES, PeerUpdate
from tracker.store.swarms.reaping import Reaping
from tracker.store.swarms.rules import LiveRules, SwarmRules
from tracker.store.swarms.swarms import AllSwarms
from tracker.store.torrents.torrents import Torrents
from tracker.store.users.copies import UserCopies
from tracker.workers.jobs import JobWorker, Queue
from tracker.workers.scorer import Scorer

TORRENTS, JOINS, FLUSHES, COUNTERS, JOBS, CALLS = 2_000, 20_000, 60, 40, 10_000, 200_000
COUNTRIES, CITIES, POSTCODES = 60, 600, 3_000
"""Places of users, distributed by Zipf's law like torrents."""
CONCURRENCY = 16
SCORINGS = 5
"""Scorings per torrent."""
_YARDSTICK = "for i = 1, tonumber(ARGV[1]) do redis.call('INCR', KEYS[1]) end"


@dataclass(frozen=True, slots=True)
class Store:
    pid: int
    connection: Connection
    shards: Shards

    @property
    def scripts(self) -> Scripts:
        return self.shards.main.scripts

    @property
    def keys(self) -> Keys:
        return self.shards.main.keys

    @property
    def torrents(self) -> Torrents:
        return Torrents(self.shards)


@dataclass(slots=True)
class Meter:
    """CPU µs of this process and of the store, and wall-clock seconds, inside ``running``."""

    pid: int
    tracker: float = 0.0
    store: float = 0.0
    seconds: float = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        tracker, store, began = _cpu_us(os.getpid()), _cpu_us(self.pid), time.monotonic()
        yield
        self.tracker += _cpu_us(os.getpid()) - tracker
        self.store += _cpu_us(self.pid) - store
        self.seconds += time.monotonic() - began


Part = Callable[[Store, Meter], Awaitable[int]]
"""Does some work with the meter running; returns the number of repetitions."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="number of runs; medians are printed (3)")
    runs = parser.parse_args().runs
    parts: dict[str, Part] = {
        "a redis.call (yardstick)": call,
        "a join of a new peer (announce.lua, yardstick)": announce,
        "a join of a new address, seven metrics, exact": join,
        f"a flush of {COUNTERS} counters, all precisions": flush,
        "a job through the queue": run_jobs,
        "a scoring": score,
    }
    for name, part in parts.items():
        costs = [uvloop.run(_measure(part)) for _ in range(runs)]
        tracker, store, each = (statistics.median(measured) for measured in zip(*costs, strict=True))
        total = tracker + store
        print(f"{name}: {total:.1f} CPU µs = tracker {tracker:.1f} + store {store:.1f}", end="; ")
        print(f"{1e6 / total:,.0f} per CPU second, {1 / each:,.0f} per second")


async def _measure(part: Part) -> tuple[float, float, float]:
    """(tracker, store) CPU µs and wall-clock seconds of one repetition."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, processes.pinned(processes.SERVER_CORE):
        async with _store(Path(name)) as store:
            meter = Meter(store.pid)
            times = await part(store, meter)
            return meter.tracker / times, meter.store / times, meter.seconds / times


@asynccontextmanager
async def _store(directory: Path) -> AsyncIterator[Store]:
    with processes.store(directory) as (pid, path):
        connection = Connection(connect(f"unix://{path}", connect_timeout=5, timeout=30))
        try:
            yield Store(pid, connection, Shards.under(connection, Keys().prefix, 1))
        finally:
            await connection.close()


def _cpu_us(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1000


# The parts


async def call(store: Store, meter: Meter) -> int:
    with meter.running():
        await store.connection.command("EVAL", _YARDSTICK, 1, "t:yardstick", CALLS)
    return CALLS


async def announce(store: Store, meter: Meter) -> int:
    """As many concurrent joins as one script call takes."""
    rules = SwarmRules(new_per_address_hour=10**9, new_per_network_hour=10**9)
    live, shards = LiveRules(rules), store.shards
    reapings = {shard: Reaping(shard, shards, live, time.time) for shard in shards}
    swarms = AllSwarms(shards, reapings, live, AnnounceCounts(shards), time.time, UserCopies(shards, reapings).bring)
    joins = [_join(number) for number in range(JOINS)]
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(swarms.run())
        with meter.running():
            for first in range(0, JOINS, MAX_BATCH):
                await asyncio.gather(*map(swarms.announce, joins[first : first + MAX_BATCH]))
        running.cancel()
    return JOINS


def _join(number: int) -> PeerUpdate:
    return PeerUpdate(
        info_hash=_info_hash(number % TORRENTS),
        peer_id=PeerId(b"-XX0001-%012d" % number),
        event=EVENT_CODES["started"],
        uploaded=Digits(b"0"),
        downloaded=Digits(b"0"),
        bytes_left=Digits(b"1000"),
        endpoint=Endpoint(bytes([11, *number.to_bytes(3, "big"), 26, 225])),
        peers_wanted=50,
        key=b"",
        passkey="",
        timeout_seconds=2700.0,
        random=number,
        form=0,
        unbounded=False,
    )


async def join(store: Store, meter: Meter) -> int:
    """New addresses, one torrent each, so that every metric counts each of them."""
    for number in range(TORRENTS):
        await store.torrents.add(_info_hash(number))
    unique_users, source = UniqueUsers(store.shards), random.Random(1)
    torrents, countries, cities, postcodes = (
        source.choices(range(many), [(rank + 1) ** -ZIPF_EXPONENT for rank in range(many)], k=JOINS)
        for many in (TORRENTS, COUNTRIES, CITIES, POSTCODES)
    )
    events = [
        UniqueUserEvent(
            _info_hash(torrents[n]),
            f"{11 + n // 65536}.{n // 256 % 256}.{n % 256}.1",
            place_names(f"C{countries[n]}", f"City {cities[n]}", f"{postcodes[n]}"),
        )
        for n in range(JOINS)
    ]
    new = 0
    with meter.running():
        for first in range(0, JOINS, MAX_BATCH):
            new += await unique_users.count(events[first : first + MAX_BATCH], time.time())
    if new != JOINS:
        raise BenchError(f"{new} of {JOINS} were new")
    return JOINS


async def flush(store: Store, meter: Meter) -> int:
    """All counters count in every second, as on a busy tracker."""
    now = time.time() // 86_400 * 86_400
    counters = Counters(store.shards, lambda: now)
    names = [f"counter.{number}" for number in range(COUNTERS)]
    for second in range(180 + FLUSHES):  # as many slices as exist between two cleanings
        now += 1
        for name in names:
            counters.count(name, by=second + 1)
        with meter.running() if second >= 180 else contextlib.nullcontext():
            await counters.flush()
    return FLUSHES


async def run_jobs(store: Store, meter: Meter) -> int:
    """Enqueued, claimed, run and finished, by one worker; the jobs do nothing."""
    jobs, done, all_done = Jobs(store.shards.main, time.time), 0, asyncio.Event()

    async def count(_: object) -> None:
        nonlocal done
        done += 1
        if done == JOBS:
            all_done.set()

    worker = JobWorker(jobs, store.connection, {"bench": Queue(count, CONCURRENCY)}, clock=time.time)
    with meter.running():
        await jobs.enqueue_many("bench", [{"number": number} for number in range(JOBS)])
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(worker.run())
            await all_done.wait()
            await worker.drain()
            running.cancel()
    return JOBS


async def score(store: Store, meter: Meter) -> int:
    """Runs the scorer without its pace, with a clock that makes all torrents due repeatedly."""
    for number in range(TORRENTS):
        await store.torrents.add(_info_hash(number))
    now, scored = time.time(), 0
    all_scored = asyncio.Event()
    # Torrents without peers would soon leave the ranking.
    for number in range(TORRENTS):
        await store.connection.command("HSET", store.keys.torrent(_info_hash(number)), "seeders", 50, "new", 50)

    def count(*names: str, by: int = 1) -> None:
        nonlocal scored, now
        scored += by
        if scored % TORRENTS == 0:
            now += 3601
        if scored >= SCORINGS * TORRENTS:
            all_scored.set()

    now += 3601
    settings = ScoringSettings(per_second=100_000)
    scored_store = WholeStore(store.connection, Keys().prefix, clock=lambda: now)
    scored_store.counters.count = count  # type: ignore[method-assign,assignment]
    scorer = Scorer(scored_store, settings, lambda: 50, max_processors=1)
    with meter.running():
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(scorer.run())
            await all_scored.wait()
            running.cancel()
    return scored


def _info_hash(number: int) -> InfoHash:
    return InfoHash(number.to_bytes(20, "big"))


if __name__ == "__main__":
    main()
