"""Removes peers that went silent: expiry events for speed, due lists for promptness, a sweep for truth.

A timeout key that nobody looks at may stay in Redis long after its time, because expired keys are found by
sampling; a look at it removes it and publishes its expiry at once. So each peer stands in the list of a deadline, and
when that time has come the whole list is looked at: who has announced since goes on into a later one. Events reap
what Redis found first, which is all there is when two trackers share a store and one of them is slow. Both may be
lost; the sweep visits every member of every swarm once per reap interval. The script re-checks everything, so whoever
comes second does nothing.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable

import structlog
from redis.exceptions import RedisError, ResponseError

from tracker.errors import StoreAway
from tracker.store.connection import Connection
from tracker.store.counters import Counters
from tracker.store.keys import Keys
from tracker.store.notifications import request_expiry_events
from tracker.store.reaping import Reaping
from tracker.store.update import DUE_STEP_SECONDS

BATCH = 32
"""Peers to remove in one call of the store, which does nothing else meanwhile: some 2 ms, and announces go between two calls."""
DUE_ENTRIES = 128
"""Entries of a due list looked at in one call. On a usual day nearly all of them are of peers that have announced since."""
HEARTBEAT_SECONDS = 5.0
SWEEP_BUDGET = 100
SWEEP_PAUSES = 2
"""Even in a hurry the sweep rests twice as long as it had to wait for the store, so a third of the store's time is its share at most."""
SWEEP_BEHIND = 3
"""The sweep is behind when its last round ended more than this many reap intervals ago."""
_LOOK_BACK, _LONGEST_LOOK_BACK = 600, 86_400
"""Seconds: where nobody says how far the lists are worked through, and where that is known; lists expire after a day."""
_DUE_PAGE = 500
_MOST_WAITING = 2_000_000
_PEER = re.compile(r"(\d+):([0-9a-f]{40})", re.ASCII)
"""Torrent id and peer id, as the keys of timeouts end; whatever else expires under such a name is somebody else's."""
_TICK_SECONDS = 0.5
_SUMMARY_SECONDS = 60.0
_FORBIDDEN_SECONDS = 60.0
"""How often a store that forbids subscriptions is asked again."""

log = structlog.get_logger("tracker.reaper")


class Reaper:
    """``interval`` is the reap interval in seconds, ``clock`` gives epoch seconds."""

    def __init__(
        self,
        reaping: Reaping,
        connection: Connection,
        keys: Keys,
        counters: Counters,
        interval: float,
        clock: Callable[[], float],
    ) -> None:
        self._reaping = reaping
        self._connection = connection
        self._keys = keys
        self._counters = counters
        self.interval = interval
        """The reap interval; may be changed at any time."""
        self._clock = clock
        self._expired: deque[tuple[str, str]] = deque(maxlen=_MOST_WAITING)
        self._heard = asyncio.Event()
        self._turn = asyncio.Lock()
        self._sweep_now = asyncio.Event()
        self._grace_until = 0.0
        self._listening = False
        self._events_possible = True
        self._subscriptions_forbidden = False
        self._due_done: int | None = None
        self._started = 0.0
        self._reaped = 0
        self.swept_at = 0.0
        """When the last round of the sweep ended, epoch s; 0 before the first."""
        self.sweep_seconds = 0.0
        """How long it took."""

    @property
    def listening(self) -> bool:
        """Is the subscription to expiry events up?"""
        return self._listening

    @property
    def deaf(self) -> bool:
        """Might it hear expiry events, and does not? Where they are off or forbidden the rest does all the work."""
        return self._events_possible and not self._listening

    @property
    def due_behind_seconds(self) -> float:
        """How long ago the next due list to be worked through was due."""
        return 0.0 if self._due_done is None else max(0.0, self._clock() - self._due_done - DUE_STEP_SECONDS)

    @property
    def sweep_behind(self) -> bool:
        """Is the last round of the sweep, or the start, longer ago than it should be?"""
        since = max(self.swept_at, self._started)
        return bool(since) and self._clock() - since > SWEEP_BEHIND * self.interval

    async def run(self) -> None:
        """Runs until cancelled, whatever the store does meanwhile."""
        self._started = self._clock()
        self._sweep_now.set()
        async with asyncio.TaskGroup() as tasks:
            for part in (
                self._listen,
                self._reap_heard,
                self._reap_due,
                self._sweep,
                self._beat,
                self._summarize,
            ):
                tasks.create_task(self._persist(part), name=f"reaper {part.__name__}")

    async def _persist(self, part: Callable[[], object]) -> None:
        """Each part starts again when the store is back; nothing in them is worth dying for."""
        while True:
            try:
                await part()  # type: ignore[misc]  # every part is a coroutine function
            except StoreAway:
                await asyncio.sleep(0.1)
                await self._connection.until_back()
            except RedisError as error:
                log.error("reaping failed", part=part.__name__, error=str(error))
                await asyncio.sleep(1)

    # Events

    async def _listen(self) -> None:
        if not self._subscriptions_forbidden:
            self._events_possible = await request_expiry_events(self._connection)
        try:
            await self._hear()
        except ResponseError as error:
            if not self._subscriptions_forbidden:
                log.warning(
                    "the store forbids the subscription to expiry events: due lists and the sweep reap alone",
                    error=str(error),
                )
            self._subscriptions_forbidden, self._events_possible = True, False
            await asyncio.sleep(_FORBIDDEN_SECONDS)

    async def _hear(self) -> None:
        beginning = self._connection.keyspace_channel(self._keys.timeouts())
        skip = len(beginning.encode())
        try:
            async with self._connection.subscription(patterns=[f"{beginning}*"]) as messages:
                if self._subscriptions_forbidden:
                    self._events_possible = await request_expiry_events(self._connection)
                self._listening, self._subscriptions_forbidden = True, False
                self._sweep_now.set()  # what expired while nobody listened
                async for channel, event in messages:
                    if event == b"expired" and (
                        peer := _PEER.fullmatch(channel[skip:].decode("ascii", "replace"))
                    ):
                        self._expired.append((peer[1], peer[2]))
                        self._heard.set()
        finally:
            self._listening = False

    async def _reap_heard(self) -> None:
        while True:
            await self._heard.wait()
            self._heard.clear()
            while self._expired:
                peers = [self._expired.popleft() for _ in range(min(BATCH, len(self._expired)))]
                async with self._turn:
                    reaped = await self._reaping.reap(peers)
                self._count(reaped, "event")

    # Due lists

    async def _reap_due(self) -> None:
        cursor = await self._reaping.due_cursor()
        # However long nobody was here: who stands in a list and is alive has to get into a later one.
        earliest = int(self._clock()) - (_LOOK_BACK if cursor is None else _LONGEST_LOOK_BACK)
        deadline = max(cursor or 0, earliest - earliest % DUE_STEP_SECONDS)
        while True:
            now = self._clock()
            if deadline > now + DUE_STEP_SECONDS:  # a clock was ahead, and is right again
                deadline = int(now) - int(now) % DUE_STEP_SECONDS
            self._due_done = deadline
            while deadline + DUE_STEP_SECONDS <= now:
                deadline = await self._reap_page(deadline, now)
                await self._reaping.set_due_cursor(deadline)
                self._due_done = deadline
            await asyncio.sleep(_TICK_SECONDS)

    async def _reap_page(self, after: int, now: float) -> int:
        """Works through the lists due after ``after``, at most a page of them; the answer is the last deadline done."""
        last = min(after + _DUE_PAGE * DUE_STEP_SECONDS, int(now) - int(now) % DUE_STEP_SECONDS)
        for deadline in await self._reaping.due_lists(
            range(after + DUE_STEP_SECONDS, last + 1, DUE_STEP_SECONDS)
        ):
            first, seen, reaped = 0, 1, 0
            while seen:
                # Where all were silent, those that come next in the list will be: why look at them before their turn?
                entries = BATCH if reaped == BATCH else DUE_ENTRIES
                async with self._turn:
                    seen, reaped = await self._reaping.reap_due(deadline, first, entries, BATCH)
                first += seen
                self._count(reaped, "due")
                for _ in range(reaped):
                    self._counters.observe("reap_lag_seconds", self._clock() - deadline)
        return last

    # Sweep

    async def _sweep(self) -> None:
        while True:
            hurry = self._sweep_now.is_set()
            self._sweep_now.clear()
            if self._reaping.was_set_back:
                await self._reaping.rewind()
            await self.sweep_once(0.0 if hurry else self.interval)
            try:
                async with asyncio.timeout(self._idle_seconds()):
                    await self._sweep_now.wait()
            except TimeoutError:
                pass

    def _idle_seconds(self) -> float:
        grace = self._grace_until - self._clock()
        return min(self.interval / 10, grace) if grace > 0 else self.interval / 10

    async def sweep_once(self, seconds: float) -> None:
        """Visits every swarm once, spread over about ``seconds`` by the size of what is there, and no faster than others
        can bear: a round right after a start would else take most of the store's time for as long as it lasts."""
        began, timer = self._clock(), asyncio.get_running_loop().time
        total = max(1, await self._reaping.size())
        cursor = 0
        while True:
            cursor, torrent_ids = await self._reaping.page(cursor, SWEEP_BUDGET)
            position = ""
            while torrent_ids:
                asked = timer()
                step = await self._reaping.sweep(torrent_ids[:SWEEP_BUDGET], position, SWEEP_BUDGET)
                pause = SWEEP_PAUSES * (timer() - asked)
                torrent_ids, position = torrent_ids[step.done :], step.position
                self._note(step.reaped, step.repairs, step.forgotten)
                if not self._sweep_now.is_set():
                    pause = max(pause, seconds * (step.seen + step.done) / total * 0.9)
                await asyncio.sleep(pause)
            if not cursor:
                break
        self._note(0, await self._reaping.check_totals(), 0)
        self.swept_at = self._clock()
        self.sweep_seconds = max(0.0, self.swept_at - began)

    def _note(self, reaped: int, repairs: int, forgotten: int) -> None:
        self._count(reaped, "sweep")
        if repairs:
            self._counters.count("repairs", by=repairs)
            log.error("the sweep repaired what did not agree", repairs=repairs)
        if forgotten:
            self._counters.count("forgotten", by=forgotten)

    # Heartbeat

    async def _beat(self) -> None:
        while True:
            await self.beat()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def note_return(self) -> None:
        """The store is back: whether that was an outage has to be known before the first announce gets through."""
        await self.beat()
        self._sweep_now.set()

    async def beat(self) -> None:
        """Says that a tracker is here. After an outage, peers that could not announce get one reap interval more."""
        until = await self._reaping.heartbeat()
        grace_until = until + self._reaping.grace_seconds + 1 if until else 0.0
        if grace_until > self._grace_until and grace_until > self._clock():
            log.warning(
                "reaping waits: nobody could announce while the tracker or its store was away, or the store's clock jumped",
                until=until,
            )
        if self._grace_until and self._clock() >= self._grace_until:
            self._grace_until = 0.0
            self._sweep_now.set()
        elif grace_until > self._clock():
            self._grace_until = grace_until
        if self._reaping.was_set_back:
            self._sweep_now.set()

    def _count(self, reaped: int, cause: str) -> None:
        if reaped:
            self._reaped += reaped
            self._counters.count("reaps", f"reaps.{cause}", by=reaped)

    async def _summarize(self) -> None:
        while True:
            await asyncio.sleep(_SUMMARY_SECONDS)
            if self._reaped:
                log.info("reaped silent peers", peers=self._reaped)
            self._reaped = 0
