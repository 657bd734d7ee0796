"""Scores torrents: takes those whose turn it is, asks how their swarms do, and gives them their new scores.

Each processor works on a batch at a time. Batches are taken one after the other, so that the pace of the whole process is kept
and only one processor asks the store while nothing is due. When turns come later and later there are more
processors, which helps where other trackers are asked, because those answer slowly; when nothing waits there are fewer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog
from redis.exceptions import RedisError

from tracker.bittorrent import InfoHash
from tracker.counting import Count
from tracker.errors import ClientError, StoreAway
from tracker.scoring import Source, factor, next_score
from tracker.settings import ScoringSettings
from tracker.store.connection import Connection
from tracker.store.scores import Scored, Scores, Taken

BATCH = 25
"""Torrents in one call: more would keep announces waiting for longer than a millisecond."""
ASKING_BATCH = 50
"""Where other trackers are asked there are few calls, and a request to a tracker is worth more than a millisecond."""
ASK_SECONDS = 90.0
"""Well below the length of a lease."""
IDLE_SECONDS = 1.0
ADAPT_SECONDS = 60.0
WARN_AGAIN_SECONDS = 3600.0
_PAUSE_SECONDS = 5.0

Ask = Callable[[Sequence[InfoHash]], Awaitable[Mapping[InfoHash, Sequence[Source]]]]
"""What other trackers say of some torrents. A tracker that did not answer is left out, and so may be a whole torrent."""

log = structlog.get_logger("tracker.scorer")


class Scorer:
    """``max_peers`` is how many peers one announce here is given by default, ``clock`` gives epoch seconds."""

    def __init__(
        self,
        scores: Scores,
        connection: Connection,
        settings: ScoringSettings,
        max_peers: int,
        count: Count,
        clock: Callable[[], float],
        ask: Ask | None = None,
    ) -> None:
        self._scores = scores
        self._connection = connection
        self._settings = settings
        self.expect(max_peers)
        self._count = count
        self._clock = clock
        self._ask = ask
        self._batch = max(1, min(ASKING_BATCH if ask else BATCH, int(settings.per_second)))
        self._turn = asyncio.Lock()
        self._free_at = 0.0
        self._processors = 1
        self._alive: set[int] = set()
        self._more = asyncio.Event()
        self._warn_at = 0.0

    def expect(self, max_peers: int) -> None:
        """So many peers one announce is given from now on."""
        self._max_peers = max(1, self._settings.max_peers or max_peers)

    @property
    def processors(self) -> int:
        """How many batches may be under work at the same time."""
        return self._processors

    async def run(self) -> None:
        """Runs until cancelled; what is under work then is given back."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._adapt_regularly(), name="scorer adapts")
            while True:
                for number in range(self._processors):
                    if number not in self._alive:
                        self._alive.add(number)
                        group.create_task(self._work(number), name=f"scorer {number}")
                self._more.clear()
                await self._more.wait()

    async def process(self, payload: object) -> None:
        """Handler of the queue process_torrent: scores ``{"torrent_id": …}`` now; raises ClientError for any other payload.

        Nothing happens to a torrent that is not in the ranking, or that is being scored anyway.
        """
        torrent_id = payload.get("torrent_id") if isinstance(payload, Mapping) else None
        text = str(torrent_id) if isinstance(torrent_id, str | int) else ""
        if not (text.isascii() and text.isdigit() and len(text) <= 15):
            raise ClientError("a job of process_torrent names a torrent_id")
        taken = await self._scores.take_one(text)
        if taken is not None:
            self._spend(1)
            await self._score([taken])

    # Processors

    async def _work(self, number: int) -> None:
        """One processor, until there are to be fewer; it survives whatever the store does."""
        try:
            while number < self._processors:
                try:
                    await self._score(await self._next_batch())
                except StoreAway:
                    await asyncio.sleep(0.1)
                    await self._connection.until_back()
                except RedisError as error:
                    log.error("scoring failed", error=str(error))
                    await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._alive.discard(number)

    async def _next_batch(self) -> list[Taken]:
        async with self._turn:
            await asyncio.sleep(max(0.0, self._free_at - asyncio.get_running_loop().time()))
            batch = await self._take()
            self._spend(len(batch))
            if not batch:
                await asyncio.sleep(IDLE_SECONDS)
            return batch

    def _spend(self, torrents: int) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + torrents / self._settings.per_second

    async def _take(self) -> list[Taken]:
        """Whoever stops in the middle of the call waits for its answer, and gives back what it had got."""
        taking = asyncio.gather(self._scores.take(self._batch))
        try:
            (batch,) = await asyncio.shield(taking)
        except asyncio.CancelledError:
            with suppress(StoreAway, RedisError):
                await self._scores.give_back((await taking)[0])
            raise
        return batch

    async def _score(self, batch: Sequence[Taken]) -> None:
        if not batch:
            return
        finished = False
        try:
            others = await self._ask_others(batch)
            answer = await self._scores.finish([self._result(taken, others) for taken in batch])
            finished = True
        finally:
            if not finished:
                with suppress(StoreAway, RedisError):
                    await self._scores.give_back(batch)
        if answer.counted:
            self._count("torrents.processed", by=answer.counted)
        if answer.void:
            log.info("scorings came too late, or their torrents are gone", torrents=len(answer.void))

    def _result(self, taken: Taken, others: Mapping[InfoHash, Sequence[Source]]) -> Scored:
        """Another tracker does not say who is new there: it is by how much the most that any knows has grown. Addresses
        seen for the first time are new to the torrent, whichever swarm it was where they were seen."""
        heard = others.get(taken.info_hash, ())
        sources = [Source(taken.seeders + taken.leechers, taken.new, self._max_peers)]
        sources += [
            replace(other, new=max(other.new, taken.new, other.peers - taken.elsewhere)) for other in heard
        ]
        elsewhere = max((other.peers for other in heard), default=None)
        score = next_score(taken.score, factor(sources), self._settings.cap)
        return Scored(taken, score, elsewhere)

    async def _ask_others(self, batch: Sequence[Taken]) -> Mapping[InfoHash, Sequence[Source]]:
        """What could not be learnt in time is left out: a tracker that is down must not stop the scoring here."""
        if self._ask is None:
            return {}
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._ask([taken.info_hash for taken in batch])
        except Exception as error:  # noqa: BLE001 - what strangers answer must not end the tracker
            # Its text may hold their URL, with our passkey there.
            log.error("asking other trackers failed", error=type(error).__name__)
            return {}

    # Concurrency

    async def _adapt_regularly(self) -> None:
        while True:
            await asyncio.sleep(ADAPT_SECONDS)
            with suppress(StoreAway, RedisError):
                await self.adapt()

    async def adapt(self) -> None:
        """One processor more where torrents wait more than an interval beyond their turn, one fewer where none waits."""
        lag = await self._scores.lag()
        if not lag.late:
            if not lag.waiting and self._processors > 1:
                self._processors -= 1
        elif self._processors < self._settings.processors_max:
            self._processors += 1
            self._more.set()
            log.info("more torrents are scored at the same time", processors=self._processors, late=lag.late)
        elif self._clock() >= self._warn_at:
            self._warn_at = self._clock() + WARN_AGAIN_SECONDS
            log.warning(
                "scoring is behind: raise TRACKER_SCORING__PER_SECOND, PROCESSORS_MAX or INTERVAL_SECONDS",
                late=lag.late,
                torrents=lag.count,
                longest_hours=round(lag.longest_seconds / 3600, 1),
            )
