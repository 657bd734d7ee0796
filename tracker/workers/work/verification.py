"""Work distribution: verifies every minute what claimants seed, and counts finished claims by itself.

A round over all claims of a project takes at most ten minutes, well below the time that a lease lasts after the last
sign of life. Projects that ask for it also have the claimants' seeders probed, once a day per claim.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from redis.exceptions import ResponseError

from tracker.bittorrent import InfoHash
from tracker.store.store import Store
from tracker.store.work.records import Project, UnknownProject
from tracker.store.work.verification import MAX_BATCH, Checked, ProbeResult, asks_for_probes
from tracker.system.logger import Logger
from tracker.wire.torrent_file import Pieces
from tracker.workers.prober import Level, Prober, Status

EVERY_SECONDS = 60
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

log = Logger("tracker.work")


@dataclass(eq=False)
class WorkVerification:
    """Without a ``prober`` that is enabled, claims are verified by announces alone. ``pieces`` returns those of a
    torrent, if its file is kept."""

    store: Store
    prober: Prober | None = None
    pieces: Callable[[InfoHash], Awaitable[Pieces | None]] | None = None

    def __post_init__(self) -> None:
        self._unprobed: list[str] = []
        self._verification = self.store.work.verification

    async def handle(self, _: object = None) -> None:
        """Handles jobs of the queue ``work_verify``. May be cancelled between claims, and run in several trackers at
        once. Raises StoreUnavailable."""
        projects = await self.store.work.projects.all()
        self._warn_of_unprobed(projects)
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

    def _warn_of_unprobed(self, projects: Sequence[Project]) -> None:
        """Logs once which projects ask for probes while there are none."""
        unprobed = [] if self._is_probing else [each.name for each in projects if asks_for_probes(each)]
        if unprobed and unprobed != self._unprobed:
            log.warning("claims are verified by announces alone: set TRACKER_PROBE__ENABLED", projects=unprobed)
        self._unprobed = unprobed

    async def _verify(self, project: Project) -> None:
        """Looks at a batch of claims, or at more where there are many."""
        before = self.store.clock() - EVERY_SECONDS + _EARLY_SECONDS
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
        ended = await self._probe(project, due)
        if done or ended:
            log.info("verified claims", project=project.name, done=done, failed=ended)

    async def _probe(self, project: Project, due: Sequence[Checked]) -> int:
        """Probes seeders at the same time. Returns how many claims that ended."""
        results = await asyncio.gather(*(self._result(project, claim) for claim in due))
        ended = 0
        for claim, result in zip(due, results, strict=True):
            if result is not None:
                ended += await self._verification.note_probe(project.name, claim, result)
        return ended

    async def _result(self, project: Project, claim: Checked) -> ProbeResult | None:
        """None: try again in the next run."""
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
