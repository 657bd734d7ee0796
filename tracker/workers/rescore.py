"""Rescores torrents: scans all of them, and enqueues a job for each that matches the filter.

The scan keeps its cursor in its own job, so a later run of the job resumes there. The cursor is that of ZSCAN, valid
while the server runs. After a restart of the server the scan starts again. A torrent that is enqueued twice is one job,
or is scored once more.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from tracker.store.client.connection import Connection
from tracker.store.client.server_info import read_info
from tracker.store.jobs.jobs import Jobs, QueueFull
from tracker.store.jobs.records import MAX_PRIORITY, PROCESS_TORRENT, Claimed
from tracker.store.torrents.scores import Scores

TIMEOUT_SECONDS = 86_400.0
"""The scan waits for room in the queue: a million torrents take hours."""
FILTERS = ("min_score", "max_score", "min_seeders", "max_seeders")
_PAGE = 500
_MAX_WAITING = 10 * _PAGE
_FULL_SECONDS = 0.5


class ScanLost(Exception):
    """Another tracker continues this scan."""


def checked(payload: Mapping[str, Any]) -> dict[str, float]:
    """The filter in ``payload``: inclusive bounds by the names of FILTERS. Raises ValueError."""
    unknown = set(payload) - set(FILTERS)
    if unknown:
        raise ValueError(f"unknown filters: {', '.join(sorted(unknown))}")
    for value in payload.values():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("a filter must be a number")
    return dict(payload)


@dataclass(eq=False)
class Rescore:
    """The handler of queue ``reprocess``.

    The scan pauses, for ``pause`` s at a time, while ``max_waiting`` jobs wait.
    """

    jobs: Jobs
    scores: Scores
    connection: Connection
    _: KW_ONLY
    max_waiting: int = _MAX_WAITING
    pause: float = _FULL_SECONDS

    async def handle(self, payload: dict[str, Any], job: Claimed) -> None:
        """Scans from ``job.cursor`` on. Raises ScanLost when another tracker has claimed the job."""
        bounds = checked(payload)
        server = (await read_info(self.connection, "server")).get("run_id", "")  # a cursor is valid for one run only
        known, _, at = job.cursor.partition(" ")
        cursor = at if known == server and at.isdigit() else "0"
        while True:
            while await self.jobs.waiting(PROCESS_TORRENT) >= self.max_waiting:
                await asyncio.sleep(self.pause)
            after, found = await self.scores.page_by_seeders(cursor, _PAGE)
            await self._enqueue(await self._matching(found, bounds))
            cursor = after
            if not await self.jobs.save_cursor(job, f"{server} {cursor}"):
                raise ScanLost("another tracker continues this scan")
            if cursor == "0":
                return

    async def _matching(self, found: Sequence[tuple[str, float]], bounds: Mapping[str, float]) -> list[str]:
        ids = [id for id, seeders in found if _within(seeders, bounds, "seeders")]
        if not ids or not {"min_score", "max_score"} & bounds.keys():
            return ids
        scores = await self.scores.of(ids)
        # A torrent outside the ranking has no score; it counts as 0.
        return [id for id, score in zip(ids, scores, strict=True) if _within(score or 0.0, bounds, "score")]

    async def _enqueue(self, ids: Sequence[str]) -> None:
        while ids:
            try:
                await self.jobs.enqueue_many(
                    PROCESS_TORRENT, [{"torrent_id": id} for id in ids], priority=-MAX_PRIORITY
                )
                return
            except QueueFull:
                await asyncio.sleep(self.pause)


def _within(value: float, bounds: Mapping[str, float], name: str) -> bool:
    return bounds.get(f"min_{name}", value) <= value <= bounds.get(f"max_{name}", value)
