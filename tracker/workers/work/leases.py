"""Ends claims of work distribution whose lease ended, updates leaderboards, and keeps projects small. Any number of
trackers may do this on one store: each step is one script."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from redis.exceptions import ResponseError

from tracker.store.store import Store
from tracker.store.work.projects import MAX_TRIMMED
from tracker.store.work.records import UnknownProject
from tracker.store.work.statistics import MAX_ADDED
from tracker.system.logger import Logger
from tracker.workers.loop import forever

EVERY_SECONDS = 10.0
"""A claim is back in its queue within a minute, also when a run fails, or when many lapse at once. Leaderboards are so
late at most."""
TRIM_EVERY_SECONDS = 600.0
_BATCH = 200
"""Claims that one script call ends: announces wait for it."""
_PAUSE_SECONDS = 0.001

log = Logger("tracker.work")


@dataclass(eq=False)
class LeaseWorker:
    store: Store

    def __post_init__(self) -> None:
        self._trimmed_at = 0.0

    async def run(self) -> None:
        failure = "cannot end claims of work distribution"
        await forever(self.run_once, EVERY_SECONDS, failure, connection=self.store.connection)

    async def run_once(self) -> int:
        """Ends what has ended in all projects, and updates their leaderboards; from time to time, also deletes what is
        no longer kept. Returns how many claims ended."""
        work, now = self.store.work, self.store.clock()
        trims = not 0 <= now - self._trimmed_at < TRIM_EVERY_SECONDS
        ended = 0
        for project in await work.projects.all():
            try:
                await _until_done(work.leaderboard.update, project.name, MAX_ADDED)
                ended += await _until_done(partial(work.claims.lapse, max_claims=_BATCH), project.name, _BATCH)
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
        await asyncio.sleep(_PAUSE_SECONDS)
        done += (some := await step(project))
    return done
