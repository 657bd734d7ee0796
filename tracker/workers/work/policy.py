"""Work distribution: decides every ten minutes which torrents of seeding projects need seeders, and adds up sizes.

A run visits what the policy has enqueued, then looks at the torrents with fewer seeders than the target. Of those that
it finds it enqueues the ones with the fewest. Its limits keep its cost to the store below a second. The next run goes
on where it stopped.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from heapq import heappush, heappushpop

from tracker.bittorrent import InfoHash
from tracker.store.work.policy import Change, Policy, Position, Rehearsal
from tracker.store.work.projects import Projects
from tracker.store.work.records import Project, UnknownProject
from tracker.store.work.sizes import CLASSES, Sizes
from tracker.system.logger import Logger

EVERY_SECONDS = 600
MAX_MANAGED_A_RUN, MAX_COST_A_RUN, MAX_ENQUEUED_A_RUN = 6_000, 300_000, 2_000
"""Enqueued torrents that a run visits in a project; the cost of its look at others (see Found); how many of those it
enqueues."""
_VISITED, _LOOKED_AT, _NOTED = 100, 500, 50
"""Torrents per call. More would delay announces by more than a millisecond."""
_PAUSE_SECONDS = 0.02
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
            await self.sleep(_PAUSE_SECONDS)
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
            await self.sleep(_PAUSE_SECONDS)


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
