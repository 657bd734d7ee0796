"""Work distribution: verifies every minute what claimants seed, and counts finished claims by itself.

A round over all claims of a project takes at most ten minutes, well below the time that a lease lasts after the last
sign of life.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from tracker.store.work.projects import Projects
from tracker.store.work.records import Project, UnknownProject
from tracker.store.work.verification import MAX_BATCH, Verification

EVERY_SECONDS = 60
_ROUND_RUNS = 10
"""In so many runs every claim is looked at."""
_EARLY_SECONDS = 10
"""A run may start so much earlier in its minute than the last one."""

log = structlog.get_logger("tracker.work")


class WorkVerification:
    """``clock`` returns epoch seconds."""

    def __init__(self, projects: Projects, verification: Verification, clock: Callable[[], float]) -> None:
        self._projects = projects
        self._verification = verification
        self._clock = clock

    async def handle(self, _: object = None) -> None:
        """Handles jobs of the queue ``work_verify``. May be cancelled between claims, and run in several trackers at
        once. Raises StoreUnavailable and redis.exceptions.RedisError."""
        for project in await self._projects.all():
            if project.verify != "none":
                with suppress(UnknownProject):  # deleted meanwhile
                    await self._verify(project)

    async def _verify(self, project: Project) -> None:
        """Looks at a batch of claims, or at more where there are many."""
        before = self._clock() - EVERY_SECONDS + _EARLY_SECONDS
        left = max(MAX_BATCH, -(-await self._verification.count(project.name) // _ROUND_RUNS))
        done = 0
        while left > 0:
            batch = min(left, MAX_BATCH)
            checked = await self._verification.check(project.name, before, batch)
            for claim in checked:
                if claim.verified:
                    done += (await self._verification.complete(project.name, claim)).counted
            if not checked:
                break
            left -= batch
            await asyncio.sleep(0)
        if done:
            log.info("verified claims", project=project.name, done=done)
