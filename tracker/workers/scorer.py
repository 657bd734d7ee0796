"""Scores torrents: takes those that are due, and computes their new scores from their swarms.

Each processor, a coroutine, scores one batch at a time. Processors take batches one after the other, which keeps the
pace of the process, and lets only one poll the store while nothing is due. The number of processors grows while
torrents are scored late, and shrinks when none waits. More processors help where other trackers are asked, because
those reply slowly.

``rescore`` enqueues a job for each torrent that matches a filter. Its scan keeps its cursor in its own job, so a later
run resumes there. The cursor is that of ZSCAN, valid while the server runs: after a restart of the server the scan
starts again. A torrent that is enqueued twice is one job, or is scored once more.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from tracker.bittorrent import InfoHash
from tracker.core.scoring import Source, factor, next_score
from tracker.errors import ClientError, Postponed, StoreUnavailable
from tracker.settings.background import ScoringSettings
from tracker.store.client.server_info import read_info
from tracker.store.jobs.jobs import QueueFull
from tracker.store.jobs.records import MAX_PRIORITY, PROCESS_TORRENT, Claimed
from tracker.store.store import Store
from tracker.store.torrents.scores import Leased, Scored, Taken
from tracker.system.logger import Logger
from tracker.workers.loop import Sleep, forever, survive

SCORE_CAP = 4.0
"""No score grows beyond it: 8 scorings of a strong swarm reach it, so that a torrent that fades is seen in time."""
MAX_PROCESSORS = 8
"""Batches scored concurrently. TRACKER_SCORING__PER_SECOND sets the pace; processors only wait for other trackers."""
BATCH = 25
"""Torrents per call. More would delay announces by more than a millisecond."""
ASKING_BATCH = 50
"""Torrents per call where other trackers are asked: one scrape request holds as many."""
ASK_SECONDS = 90.0
"""Well below the lease time."""
IDLE_SECONDS = 1.0
ADAPT_SECONDS = 60.0
WARN_AGAIN_SECONDS = 3600.0
_PAUSE_SECONDS = 5.0
_LEASED_SECONDS = 5.0
"""Maximum delay of a job whose torrent is leased, before it tries again."""

Ask = Callable[[Sequence[InfoHash]], Awaitable[Mapping[InfoHash, Sequence[Source]]]]
"""Returns other trackers' numbers by torrent; without trackers that did not reply."""

log = Logger("tracker.scorer")


@dataclass(eq=False)
class Scorer:
    """``peers_default`` returns how many peers an announce gets by default. ``timer`` is a monotonic clock in seconds,
    on which ``sleep`` waits. ``ask_seconds`` is the time limit of ``ask``."""

    store: Store
    settings: ScoringSettings
    peers_default: Callable[[], int]
    ask: Ask | None = None
    ask_seconds: float = ASK_SECONDS
    timer: Callable[[], float] = time.monotonic
    sleep: Sleep = asyncio.sleep
    _: KW_ONLY
    cap: float = SCORE_CAP
    max_processors: int = MAX_PROCESSORS

    def __post_init__(self) -> None:
        self._batch = max(1, min(ASKING_BATCH if self.ask else BATCH, int(self.settings.per_second)))
        self._turn = asyncio.Lock()
        self._free_at = 0.0
        self.processors = 1
        self._more = asyncio.Event()
        self._warn_at = 0.0

    async def run(self) -> None:
        """Runs until cancelled. Returns unfinished batches to the store then."""
        process = partial(forever, error_seconds=_PAUSE_SECONDS, connection=self.store.connection, sleep=self.sleep)
        async with asyncio.TaskGroup() as group:
            group.create_task(
                forever(self._adapt_later, 0.0, "scoring failed", error_seconds=ADAPT_SECONDS, sleep=self.sleep)
            )
            for number in range(self.max_processors):
                group.create_task(process(partial(self._process, number), 0.0, "scoring failed"))

    async def handle(self, payload: object) -> None:
        """Handles process_torrent jobs: scores ``{"torrent_id": …}`` now. Raises ClientError for any other payload. A
        torrent outside the ranking is ignored. Raises Postponed for a leased one: the process that holds the lease may
        have died."""
        torrent_id = payload.get("torrent_id") if isinstance(payload, Mapping) else None
        text = str(torrent_id) if isinstance(torrent_id, str | int) else ""
        if not (text.isascii() and text.isdigit() and len(text) <= 15):
            raise ClientError("a job of process_torrent needs a torrent_id")
        try:
            taken = await self.store.scores.take_one(text)
        except Leased as leased:
            raise Postponed(min(leased.seconds, _LEASED_SECONDS)) from leased
        if taken is not None:
            self._spend(1)
            await self._score([taken])

    # Processors

    async def _process(self, number: int) -> None:
        """One batch of a processor. It waits while there are to be fewer."""
        while number >= self.processors:
            self._more.clear()
            await self._more.wait()
        async with self._turn:
            await self.sleep(max(0.0, self._free_at - self.timer()))
            batch = await self._take()
            self._spend(len(batch))
            if not batch:
                await self.sleep(IDLE_SECONDS)
        await self._score(batch)

    def _spend(self, torrents: int) -> None:
        now = self.timer()
        self._free_at = max(now, self._free_at) + torrents / self.settings.per_second

    async def _take(self) -> list[Taken]:
        """Takes a batch. When cancelled during the call, waits for its reply and returns the batch to the store."""
        taking = asyncio.gather(self.store.scores.take(self._batch))
        try:
            (batch,) = await asyncio.shield(taking)
        except asyncio.CancelledError:
            with suppress(StoreUnavailable, RedisError):
                await self.store.scores.give_back((await taking)[0])
            raise
        return batch

    async def _score(self, batch: Sequence[Taken]) -> None:
        if not batch:
            return
        finished = False
        try:
            others = await self._ask_others(batch)
            results = await self.store.scores.finish([self._result(taken, others) for taken in batch])
            finished = True
        finally:
            if not finished:
                await survive(self.store.scores.give_back(batch))
        if results.counted:
            self.store.counters.count("torrents.processed", by=results.counted)
        if results.void:
            log.info("scores discarded: lease expired or torrent deleted", torrents=len(results.void))

    def _result(self, taken: Taken, others: Mapping[InfoHash, Sequence[Source]]) -> Scored:
        """Other trackers do not report new peers; their growth since the last scoring is used instead. An address seen
        for the first time is new to the torrent, in whichever swarm it was seen."""
        reported = others.get(taken.info_hash, ())
        max_peers = max(1, self.settings.max_peers or self.peers_default())
        sources = [Source(taken.seeders + taken.leechers, taken.new, max_peers)]
        sources += [replace(other, new=max(other.new, taken.new, other.peers - taken.elsewhere)) for other in reported]
        elsewhere = max((other.peers for other in reported), default=None)
        score = next_score(taken.score, factor(sources), self.cap)
        return Scored(taken, score, elsewhere)

    async def _ask_others(self, batch: Sequence[Taken]) -> Mapping[InfoHash, Sequence[Source]]:
        """The replies of other trackers; none after an error, because a tracker that is down must not stop scoring."""
        if self.ask is None:
            return {}
        try:
            async with asyncio.timeout(self.ask_seconds):
                return await self.ask([taken.info_hash for taken in batch])
        except Exception as error:  # noqa: BLE001 - no error of another tracker may stop scoring
            # Its text may contain a URL with our passkey.
            log.error("cannot ask other trackers", error=type(error).__name__)
            return {}

    # Concurrency

    async def _adapt_later(self) -> None:
        await self.sleep(ADAPT_SECONDS)
        await self.adapt()

    async def adapt(self) -> None:
        """Adds a processor while torrents are more than an interval late; removes one when none waits."""
        lag = await self.store.scores.lag()
        if not lag.late:
            if not lag.waiting and self.processors > 1:
                self.processors -= 1
        elif self.processors < self.max_processors:
            self.processors += 1
            self._more.set()
            log.info("scoring is late; added a processor", processors=self.processors, late=lag.late)
        elif self.store.clock() >= self._warn_at:
            self._warn_at = self.store.clock() + WARN_AGAIN_SECONDS
            log.warning(
                "scoring is behind; raise TRACKER_SCORING__PER_SECOND or TRACKER_SCORING__INTERVAL_SECONDS",
                late=lag.late,
                torrents=lag.count,
                max_late_hours=round(lag.longest_seconds / 3600, 1),
            )


RESCORE_SECONDS = 86_400.0
"""The scan waits for room in the queue: a million torrents take hours."""
FILTERS = ("min_score", "max_score", "min_seeders", "max_seeders")
_PAGE = 500
_MAX_WAITING = 10 * _PAGE
_FULL_SECONDS = 0.5


class ScanLost(Exception):
    """Another tracker continues this scan."""


def checked(payload: Mapping[str, Any]) -> dict[str, float]:
    """The filter in ``payload``: inclusive bounds by the names of FILTERS. Raises ValueError."""
    unknown = set(payload) - set(FILTERS)
    if unknown:
        raise ValueError(f"unknown filters: {', '.join(sorted(unknown))}")
    for value in payload.values():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("a filter must be a number")
    return dict(payload)


async def rescore(
    store: Store,
    payload: dict[str, Any],
    job: Claimed,
    *,
    max_waiting: int = _MAX_WAITING,
    pause: float = _FULL_SECONDS,
) -> None:
    """The handler of queue ``reprocess``: scans from ``job.cursor`` on, and pauses, for ``pause`` s at a time, while
    ``max_waiting`` jobs wait. Raises ScanLost when another tracker has claimed the job."""
    bounds = checked(payload)
    server = (await read_info(store.connection, "server")).get("run_id", "")  # a cursor is valid for one run only
    known, _, at = job.cursor.partition(" ")
    cursor = at if known == server and at.isdigit() else "0"
    while True:
        while await store.jobs.waiting(PROCESS_TORRENT) >= max_waiting:
            await asyncio.sleep(pause)
        cursor, found = await store.scores.page_by_seeders(cursor, _PAGE)
        ids = [id for id, seeders in found if _within(seeders, bounds, "seeders")]
        if ids and {"min_score", "max_score"} & bounds.keys():
            scores = await store.scores.of(ids)
            # A torrent outside the ranking has no score; it counts as 0.
            ids = [id for id, score in zip(ids, scores, strict=True) if _within(score or 0.0, bounds, "score")]
        while ids:
            try:
                payloads = [{"torrent_id": id} for id in ids]
                await store.jobs.enqueue_many(PROCESS_TORRENT, payloads, priority=-MAX_PRIORITY)
                break
            except QueueFull:
                await asyncio.sleep(pause)
        if not await store.jobs.save_cursor(job, f"{server} {cursor}"):
            raise ScanLost("another tracker continues this scan")
        if cursor == "0":
            return


def _within(value: float, bounds: Mapping[str, float], name: str) -> bool:
    return bounds.get(f"min_{name}", value) <= value <= bounds.get(f"max_{name}", value)
