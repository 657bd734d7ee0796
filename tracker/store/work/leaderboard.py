"""Leaderboards, charts and sums of a project: all from indexes."""

from dataclasses import dataclass
from typing import Literal, get_args

from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys
from tracker.store.schema.lenient_numbers import ranked, score, whole

Board = Literal["count", "bytes", "seconds"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A claimant's place in a leaderboard."""

    claimant: str
    value: int


@dataclass(frozen=True, slots=True)
class Rank:
    """A claimant's results in a period."""

    claimant: str
    items: int
    bytes: int
    seconds: int


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A claimant's sums of all time at the end of the ten minutes that begin at ``at`` (epoch s)."""

    at: int
    items: int
    bytes: int
    seconds: int


@dataclass(frozen=True, slots=True)
class WorkStats:
    """The state of a project. Items in a queue, claims, finished items; sums of all time."""

    todo: int
    out: int
    done: int
    claimants: int
    """Claimants who ever finished an item."""
    added: int
    """Copies wanted so far, less those removed."""
    claimed: int
    finished: int
    lapsed: int
    released: int
    bytes: int
    domain_bytes: dict[str, int]


class Leaderboard:
    """The leaderboards of all projects. ``span`` is a month or a week of ``periods``, or None for all time."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys

    async def top(
        self,
        project: str,
        board: Board = "count",
        span: str | None = None,
        count: int = 100,
        offset: int = 0,
    ) -> list[Standing]:
        """The first claimants by finished items, bytes reported or seconds verified."""
        key = self._key(project, board, span)
        flat = await self._connection.command("ZRANGE", key, offset, offset + count - 1, "REV", "WITHSCORES")
        return [Standing(claimant, value) for claimant, value in ranked(flat)]

    async def table(
        self, project: str, by: Board, span: str | None, count: int, offset: int
    ) -> tuple[list[Rank], int]:
        """All results of the claimants in the order of one board, and their number."""
        boards = [self._key(project, board, span) for board in get_args(Board)]
        key = self._key(project, by, span)
        claimants, total = await self._connection.pipeline(
            ("ZRANGE", key, offset, offset + count - 1, "REV"), ("ZCARD", key)
        )
        numbers = await self._connection.pipeline(
            *(("ZMSCORE", board, *claimants) for board in boards if claimants)
        )
        return [_rank(*row) for row in zip(claimants, *numbers, strict=True)], int(total)

    def _key(self, project: str, board: Board, span: str | None) -> str:
        ranking = f"downloader_{board}"
        if span is None:
            return self._keys.work_ranking(project, ranking)
        return self._keys.work_ranking_in(project, ranking, span)

    async def chart(self, project: str, claimant: str) -> list[ChartPoint]:
        points = await self._connection.command("LRANGE", self._keys.work_chart(project, claimant), 0, -1)
        rows = (point.split() for point in points)
        return [ChartPoint(*map(whole, row)) for row in rows if len(row) == 4]

    async def versions(self, project: str) -> dict[str, str]:
        """The version that each claimant used last."""
        flat = await self._connection.command("HGETALL", self._keys.work_versions(project))
        texts = [text.decode("utf-8", "replace") for text in flat]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def stats(self, project: str) -> WorkStats:
        keys = self._keys
        sizes = await self._connection.pipeline(
            *(
                ("ZCARD", keys.work_queue(project, queue))
                for queue in ("todo", "todo:secondary", "todo:redo")
            ),
            ("HLEN", keys.work_asked(project)),
            ("ZCARD", keys.work_out(project)),
            ("ZCARD", keys.work_done(project)),
            ("ZCARD", keys.work_ranking(project, "downloader_count")),
        )
        totals, domains = await self._connection.pipeline(
            ("HGETALL", keys.work_totals(project)), ("HGETALL", keys.work_domain_bytes(project))
        )
        sums, by_domain = _numbers(totals), _numbers(domains)
        *queued, out, done, claimants = (0 if isinstance(size, Exception) else int(size) for size in sizes)
        return WorkStats(
            todo=sum(queued),
            out=out,
            done=done,
            claimants=claimants,
            added=sums.get("added", 0),
            claimed=sums.get("claimed", 0),
            finished=sums.get("done", 0),
            lapsed=sums.get("lapsed", 0),
            released=sums.get("released", 0),
            bytes=sums.get("bytes", 0),
            domain_bytes=by_domain,
        )


def _numbers(flat: list[bytes] | Exception) -> dict[str, int]:
    if isinstance(flat, Exception):
        return {}
    return {
        name.decode("utf-8", "replace"): whole(value)
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    }


def _rank(claimant: bytes, *numbers: bytes | None) -> Rank:
    items, reported, seconds = (0 if number is None else score(number) for number in numbers)
    return Rank(claimant.decode("utf-8", "replace"), items, reported, seconds)
