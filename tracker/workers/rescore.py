"""Has torrents processed again: walks through all of them and enqueues a job for each that the filter lets through.

The walk keeps where it is in its own job, so that one that was killed or returned goes on there. The cursor is the
store's own (ZSCAN), good for as long as that server runs; after its restart the walk begins anew, and what is
enqueued twice is one job, or is processed once more.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tracker.store.connection import Connection
from tracker.store.job import MOST_PRIORITY, PROCESS_TORRENT, Claimed
from tracker.store.jobs import Jobs, QueueFull
from tracker.store.keys import Keys

TIMEOUT_SECONDS = 86_400.0
"""A walk waits for what it enqueues to be done: a million torrents take hours."""
FILTERS = ("min_score", "max_score", "min_seeders", "max_seeders")
_PAGE = 500
_MOST_WAITING = 10 * _PAGE
_FULL_SECONDS = 0.5


class WalkLost(Exception):
    """Somebody else goes on with this walk."""


def checked(payload: Mapping[str, Any]) -> dict[str, float]:
    """The filter in ``payload``: numbers by the names of FILTERS, both ends included. Raises ValueError."""
    unknown = set(payload) - set(FILTERS)
    if unknown:
        raise ValueError(f"unknown filters: {', '.join(sorted(unknown))}")
    for value in payload.values():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("a filter takes a number")
    return dict(payload)


class Reprocess:
    """The handler of queue ``reprocess``; ``most_waiting`` jobs may wait before the walk does, ``pause`` s at a time."""

    def __init__(
        self,
        jobs: Jobs,
        connection: Connection,
        keys: Keys,
        *,
        most_waiting: int = _MOST_WAITING,
        pause: float = _FULL_SECONDS,
    ) -> None:
        self._jobs = jobs
        self._connection = connection
        self._keys = keys
        self._most_waiting = most_waiting
        self._pause = pause

    async def handle(self, payload: dict[str, Any], job: Claimed) -> None:
        """Walks from ``job.cursor`` on; raises WalkLost when the job went to somebody else."""
        bounds = checked(payload)
        server = await self._server()
        known, _, at = job.cursor.partition(" ")
        cursor = at if known == server and at.isdigit() else "0"
        while True:
            await self._until_room()
            after, found = await self._page(cursor)
            await self._enqueue(await self._matching(found, bounds))
            cursor = after
            if not await self._jobs.save_cursor(job, f"{server} {cursor}"):
                raise WalkLost("somebody else goes on with this walk")
            if cursor == "0":
                return

    async def _server(self) -> str:
        """Which run of which server: a cursor means something to that one only."""
        answer = await self._connection.command("INFO", "server")
        if isinstance(answer, dict):
            return str(answer.get("run_id", ""))
        lines = answer.decode("utf-8", "replace").splitlines()
        return next((line.removeprefix("run_id:") for line in lines if line.startswith("run_id:")), "")

    async def _until_room(self) -> None:
        while await self._jobs.waiting(PROCESS_TORRENT) >= self._most_waiting:
            await asyncio.sleep(self._pause)

    async def _page(self, cursor: str) -> tuple[str, list[tuple[str, float]]]:
        """(where the next page begins, "0" at the end; torrent ids with their seeders)."""
        after, found = await self._connection.command(
            "ZSCAN", self._keys.index("seeders"), cursor, "COUNT", _PAGE
        )
        pairs = found if found and isinstance(found[0], tuple) else zip(found[::2], found[1::2], strict=True)
        return str(int(after)), [(member.decode(), float(seeders)) for member, seeders in pairs]

    async def _matching(self, found: Sequence[tuple[str, float]], bounds: Mapping[str, float]) -> list[str]:
        ids = [id for id, seeders in found if _within(seeders, bounds, "seeders")]
        if not ids or not {"min_score", "max_score"} & bounds.keys():
            return ids
        scores = await self._connection.command("ZMSCORE", self._keys.index("score"), *ids)
        # A torrent that left the ranking has no score left to speak of.
        return [
            id for id, score in zip(ids, scores, strict=True) if _within(float(score or 0), bounds, "score")
        ]

    async def _enqueue(self, ids: Sequence[str]) -> None:
        while ids:
            try:
                await self._jobs.enqueue_many(
                    PROCESS_TORRENT, [{"torrent_id": id} for id in ids], priority=-MOST_PRIORITY
                )
                return
            except QueueFull:
                await asyncio.sleep(self._pause)


def _within(value: float, bounds: Mapping[str, float], what: str) -> bool:
    return bounds.get(f"min_{what}", value) <= value <= bounds.get(f"max_{what}", value)
