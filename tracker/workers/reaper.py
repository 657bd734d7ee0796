"""Removes peers that have timed out, by expiry events, due lists and a sweep.

Redis finds expired keys by sampling, so an unread timeout key may stay long after its time. Reading it removes it and
publishes its expiry event at once. So each peer is in the due list of a deadline. At that time the whole list is read;
peers that have announced since move to a later list. Events also arrive for keys that Redis expires by itself, or that
another tracker on the store reads. Events and due lists may be lost. The sweep visits every member of every swarm once
per reap interval. The script checks each peer again, so removing it a second time does nothing.

Peers of users, clients and torrents that are refused are removed within seconds. The store lists them, so another
tracker goes on after a crash; two that remove the same peers do no harm.
"""

import asyncio
import math
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from redis.exceptions import ResponseError

from tracker.store.access.client_lists import STALE_SECONDS
from tracker.store.client.server_info import request_expiry_events
from tracker.store.sharding.shards import Shard
from tracker.store.store import Store
from tracker.store.swarms.codec import DUE_STEP_SECONDS
from tracker.store.swarms.reaping import HEARTBEAT_SECONDS, NO_PEERS, Reaping, pending_removals
from tracker.system.logger import Logger
from tracker.workers.loop import Sleep, forever, until_next, wait_for

BATCH = 32
"""Peers to remove per call. A call blocks the store for about 2 ms; announces run between two calls."""
DUE_ENTRIES = 128
"""Entries of a due list read per call. Nearly all peers in them have usually announced since."""
SWEEP_BUDGET = 100
"""Members and swarms visited per call, about."""
SWEEP_PAUSES = 2
"""The sweep pauses at least twice as long as a call took, so it takes at most a third of the store's time."""
SWEEP_BEHIND = 3
"""The sweep is behind when its last round ended more than this many reap intervals ago."""
_LOOK_BACK, _MAX_LOOK_BACK = 600, 86_400
"""How far back (s) the due lists are read without a cursor, and with one. Lists expire after a day."""
_DUE_PAGE = 500
_MAX_WAITING = 2_000_000
_PEER = re.compile(r"(\d+):([0-9a-f]{40})", re.ASCII)
"""Torrent id and peer id, the end of the key of a timeout. Other expired keys are ignored."""
_TICK_SECONDS = 0.5
_SIZE_SECONDS = 10.0
"""How often a round of the sweep reads how much there is to visit."""
_SUMMARY_SECONDS = 60.0
_MIN_COUNTS_SECONDS = 600
"""How long the counts of a round of the sweep are shown, at least; else three reap intervals."""
MAX_PAUSE_SECONDS = 30.0
"""Maximum pause of the sweep. A round with little to visit ends early."""
_SHARE = 0.9
"""The planned share of a round's time."""
SHARDED_HEARTBEAT_SECONDS = 4 * HEARTBEAT_SECONDS
"""The interval of web processes with several shards. An outage begins after 60 s without a heartbeat."""
_FORBIDDEN_SECONDS = 60.0
"""How long to wait before the next attempt where the store forbids subscriptions."""

_SAME_PAUSE_SECONDS = 30
"""Shards notice an interruption within so many seconds of each other."""

log = Logger("tracker.reaper")


@dataclass(eq=False)
class Pace:
    """The pace of one round of the sweep that began at ``began``: the remaining time divided by what remains to visit.
    Both are read again after each step, so a round ends in time even if the tracker grows. All times are seconds of one
    monotonic clock."""

    began: float
    size: int = 0
    """The latest known number of entries to visit."""
    visited: int = 0

    def pause(self, now: float, step: int, seconds: float) -> float:
        """The pause (s) after a step that visited ``step`` entries, in a round that may take ``seconds``."""
        self.visited += step
        left = self.size - self.visited
        time_left = self.began + _SHARE * seconds - now
        if left <= 0 or time_left <= 0:
            return 0.0
        return min(MAX_PAUSE_SECONDS, time_left * step / (left + step))


@dataclass(eq=False)
class Pauses:
    """Reports pauses of the reapers of a tracker: once, though each shard notices the interruption by itself."""

    _until: float = -math.inf

    def report(self, until: float, clock: float) -> None:
        """``until`` and ``clock``: the end of the pause, by the timer and in epoch seconds."""
        if until > self._until + _SAME_PAUSE_SECONDS:
            log.warning(
                "reaping paused: an outage of tracker or store, lost announces, or a clock stepped",
                until=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock)),
            )
        self._until = max(self._until, until)


@dataclass(eq=False)
class Reaper:
    """``reap_interval`` returns the reap interval (s), ``clock`` epoch seconds, ``timer`` monotonic seconds. ``wait``
    waits for an event, or so many seconds of ``timer``. ``denied`` returns the prefixes of denied clients."""

    store: Store
    shard: Shard
    reap_interval: Callable[[], float]
    clock: Callable[[], float]
    timer: Callable[[], float] = time.monotonic
    wait: Callable[[asyncio.Event, float], Awaitable[None]] = wait_for
    denied: Callable[[], Awaitable[Sequence[bytes]]] | None = None
    pauses: Pauses = field(default_factory=Pauses)

    def __post_init__(self) -> None:
        self.reaping, self.connection = self.store.reapings[self.shard], self.shard.connection
        self._interval = self.reap_interval()
        self._since = 0.0
        """When the last round ended, the reaper started or the interval changed, by the timer; 0: not yet."""
        self._expired: deque[tuple[str, str]] = deque(maxlen=_MAX_WAITING)
        self._received = asyncio.Event()
        self._turn = asyncio.Lock()
        self._sweep_now = asyncio.Event()
        self._grace_until = 0.0
        self.listening = False
        """Whether the subscription to expiry events is open."""
        self._events_possible = True
        self._subscriptions_forbidden = False
        self._due_done: int | None = None
        self._reaped = 0
        self.swept_at = 0.0
        """When the last round of the sweep ended, epoch s; 0 before the first."""
        self.sweep_seconds = 0.0
        """The duration of that round."""

    @property
    def held(self) -> list[int]:
        """The numbers of the shards whose background work is this tracker's: its one."""
        return [0]

    @property
    def running(self) -> list["Reaper"]:
        return [self]

    @property
    def interval(self) -> float:
        """The current reap interval. Records when it changes, for ``sweep_behind``."""
        seconds = self.reap_interval()
        if seconds != self._interval:
            self._interval, self._since = seconds, self.timer()
        return seconds

    @property
    def missing_events(self) -> bool:
        """Whether expiry events are possible but not received. False where they are off or forbidden."""
        return self._events_possible and not self.listening

    @property
    def due_behind_seconds(self) -> float:
        """Seconds since the next unprocessed due list was due; 0 when none is."""
        return 0.0 if self._due_done is None else max(0.0, self.clock() - self._due_done - DUE_STEP_SECONDS)

    @property
    def sweep_behind(self) -> bool:
        """Whether the last round, the start and the last change of the interval are all too long ago."""
        interval = self.interval
        return bool(self._since) and self.timer() - self._since > SWEEP_BEHIND * interval

    async def run(self) -> None:
        self._since = self.timer()
        self._sweep_now.set()
        loop = partial(forever, error_seconds=1.0, connection=self.connection)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(loop(self._listen, 0.0, "reaping failed: subscription to expiry events"))
            tasks.create_task(loop(self._reap_received, 0.0, "reaping failed: expired peers"))
            tasks.create_task(loop(self._reap_due, 0.0, "reaping failed: due lists"))
            tasks.create_task(loop(self._sweep, 0.0, "reaping failed: sweep"))
            tasks.create_task(loop(self.send_heartbeat, HEARTBEAT_SECONDS, "heartbeat failed", sleep=until_next))
            tasks.create_task(forever(self._summarize, _SUMMARY_SECONDS))

    # Events

    async def _listen(self) -> None:
        if not self._subscriptions_forbidden:
            self._events_possible = await request_expiry_events(self.connection)
        prefix = self.connection.keyspace_channel(self.shard.keys.timeouts())
        skip = len(prefix.encode())
        try:
            async with self.connection.subscription(patterns=[f"{prefix}*"]) as messages:
                if self._subscriptions_forbidden:
                    self._events_possible = await request_expiry_events(self.connection)
                self.listening, self._subscriptions_forbidden = True, False
                self._sweep_now.set()  # for events lost before the subscription
                async for channel, event in messages:
                    if event == b"expired" and (peer := _PEER.fullmatch(channel[skip:].decode("ascii", "replace"))):
                        self._expired.append((peer[1], peer[2]))
                        self._received.set()
        except ResponseError as error:
            self.listening = False
            if not self._subscriptions_forbidden:
                log.warning(
                    "store forbids the subscription to expiry events; only due lists and the sweep remove peers",
                    error=str(error),
                )
            self._subscriptions_forbidden, self._events_possible = True, False
            await asyncio.sleep(_FORBIDDEN_SECONDS)
        finally:
            self.listening = False

    async def _reap_received(self) -> None:
        await self._received.wait()
        self._received.clear()
        while self._expired:
            peers = [self._expired.popleft() for _ in range(min(BATCH, len(self._expired)))]
            async with self._turn:
                reaped = await self.reaping.reap(peers)
            self._count(reaped, "event")

    # Due lists

    async def _reap_due(self) -> None:
        cursor = await self.reaping.due_cursor()
        # Also after a long outage: a live peer in an old list has to move to a later one.
        earliest = int(self.clock()) - (_LOOK_BACK if cursor is None else _MAX_LOOK_BACK)
        deadline = max(cursor or 0, earliest - earliest % DUE_STEP_SECONDS)
        while True:
            now = self.clock()
            if deadline > now + DUE_STEP_SECONDS:  # a clock that was ahead has been set back
                deadline = int(now) - int(now) % DUE_STEP_SECONDS
            self._due_done = deadline
            while deadline + DUE_STEP_SECONDS <= now:
                deadline = await self._reap_page(deadline, now)
                await self.reaping.set_due_cursor(deadline)
                self._due_done = deadline
            await until_next(_TICK_SECONDS)

    async def _reap_page(self, after: int, now: float) -> int:
        """Reads the lists due after ``after``, at most one page; returns the last deadline done."""
        last = min(after + _DUE_PAGE * DUE_STEP_SECONDS, int(now) - int(now) % DUE_STEP_SECONDS)
        for deadline in await self.reaping.due_lists(range(after + DUE_STEP_SECONDS, last + 1, DUE_STEP_SECONDS)):
            first, seen, reaped = 0, 1, 0
            while seen:
                # Where all had timed out, the next ones have too: read no more than can be removed.
                entries = BATCH if reaped == BATCH else DUE_ENTRIES
                async with self._turn:
                    seen, reaped = await self.reaping.reap_due(deadline, first, entries, BATCH)
                first += seen
                self._count(reaped, "due")
                for _ in range(reaped):
                    self.store.counters.observe("reap_lag_seconds", self.clock() - deadline)
        return last

    # Sweep

    async def _sweep(self) -> None:
        hurry, began = self._sweep_now.is_set(), self.timer()
        self._sweep_now.clear()
        if self.reaping.was_set_back:
            await self.reaping.shorten_timeouts()
        await self.sweep_once(hurry=hurry)
        ended = self.timer()
        while not self._sweep_now.is_set():  # the next round is due an interval after this one began
            now, grace_until = self.timer(), self._grace_until
            due = ended + self.interval / 10
            if not hurry:
                due = max(due, began + self.interval)
            if grace_until > now:
                due = min(due, grace_until)
            if now >= due:
                return
            await self.wait(self._sweep_now, min(due - now, MAX_PAUSE_SECONDS))

    async def sweep_once(self, *, hurry: bool) -> None:
        """Visits every swarm once. The round is spread over most of an interval, unless ``hurry`` is set. An urgent
        round also pauses after each call: without pauses it would take most of the store's time."""
        began, pace = self.timer(), Pace(self.timer())
        denied = await self.denied() if self.denied is not None else ()
        sized_at, logged, cursor, peers = -math.inf, False, 0, NO_PEERS
        while True:
            cursor, torrent_ids = await self.reaping.page(cursor, SWEEP_BUDGET)
            position = ""
            while torrent_ids:
                began_call = self.timer()
                if began_call - sized_at >= _SIZE_SECONDS:
                    pace.size, sized_at = await self.reaping.size(), began_call
                step = await self.reaping.sweep(torrent_ids[:SWEEP_BUDGET], position, SWEEP_BUDGET, denied)
                now = self.timer()
                large = bool(position or step.position)  # its members are seen twice: as such, and in the arrays
                torrent_ids, position = torrent_ids[step.done :], step.position
                peers = peers.plus(step.peers)
                self._count_sweep(step.reaped, step.repairs, step.forgotten)
                pause = pace.pause(now, step.done + step.seen // (2 if large else 1), self.interval)
                if not logged and now - began > self.interval:
                    logged = True
                    log.warning("sweep is late", visited=pace.visited, of=pace.size, interval=self.interval)
                await self._pause(SWEEP_PAUSES * (now - began_call), 0.0 if hurry else pause)
            if not cursor:
                break
        self._count_sweep(0, await self.reaping.check_totals(), 0)
        await self.reaping.save_peer_counts(peers, int(max(_MIN_COUNTS_SECONDS, 3 * self.interval)))
        self.swept_at, self._since = self.clock(), self.timer()
        self.sweep_seconds = self._since - began

    async def _pause(self, min_seconds: float, max_seconds: float) -> None:
        """Waits ``max_seconds``, or only ``min_seconds`` when a round is requested."""
        min_seconds = min(min_seconds, MAX_PAUSE_SECONDS)
        await asyncio.sleep(min_seconds)
        if max_seconds > min_seconds and not self._sweep_now.is_set():
            await self.wait(self._sweep_now, max_seconds - min_seconds)

    def _count_sweep(self, reaped: int, repairs: int, forgotten: int) -> None:
        self._count(reaped, "sweep")
        if repairs:
            self.store.counters.count("repairs", by=repairs)
            log.error("sweep repaired inconsistent swarms", repairs=repairs)
        if forgotten:
            self.store.counters.count("forgotten", by=forgotten)

    # Heartbeat

    async def on_reconnect(self) -> None:
        """Sends a heartbeat before the first announce, because the heartbeat detects an outage."""
        await self.send_heartbeat()
        self._sweep_now.set()

    async def send_heartbeat(self) -> None:
        """Reports that a tracker is running. After an outage or a step of a clock, all peers get time to announce
        before one is removed."""
        until = await self.reaping.heartbeat()
        now, left = self.timer(), until + self.reaping.grace_seconds + 1 - self.clock()
        if left > 0 and now + left > self._grace_until + 1:
            self.pauses.report(now + left, self.clock() + left)
        if left > 0:
            self._grace_until = now + left
        elif self._grace_until:
            self._grace_until = 0.0
            self._sweep_now.set()
        if self.reaping.was_set_back:
            self._sweep_now.set()

    def _count(self, reaped: int, cause: str) -> None:
        if reaped:
            self._reaped += reaped
            self.store.counters.count("reaps", f"reaps.{cause}", by=reaped)

    async def _summarize(self) -> None:
        if self._reaped:
            log.info("removed timed-out peers", peers=self._reaped)
        self._reaped = 0


async def send_heartbeats(reapings: Sequence[Reaping]) -> None:
    """The heartbeats of a web process, to all of ``reapings`` until cancelled: peers can announce. The background
    process sends them too, but may be suspended while web processes serve. Without theirs that would look like an
    outage, and no time in a swarm would count. No shard waits for an unavailable one."""
    every = HEARTBEAT_SECONDS if len(reapings) == 1 else SHARDED_HEARTBEAT_SECONDS
    async with asyncio.TaskGroup() as tasks:
        for each in reapings:
            tasks.create_task(forever(each.heartbeat, every, "heartbeat failed", sleep=until_next))


REMOVE_SECONDS = 1.0


async def remove_once(
    store: Store, denied: Callable[[], Awaitable[Sequence[bytes]]], held: Sequence[int], sleep: Sleep = asyncio.sleep
) -> int:
    """Removes all peers that are to be removed now; returns their number. ``denied`` returns the prefixes of denied
    clients; ``held`` are the numbers of the shards that are this tracker's."""
    pending = await pending_removals(store.shards, held)
    if any(entry.startswith("client:") for entries in pending.values() for entry in entries):
        await sleep(STALE_SECONDS)  # until then a process may admit a client that it knows as allowed
    prefixes = await denied() if pending else ()
    removing = (store.reapings[shard].remove(entries, prefixes, sleep) for shard, entries in pending.items())
    removed = sum(await asyncio.gather(*removing))
    if removed:
        log.info("removed peers of refused users, clients or torrents", peers=removed)
    return removed
