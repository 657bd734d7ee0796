"""The background half of a tracker, put together: what follows from announces while nobody waits for it.

Joins are tallied into unique users by place, torrents are scored in turns, jobs run, figures go out. Everything that
must not happen twice goes by a lease or a marker in the store, so any number of trackers may do all of it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tracker.bittorrent import InfoHash
from tracker.geoip import GeoIP
from tracker.loops import Loop
from tracker.scoring import Source
from tracker.settings import Settings
from tracker.store.connection import Connection
from tracker.store.counters import Counters
from tracker.store.job import PROCESS_TORRENT, REPROCESS, SWEEP
from tracker.store.jobs import Jobs
from tracker.store.keys import Keys
from tracker.store.outbox import Outbox
from tracker.store.scores import Scores
from tracker.store.scripts import Scripts
from tracker.store.uniques import UniqueRules, Uniques
from tracker.stores import job_limits
from tracker.workers import cleaner, reprocess
from tracker.workers.cleaner import Cleaner
from tracker.workers.jobs import JobWorker, Queue
from tracker.workers.reaper import Reaper
from tracker.workers.reprocess import Reprocess
from tracker.workers.scorer import Scorer
from tracker.workers.stathat import StatHat
from tracker.workers.statsd import StatsD
from tracker.workers.tally import Tally
from tracker.workers.upstreams import Upstreams

FLUSH_STATHAT, CLEAN_COUNTERS = "flush_stathat", "clean_counters"
PERIODIC_SECONDS = {FLUSH_STATHAT: 60.0, CLEAN_COUNTERS: float(cleaner.EVERY_SECONDS)}
_EXPORTED = frozenset({"announces", "torrents.processed"})


@dataclass(frozen=True, slots=True)
class Foundation:
    """What every part that writes to the store stands on."""

    connection: Connection
    scripts: Scripts
    keys: Keys
    counters: Counters


@dataclass(frozen=True, slots=True)
class Background:
    """``loops`` run until cancelled, once ``wind_up`` has been awaited."""

    tally: Tally
    jobs: JobWorker
    loops: tuple[Loop, ...]

    async def wind_up(self) -> None:
        """Finishes what is under way, when nobody announces any more: jobs end or go back, joins are counted."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.jobs.drain(), name="jobs drain")
            tasks.create_task(self.tally.flush(), name="tally flushes")


def outbox_most(settings: Settings) -> int:
    """How many figures may wait to be sent; 0 when nobody wants any."""
    wanted = settings.stathat.ezkey is not None or settings.statsd.address is not None
    return settings.stathat.max_waiting if wanted else 0


def exported(name: str) -> bool:
    """Does a counter go to StatHat or StatsD? Unique users go there from the script that counts them."""
    return name in _EXPORTED or name.startswith("failures.")


@asynccontextmanager
async def open_background(
    settings: Settings, base: Foundation, reaper: Reaper, secret: bytes
) -> AsyncIterator[Background]:
    """All of it, with what it holds open: the GeoIP database, and the lines to other trackers."""
    places = GeoIP(settings.geoip.database)
    tally = _tally(settings, base, places, secret)
    scores = Scores(
        base.connection,
        base.scripts,
        base.keys,
        time.time,
        interval_seconds=settings.scoring.interval_seconds,
    )
    try:
        on_peer = tally.offer if settings.uniques.enabled else None
        async with Upstreams(settings.scoring, time.monotonic, on_peer) as upstreams:
            scorer = Scorer(
                scores,
                base.connection,
                settings.scoring,
                settings.announce.peers_default,
                base.counters.count,
                time.time,
                _asking(upstreams, settings.scoring.upstream_max_peers) if upstreams else None,
            )
            jobs = _jobs(settings, base, scores, scorer, reaper)
            loops: list[Loop] = [jobs.run]
            if settings.uniques.enabled:
                loops.append(tally.run)
            if settings.scoring.enabled:
                loops.append(scorer.run)
            yield Background(tally, jobs, tuple(loops))
    finally:
        places.close()


def _tally(settings: Settings, base: Foundation, places: GeoIP, secret: bytes) -> Tally:
    rules = UniqueRules(
        mode=settings.uniques.mode,
        secret=secret,
        outbox_most=outbox_most(settings),
        export_torrents=settings.stathat.per_torrent,
    )
    return Tally(
        Uniques(base.connection, base.scripts, base.keys, rules),
        base.connection,
        settings.uniques,
        lookup=places.lookup,
        refresh=places.refresh,
        count=base.counters.count,
        clock=time.time,
    )


def _asking(
    upstreams: Upstreams, max_peers: int
) -> Callable[[Sequence[InfoHash]], Awaitable[Mapping[InfoHash, Sequence[Source]]]]:
    """What other trackers say, as the scorer weighs it: only those that answered. What is new there it finds itself."""

    async def ask(info_hashes: Sequence[InfoHash]) -> Mapping[InfoHash, Sequence[Source]]:
        answers = await upstreams.ask_many(info_hashes)
        return {
            info_hash: [Source(answer.peers, 0, max_peers) for answer in heard if answer.error is None]
            for info_hash, heard in answers.items()
        }

    return ask


def _jobs(settings: Settings, base: Foundation, scores: Scores, scorer: Scorer, reaper: Reaper) -> JobWorker:
    """Who does what with the jobs of which queue."""
    connection, scripts, keys, counters = base.connection, base.scripts, base.keys, base.counters
    jobs = Jobs(
        connection,
        scripts,
        keys,
        time.time,
        job_limits(settings.jobs),
        count=counters.count,
        observe=counters.observe,
    )
    clean = Cleaner(counters, time.time)
    outbox = Outbox(connection, scripts, keys)
    sender = StatsD if settings.statsd.address else StatHat
    receiver: Any = settings.statsd if settings.statsd.address else settings.stathat
    figures = sender(receiver, outbox, connection, torrents=scores.count, count=counters.count)

    async def clean_counters(_: object) -> None:
        await clean.clean_once()

    async def sweep(_: object) -> None:
        await reaper.sweep_once(0.0)

    timeout = settings.jobs.timeout_seconds
    queues = {
        PROCESS_TORRENT: Queue(scorer.process, settings.jobs.concurrency, timeout),
        REPROCESS: Queue(
            Reprocess(jobs, connection, keys).handle, 1, reprocess.TIMEOUT_SECONDS, resumes=True
        ),
        CLEAN_COUNTERS: Queue(clean_counters, 1, timeout),
        SWEEP: Queue(sweep, 1, timeout),
        FLUSH_STATHAT: Queue(figures.flush, 1, timeout),
    }
    periodic = {queue: s for queue, s in PERIODIC_SECONDS.items() if queue != FLUSH_STATHAT or figures.wanted}
    return JobWorker(jobs, connection, queues, periodic=periodic, clock=time.time)
