"""Ends claims of work distribution whose lease ended, updates leaderboards, and keeps projects small.

Any number of trackers may do this on one store: each step is one script.
"""

import asyncio
from collections.abc import Callable

from redis.exceptions import ResponseError

from tracker.store.client.connection import Connection
from tracker.store.work.leaderboard import MAX_ADDED
from tracker.store.work.projects import MAX_TRIMMED
from tracker.store.work.records import UnknownProject
from tracker.store.work.work import Work
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


class LeaseWorker:
    """``clock`` gives epoch seconds."""

    def __init__(self, work: Work, connection: Connection, clock: Callable[[], float]) -> None:
        self._work = work
        self._connection = connection
        self._clock = clock
        self._trimmed_at = 0.0

    async def run(self) -> None:
        failure = "cannot end claims of work distribution"
        await forever(self.run_once, EVERY_SECONDS, failure, connection=self._connection)

    async def run_once(self) -> int:
        """Ends what has ended in all projects, and updates their leaderboards; from time to time, also deletes what is
        no longer kept. Returns how many claims ended."""
        now = self._clock()
        trims = not 0 <= now - self._trimmed_at < TRIM_EVERY_SECONDS
        ended = 0
        for project in await self._work.projects.all():
            try:
                await self._update_leaderboards(project.name)
                ended += await self._end_claims(project.name)
                if trims:
                    await self._trim(project.name)
            except UnknownProject:  # deleted meanwhile
                continue
            except ResponseError as error:  # a key of a wrong type: no reason to leave out other projects
                log.error("cannot end claims of a project", project=project.name, error=str(error))
        if trims:
            await self._work.projects.finish_deletions()
            self._trimmed_at = now
        return ended

    async def _update_leaderboards(self, project: str) -> None:
        while await self._work.leaderboard.update(project) >= MAX_ADDED:
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _end_claims(self, project: str) -> int:
        ended = 0
        while True:
            some = await self._work.claims.lapse(project, _BATCH)
            ended += some
            if some < _BATCH:
                return ended
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _trim(self, project: str) -> None:
        while await self._work.projects.trim(project) >= MAX_TRIMMED:
            await asyncio.sleep(_PAUSE_SECONDS)
