"""What a project shows of itself: leaderboards, charts, how many items and claims it has, and their totals. Reading
them reads indexes only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from tracker.store.schema.lenient_numbers import hash_of, ranked, score, text_of, whole
from tracker.store.schema.record import Field
from tracker.store.sharding.shards import Part, in_parts
from tracker.store.work.records import known

Board = Literal["count", "bytes", "seconds"]
MAX_ADDED = 25
"""Finished items in one script call. More would delay announces by more than a millisecond."""
MAX_POINTS = 200
"""Of a chart."""


@dataclass(frozen=True, slots=True)
class Rank:
    """A claimant's results in a period."""

    claimant: str
    items: int
    bytes: Annotated[int, Field("As reported.")]
    seconds: Annotated[int, Field("Verified seed time.")]


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """Sums of all time at the end of the ten minutes that begin at ``at`` (epoch s)."""

    at: int
    items: int
    bytes: int
    seconds: int


class Leaderboard(Part):
    """The leaderboards of all projects. ``span`` is a month or a week of ``periods``, or None for all time."""

    async def update(self, project: str, max_items: int = MAX_ADDED) -> int:
        """Adds what was finished since the last call to leaderboards, charts, versions, the bytes by domain and the
        totals of bytes and times; at most ``max_items`` items, the oldest first. Each is added once, also if several
        trackers call this. Returns how many: ``max_items`` means that there may be more. Raises UnknownProject."""
        return int(known(await self._scripts.work_rank([project, max_items])))

    async def top(
        self, project: str, board: Board = "count", span: str | None = None, count: int = 100, offset: int = 0
    ) -> list[tuple[str, int]]:
        """(claimant, number) of the first claimants by finished items, bytes reported or seconds verified."""
        key = self._key(project, board, span)
        return ranked(await self._connection.command("ZRANGE", key, offset, offset + count - 1, "REV", "WITHSCORES"))

    async def position(self, project: str) -> str:
        """The id of the last entry of the log that has been added; ``0-0`` before the first."""
        found = await self._connection.command("HGET", self._keys.work_project(project), "ranked")
        return found.decode("utf-8", "replace") if found else "0-0"

    async def table(self, project: str, by: Board, span: str | None, count: int, offset: int) -> tuple[list[Rank], int]:
        """All results of the claimants in the order of one board, and their number."""
        boards = [self._key(project, board, span) for board in get_args(Board)]
        key = self._key(project, by, span)
        claimants, total = await self._connection.pipeline(
            ("ZRANGE", key, offset, offset + count - 1, "REV"), ("ZCARD", key)
        )
        numbers = await self._connection.pipeline(*(("ZMSCORE", board, *claimants) for board in boards if claimants))
        ranks = [
            Rank(claimant.decode("utf-8", "replace"), *(score(number or b"0") for number in row))
            for claimant, *row in zip(claimants, *numbers, strict=True)
        ]
        return ranks, int(total)

    def _key(self, project: str, board: Board, span: str | None) -> str:
        ranking = f"downloader_{board}"
        if span is None:
            return self._keys.work_ranking(project, ranking)
        return self._keys.work_ranking_in(project, ranking, span)

    async def charts(self, project: str, claimants: Sequence[str]) -> list[list[ChartPoint]]:
        """The charts of claimants; of an empty name: of all together. Of each at most MAX_POINTS, evenly, and the last
        one."""
        keys = self._keys
        charts = await self._connection.pipeline(
            *(
                ("LRANGE", keys.work_chart(project, each) if each else keys.work_total_chart(project), 0, -1)
                for each in claimants
            )
        )
        return [
            [ChartPoint(*map(whole, row)) for point in _sample(points) if len(row := point.split()) == 4]
            for points in charts
        ]

    async def versions(self, project: str) -> dict[str, str]:
        """The version that each claimant used last."""
        return text_of(hash_of(await self._connection.command("HGETALL", self._keys.work_versions(project))))


def _sample(points: list[bytes]) -> list[bytes]:
    step = -(-len(points) // MAX_POINTS) or 1
    return points[::-1][::step][::-1]


TOTALS = ("added", "claimed", "done", "lapsed", "released", "repaired", "bytes", "seconds", "unverified")
CLAIM_SECONDS = (60, 600, 3600, 21_600, 86_400, 172_800, 345_600, 604_800, 1_209_600)
"""Bounds of the histogram of times from claim to done; work_rank.lua has the same list."""


@dataclass(frozen=True, slots=True)
class ProjectStatistics:
    """Items by queue, claims, finished items, and totals since the project was created."""

    todo: int
    secondary: int
    redo: int
    asked: int  # items that only certain claimants are asked for
    out: int  # claims
    done: int
    claimants: int  # claimants who ever finished an item
    totals: Mapping[str, int] = field(default_factory=dict)  # totals by the names of TOTALS, as far as there are any
    durations: Sequence[int] = ()
    """Finished claims by time from claim to done: one number for each of CLAIM_SECONDS, and one for longer times."""
    duration_sum: int = 0  # sum of these times (s)

    @property
    def wanted(self) -> int:
        """Items in queues."""
        return self.todo + self.secondary + self.redo + self.asked


class Statistics(Part):
    async def read(self, projects: Sequence[str]) -> list[ProjectStatistics]:
        """Returns statistics in the order of ``projects``, in one round trip."""
        if not projects:
            return []
        commands = [self._commands(name) for name in projects]
        replies = await self._connection.pipeline(*(each for reads in commands for each in reads.values()))
        return [
            _statistics(dict(zip(reads, row, strict=True)))
            for reads, row in zip(commands, in_parts(replies, len(commands[0])), strict=True)
        ]

    def _commands(self, project: str) -> dict[str, tuple[str, ...]]:
        keys = self._keys
        return {
            "todo": ("ZCARD", keys.work_queue(project, "todo")),
            "secondary": ("ZCARD", keys.work_queue(project, "todo:secondary")),
            "redo": ("ZCARD", keys.work_queue(project, "todo:redo")),
            "asked": ("HLEN", keys.work_asked(project)),
            "out": ("ZCARD", keys.work_out(project)),
            "done": ("ZCARD", keys.work_done(project)),
            "claimants": ("ZCARD", keys.work_ranking(project, "downloader_count")),
            "totals": ("HGETALL", keys.work_totals(project)),
        }

    async def domain_bytes(self, project: str) -> dict[str, int]:
        return _numbers(await self._connection.command("HGETALL", self._keys.work_domain_bytes(project)))


def _statistics(row: dict[str, Any]) -> ProjectStatistics:
    numbers = _numbers(row.pop("totals"))
    sizes: dict[str, Any] = {name: size if isinstance(size, int) else 0 for name, size in row.items()}
    return ProjectStatistics(
        **sizes,
        totals={name: numbers[name] for name in TOTALS if name in numbers},
        durations=[numbers.get(f"took_{bound}", 0) for bound in (*CLAIM_SECONDS, "more")],
        duration_sum=numbers.get("took", 0),
    )


def _numbers(reply: Sequence[bytes] | Exception) -> dict[str, int]:
    """A hash of numbers; empty for an error."""
    return {name.decode("utf-8", "replace"): whole(value) for name, value in hash_of(reply).items()}
