"""The background half of a tracker, put together: what follows from announces while nobody waits for it.

Torrents are scored in turns, jobs run, figures go out. Everything that must not happen twice goes by a lease or a
marker in the store, so any number of trackers may do all of it.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tracker.bittorrent import Address, InfoHash
from tracker.foundation import Foundation
from tracker.loops import running
from tracker.scoring import Source
from tracker.settings import Settings
from tracker.store.job import PROCESS_TORRENT, REPROCESS, SWEEP
from tracker.store.jobs import Jobs
from tracker.store.outbox import Outbox
from tracker.store.scores import Scores
from tracker.store.users import Users
from tracker.stores import job_limits
from tracker.workers import cleaner, reprocess
from tracker.workers.cleaner import Cleaner
from tracker.workers.jobs import JobWorker, Queue
from tracker.workers.reaper import Reaper
from tracker.workers.reprocess import Reprocess
from tracker.workers.scorer import Scorer
from tracker.workers.stathat import StatHat
from tracker.workers.statsd import StatsD
from tracker.workers.upstreams import Upstreams

FLUSH_STATHAT, CLEAN_COUNTERS = "flush_stathat", "clean_counters"
PERIODIC_SECONDS = {FLUSH_STATHAT: 60.0, CLEAN_COUNTERS: float(cleaner.EVERY_SECONDS)}


@asynccontextmanager
async def open_background(
    settings: Settings, base: Foundation, reaper: Reaper, on_peer: Callable[[InfoHash, Address], None]
) -> AsyncIterator[JobWorker]:
    """All of it at work, with the lines to other trackers that it holds open. ``on_peer`` hears of peers they tell of.

    Leaving the block, when nobody announces any more, ends jobs or gives them back.
    """
    scores = Scores(
        base.connection,
        base.scripts,
        base.keys,
        time.time,
        interval_seconds=settings.scoring.interval_seconds,
        history=settings.scoring.history,
    )
    heard = on_peer if settings.uniques.enabled else None
    async with Upstreams(settings.scoring, time.monotonic, heard) as upstreams:
        scorer = Scorer(
            scores,
            base.connection,
            settings.scoring,
            settings.announce.peers_default,
            base.counters.count,
            time.time,
            _asking(upstreams, settings.scoring.upstream_max_peers) if upstreams else None,
        )
        base.changes.follow(lambda changed: scorer.expect(changed.announce.peers_default))
        jobs = _jobs(settings, base, scores, scorer, reaper)
        async with running(jobs.run, *([scorer.run] if settings.scoring.enabled else [])):
            yield jobs
            await jobs.drain()


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
    clean, users = Cleaner(counters, time.time), Users(connection, keys)
    outbox = Outbox(connection, scripts, keys)
    sender = StatsD if settings.statsd.address else StatHat
    receiver: Any = settings.statsd if settings.statsd.address else settings.stathat
    figures = sender(receiver, outbox, connection, torrents=scores.count, count=counters.count)

    async def clean_up(_: object) -> None:
        await clean.clean_once()
        await users.finish_deletions()

    async def sweep(_: object) -> None:
        await reaper.sweep_once(0.0)

    timeout = settings.jobs.timeout_seconds
    queues = {
        PROCESS_TORRENT: Queue(scorer.process, settings.jobs.concurrency, timeout),
        REPROCESS: Queue(
            Reprocess(jobs, connection, keys).handle, 1, reprocess.TIMEOUT_SECONDS, resumes=True
        ),
        CLEAN_COUNTERS: Queue(clean_up, 1, timeout),
        SWEEP: Queue(sweep, 1, timeout),
        FLUSH_STATHAT: Queue(figures.flush, 1, timeout),
    }
    periodic = {queue: s for queue, s in PERIODIC_SECONDS.items() if queue != FLUSH_STATHAT or figures.wanted}
    return JobWorker(jobs, connection, queues, periodic=periodic, clock=time.time)
