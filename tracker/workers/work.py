"""Work distribution: decides every ten minutes which torrents of seeding projects need seeders, and adds up sizes;
verifies every minute what claimants seed; ends claims whose lease ended, updates leaderboards, keeps projects small.

A run of the policy visits what it has enqueued, then looks at the torrents with fewer seeders than the target. Of those
that it finds it enqueues the ones with the fewest. Its limits keep its cost to the store below a second. The next run
goes on where it stopped.

A verification of all claims of a project takes at most ten minutes, well below the time that a lease lasts after the
last sign of life. Finished claims are counted by itself. Projects that ask for it also have the claimants' seeders
probed, once a day per claim.

Any number of trackers may end leases on one store: each step is one script.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from heapq import heappush, heappushpop

from redis.exceptions import ResponseError

from tracker.bittorrent import InfoHash
from tracker.store.store import Store
from tracker.store.work.policy import Change, Policy, Position, Rehearsal
from tracker.store.work.projects import MAX_TRIMMED, Projects
from tracker.store.work.records import Project, UnknownProject
from tracker.store.work.sizes import CLASSES, Sizes
from tracker.store.work.statistics import MAX_ADDED
from tracker.store.work.verification import MAX_BATCH, Checked, ProbeResult, asks_for_probes
from tracker.system.logger import Logger
from tracker.wire.torrent_file import Pieces
from tracker.workers.loop import forever
from tracker.workers.prober import Level, Prober, Status

POLICY_EVERY_SECONDS = 600
MAX_MANAGED_A_RUN, MAX_COST_A_RUN, MAX_ENQUEUED_A_RUN = 6_000, 300_000, 2_000
"""Enqueued torrents that a run visits in a project; the cost of its look at others (see Found); how many of those it
enqueues."""
_VISITED, _LOOKED_AT, _NOTED = 100, 500, 50
"""Torrents per call. More would delay announces by more than a millisecond."""
_POLICY_PAUSE_SECONDS = 0.02
_SIZES_PAUSE_SECONDS = 0.002

log = Logger("tracker.work")


@dataclass(eq=False)
class WorkPolicy:
    """``chance`` returns random numbers from 0 to 1. ``sleep`` waits between calls to the store. The limits are for one
    run and project. ``max_weak`` is how many torrents it looks at; None: as ``max_cost`` allows."""

    projects: Projects
    policy: Policy
    chance: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _: KW_ONLY
    max_managed: int = MAX_MANAGED_A_RUN
    max_weak: int | None = None
    max_cost: int = MAX_COST_A_RUN
    max_enqueued: int = MAX_ENQUEUED_A_RUN

    async def handle(self, _: object) -> None:
        """Handles jobs of the queue ``work_policy``."""
        for project in await self.projects.all():
            if project.kind == "seeding":
                with suppress(UnknownProject):  # deleted meanwhile
                    changes = [change async for change in self.changes(project)]
                    if changes:
                        log.info("policy of work ran", project=project.name, changes=len(changes))

    async def changes(self, project: Project, *, dry_run: bool = False) -> AsyncIterator[Change]:
        """Brings the demand of a seeding project in line, and yields what changed. In a dry run nothing is written: it
        yields what a run would change now. Raises UnknownProject."""
        at, rehearsal = await self.policy.stored_position(project.name), Rehearsal() if dry_run else None
        cursor, left = at.cursor, self.max_managed
        while left > 0:
            cursor, page = await self.policy.managed(project.name, cursor, _LOOKED_AT)
            left -= len(page)
            async for change in self._fill(project, page, Position(at.rank, cursor), rehearsal):
                yield change
            if not cursor:
                break
        rank, neediest = await self._neediest(project, at.rank, rehearsal)
        async for change in self._fill(project, neediest, Position(rank, cursor), rehearsal):
            yield change

    async def _neediest(self, project: Project, rank: int, rehearsal: Rehearsal | None) -> tuple[int, list[InfoHash]]:
        """Looks at torrents from ``rank`` on, in the ranking by seeders. Returns where to go on, and the neediest of
        those that the policy has not enqueued, the neediest first."""
        limit = await self.policy.limit(project.name, rehearsal)
        count = await self.policy.states.weak_count(project)
        begin = rank if rank < count else 0
        end = count if self.max_weak is None else min(count, begin + self.max_weak)
        kept: list[tuple[float, float, InfoHash]] = []
        cost = 0
        while begin < end and cost < self.max_cost:
            found = await self.policy.states.weak(project, begin, min(_LOOKED_AT, end - begin), limit)
            for need, info_hash in found.candidates:
                entry = (-need, self.chance(), info_hash)
                if len(kept) < self.max_enqueued:
                    heappush(kept, entry)
                else:
                    heappushpop(kept, entry)
            for first in range(0, len(found.to_note) if rehearsal is None else 0, _NOTED):
                await self.policy.states.note(found.to_note[first : first + _NOTED])
            begin, cost = min(end, begin + _LOOKED_AT), cost + found.cost
            await self.sleep(_POLICY_PAUSE_SECONDS)
        return begin, [info_hash for _, _, info_hash in sorted(kept, reverse=True)]

    async def _fill(
        self, project: Project, torrents: Sequence[InfoHash], after: Position, rehearsal: Rehearsal | None
    ) -> AsyncIterator[Change]:
        """``after``: where the next run goes on after these torrents."""
        for begin in range(0, max(1, len(torrents)), _VISITED):
            some = torrents[begin : begin + _VISITED]
            changes = await self.policy.fill(
                project.name,
                some,
                [self.chance() for _ in some],
                position=after if begin + _VISITED >= len(torrents) else None,
                rehearsal=rehearsal,
            )
            for change in changes:
                yield change
            await self.sleep(_POLICY_PAUSE_SECONDS)


async def save_sizes(sizes: Sizes, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Adds up how many bytes of the registered torrents have how many seeders; for jobs of the queue ``work_sizes``. A
    million torrents cost the store a few seconds; ``sleep`` waits between script calls. An interrupted walk starts
    again and stores nothing."""
    sums, cursor = [0] * len(CLASSES), ""
    while cursor != "0":
        cursor, some = await sizes.scan(cursor or "0")
        sums = [a + b for a, b in zip(sums, some, strict=True)]
        await sleep(_SIZES_PAUSE_SECONDS)
    await sizes.save(sums)


VERIFY_EVERY_SECONDS = 60
MIN_A_RUN = 200
"""Claims that a run looks at, or more where there are many."""
MAX_PROBES_A_RUN = 20
"""Of each project: the prober connects twice a second, and a run should end within its minute."""
PROBE_SECONDS = 40.0
"""A probe that takes longer shows nothing."""
_ROUND_RUNS = 10
"""In so many runs every claim is looked at."""
_EARLY_SECONDS = 10
"""A run may start so much earlier in its minute than the last one."""
_RESULTS: dict[Status, ProbeResult] = {
    Status.CONFIRMED: "confirmed",
    Status.LIED: "failed",
    Status.UNREACHABLE: "failed",
    Status.UNKNOWN: "unknown",
    Status.SKIPPED: "unknown",
}
"""A peer that cannot be checked is not held against its user. Deferred probes come again in the next run."""


@dataclass(eq=False)
class WorkVerification:
    """Without a ``prober`` that is enabled, claims are verified by announces alone. ``pieces`` returns those of a
    torrent, if its file is kept."""

    store: Store
    prober: Prober | None = None
    pieces: Callable[[InfoHash], Awaitable[Pieces | None]] | None = None

    def __post_init__(self) -> None:
        self._unprobed: list[str] = []
        """The projects that ask for probes while there are none, of which the log has told."""
        self._verification = self.store.work.verification

    async def handle(self, _: object = None) -> None:
        """Handles jobs of the queue ``work_verify``. May be cancelled between claims, and run in several trackers at
        once. Raises StoreUnavailable."""
        projects = await self.store.work.projects.all()
        unprobed = [] if self._is_probing else [each.name for each in projects if asks_for_probes(each)]
        if unprobed and unprobed != self._unprobed:
            log.warning("claims are verified by announces alone: set TRACKER_PROBE__ENABLED", projects=unprobed)
        self._unprobed = unprobed
        for project in projects:
            if project.verify != "none":
                try:
                    await self._verify(project)
                except UnknownProject:  # deleted meanwhile
                    continue
                except ResponseError as error:  # a key of a wrong type: no reason to leave out other projects
                    log.error("cannot verify claims of a project", project=project.name, error=str(error))

    @property
    def _is_probing(self) -> bool:
        return self.prober is not None and self.prober.is_enabled()

    async def _verify(self, project: Project) -> None:
        """Looks at a batch of claims, or at more where there are many."""
        before = self.store.clock() - VERIFY_EVERY_SECONDS + _EARLY_SECONDS
        left = max(MIN_A_RUN, -(-await self._verification.count(project.name) // _ROUND_RUNS))
        done, due = 0, list[Checked]()
        while left > 0:
            batch = min(left, MAX_BATCH)
            probes = MAX_PROBES_A_RUN - len(due) if self._is_probing else None
            checked = await self._verification.check(project.name, before, batch, probes)
            for claim in checked:
                if claim.verified:
                    done += (await self._verification.complete(project.name, claim)).counted
                elif claim.endpoint is not None:
                    due.append(claim)
            if not checked:
                break
            left -= batch
            await asyncio.sleep(0)
        results = await asyncio.gather(*(self._result(project, claim) for claim in due))
        ended = 0
        for claim, result in zip(due, results, strict=True):
            if result is not None:
                ended += await self._verification.note_probe(project.name, claim, result)
        if done or ended:
            log.info("verified claims", project=project.name, done=done, failed=ended)

    async def _result(self, project: Project, claim: Checked) -> ProbeResult | None:
        """What a probe of the claimant's seeder shows. None: try again in the next run."""
        assert self.prober is not None
        if not claim.endpoint:
            return "unknown"
        info_hash = InfoHash(bytes.fromhex(claim.item))
        pieces = await self.pieces(info_hash) if self.pieces is not None else None
        level = Level.PIECE if project.verify == "piece" and pieces is not None else Level.HANDSHAKE
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                status = await self.prober.check(claim.endpoint, info_hash, level, pieces, is_claimant=True)
        except TimeoutError:
            return "unknown"
        return _RESULTS.get(status)


LEASES_EVERY_SECONDS = 10.0
"""A claim is back in its queue within a minute, also when a run fails, or when many lapse at once. Leaderboards are so
late at most."""
TRIM_EVERY_SECONDS = 600.0
_MAX_LAPSED = 200
"""Claims that one script call ends: announces wait for it."""
_LEASES_PAUSE_SECONDS = 0.001


@dataclass(eq=False)
class LeaseWorker:
    store: Store
    _trimmed_at: float = 0.0

    async def run(self) -> None:
        failure = "cannot end claims of work distribution"
        await forever(self.run_once, LEASES_EVERY_SECONDS, failure, connection=self.store.connection)

    async def run_once(self) -> int:
        """Ends what has ended in all projects, and updates their leaderboards; from time to time, also deletes what is
        no longer kept. Returns how many claims ended."""
        work, now = self.store.work, self.store.clock()
        trims = not 0 <= now - self._trimmed_at < TRIM_EVERY_SECONDS
        ended = 0
        for project in await work.projects.all():
            try:
                await _until_done(work.leaderboard.update, project.name, MAX_ADDED)
                ended += await _until_done(
                    partial(work.claims.lapse, max_claims=_MAX_LAPSED), project.name, _MAX_LAPSED
                )
                if trims:
                    await _until_done(work.projects.trim, project.name, MAX_TRIMMED)
            except UnknownProject:  # deleted meanwhile
                continue
            except ResponseError as error:  # a key of a wrong type: no reason to leave out other projects
                log.error("cannot end claims of a project", project=project.name, error=str(error))
        if trims:
            await work.projects.finish_deletions()
            self._trimmed_at = now
        return ended


async def _until_done(step: Callable[[str], Awaitable[int]], project: str, full: int) -> int:
    """Repeats ``step`` until it does less than ``full``. Returns how much it did."""
    done = some = await step(project)
    while some >= full:
        await asyncio.sleep(_LEASES_PAUSE_SECONDS)
        done += (some := await step(project))
    return done
