"""How many items and claims projects have, and their totals. Reads indexes only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Part

TOTALS = ("added", "claimed", "done", "lapsed", "released", "repaired", "bytes", "seconds", "unverified")
CLAIM_SECONDS = (60, 600, 3600, 21_600, 86_400, 172_800, 345_600, 604_800, 1_209_600)
"""Bounds of the histogram of times from claim to done; work_rank.lua has the same list."""


@dataclass(frozen=True, slots=True)
class ProjectStatistics:
    """Items by queue, claims, finished items, and totals since the project was created."""

    todo: int
    secondary: int
    redo: int
    asked: int
    """Items that only certain claimants are asked for."""
    out: int
    """Claims."""
    done: int
    claimants: int
    """Claimants who ever finished an item."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """Totals by the names of TOTALS, as far as there are any."""
    durations: Sequence[int] = ()
    """Finished claims by time from claim to done: one number for each of CLAIM_SECONDS, and one for longer times."""
    duration_sum: int = 0
    """Sum of these times (s)."""

    @property
    def wanted(self) -> int:
        """Items in queues."""
        return self.todo + self.secondary + self.redo + self.asked


class Statistics(Part):
    """The statistics of all projects under one key prefix."""

    async def read(self, projects: Sequence[str]) -> list[ProjectStatistics]:
        """Returns statistics in the order of ``projects``, in one round trip."""
        if not projects:
            return []
        rows = await self._connection.pipeline(*(each for name in projects for each in self._commands(name)))
        size = len(rows) // len(projects)
        return [_statistics(rows[first : first + size]) for first in range(0, len(rows), size)]

    def _commands(self, project: str) -> Sequence[tuple[str, ...]]:
        keys = self._keys
        return (
            ("ZCARD", keys.work_queue(project, "todo")),
            ("ZCARD", keys.work_queue(project, "todo:secondary")),
            ("ZCARD", keys.work_queue(project, "todo:redo")),
            ("HLEN", keys.work_asked(project)),
            ("ZCARD", keys.work_out(project)),
            ("ZCARD", keys.work_done(project)),
            ("ZCARD", keys.work_ranking(project, "downloader_count")),
            ("HGETALL", keys.work_totals(project)),
        )

    async def domain_bytes(self, project: str) -> dict[str, int]:
        return _numbers(await self._connection.command("HGETALL", self._keys.work_domain_bytes(project)))


def _statistics(row: Sequence[object]) -> ProjectStatistics:
    *counts, totals = row
    todo, secondary, redo, asked, out, done, claimants = (size if isinstance(size, int) else 0 for size in counts)
    numbers = _numbers(totals)
    return ProjectStatistics(
        todo,
        secondary,
        redo,
        asked,
        out,
        done,
        claimants,
        totals={name: numbers[name] for name in TOTALS if name in numbers},
        durations=[numbers.get(f"took_{bound}", 0) for bound in (*CLAIM_SECONDS, "more")],
        duration_sum=numbers.get("took", 0),
    )


def _numbers(reply: object) -> dict[str, int]:
    """A hash of numbers; empty for an error."""
    if not isinstance(reply, list):
        return {}
    pairs = zip(reply[::2], reply[1::2], strict=True)
    return {name.decode("utf-8", "replace"): whole(value) for name, value in pairs}
