"""Work distribution: decides every ten minutes which torrents of seeding projects need seeders.

A run visits what the policy has enqueued, then torrents with fewer seeders than the target. It visits a limited number
of torrents, so that it costs the store less than a second. The next run goes on where it stopped.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from tracker.bittorrent import InfoHash
from tracker.store.work.policy import Change, Policy, Position
from tracker.store.work.projects import Projects
from tracker.store.work.records import Project, UnknownProject

EVERY_SECONDS = 600
MAX_MANAGED_A_RUN, MAX_WEAK_A_RUN = 3_000, 7_000
"""Torrents of a project that one run visits."""
SLICE = 10
"""Torrents per script call. More would delay announces by more than a millisecond."""
_PAGE = 500
_PAUSE_SECONDS = 0.004

log = structlog.get_logger("tracker.work")


class WorkPolicy:
    """``chance`` returns random numbers from 0 to 1. ``sleep`` waits between script calls."""

    def __init__(
        self,
        projects: Projects,
        policy: Policy,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        max_managed: int = MAX_MANAGED_A_RUN,
        max_weak: int = MAX_WEAK_A_RUN,
    ) -> None:
        self._projects = projects
        self._policy = policy
        self._chance = chance
        self._sleep = sleep
        self._max_managed = max_managed
        self._max_weak = max_weak

    async def handle(self, _: object) -> None:
        """Handles jobs of the queue ``work_policy``."""
        for project in await self._projects.all():
            if project.kind == "seeding":
                with suppress(UnknownProject):  # deleted meanwhile
                    changes = [change async for change in self.changes(project)]
                    if changes:
                        log.info("policy of work ran", project=project.name, changes=len(changes))

    async def changes(self, project: Project, *, dry_run: bool = False) -> AsyncIterator[Change]:
        """Brings the demand of a seeding project in line, and yields what changed. In a dry run nothing is written: it
        yields what a run would change now. Raises UnknownProject."""
        at, left = await self._policy.stored_position(project.name), self._max_managed
        while left > 0:
            cursor, page = await self._policy.managed(project.name, at.cursor, _PAGE)
            at, left = replace(at, cursor=cursor), left - len(page)
            async for change in self._fill(project, page, at, dry_run):
                yield change
            if not cursor:
                break
        count = await self._policy.weak_count(project)
        first = at.rank if at.rank < count else 0
        for begin in range(first, min(count, first + self._max_weak), _PAGE):
            wanted = min(_PAGE, count - begin, first + self._max_weak - begin)
            page = await self._policy.weak(begin, wanted)
            async for change in self._fill(project, page, replace(at, rank=begin + wanted), dry_run):
                yield change

    async def _fill(
        self, project: Project, page: Sequence[InfoHash], after: Position, dry_run: bool
    ) -> AsyncIterator[Change]:
        """``after``: where the next run goes on after this page."""
        for begin in range(0, max(1, len(page)), SLICE):
            torrents = page[begin : begin + SLICE]
            is_last = begin + SLICE >= len(page)
            for change in await self._policy.fill(
                project.name,
                torrents,
                [self._chance() for _ in torrents],
                position=after if is_last else None,
                dry_run=dry_run,
            ):
                yield change
            await self._sleep(_PAUSE_SECONDS)
