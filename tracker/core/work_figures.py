"""What a project shows publicly: its figures, its leaderboards, its log, and what it needs most."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from tracker.bittorrent import info_hash_of
from tracker.core.work_holdings import average_seeders
from tracker.store.store import Store
from tracker.store.torrents.records import Torrent
from tracker.store.work import periods
from tracker.store.work.leaderboard import Board, ChartPoint, Standing
from tracker.store.work.log import LogEntry
from tracker.store.work.records import Project
from tracker.store.work.statistics import ProjectStatistics

CACHED_SECONDS = 10.0
LISTED_CLAIMANTS = 1000
"""Claimants in stats.json."""
CHARTED_CLAIMANTS = 50
MAX_POINTS = 200
"""Of a chart."""
SHOWN_CLAIMANTS = 20
"""Claimants of a leaderboard on the page."""
SHOWN_ENTRIES = 20
"""Entries of the log on the page."""
MAX_CACHED = 256
BOARDS: tuple[Board, ...] = ("seconds", "count", "bytes")


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished item as shown publicly: without address."""

    id: str
    """The id in the log's stream."""
    at: int
    """Epoch seconds."""
    item: str
    """Empty for a private torrent."""
    claimant: str
    bytes: int
    """As reported."""
    domain_bytes: Mapping[str, int]
    seconds: int
    """Seed time verified."""
    version: str


@dataclass(frozen=True, slots=True)
class Figures:
    """``boards``: standings by (board, month or week); empty for all time."""

    project: Project
    stats: ProjectStatistics
    boards: Mapping[tuple[Board, str], Sequence[Standing]]
    month: str
    week: str
    last: Sequence[Finished]
    """The newest first."""


@dataclass(frozen=True, slots=True)
class Needed:
    """A torrent that needs seeders. ``average`` is None without a history."""

    torrent: Torrent
    average: float | None

    @property
    def need(self) -> tuple[float, int]:
        """The lowest is the neediest."""
        average = float(self.torrent.seeders) if self.average is None else self.average
        return average, -self.torrent.leechers


class WorkFigures:
    """``clock`` returns epoch seconds. Figures are at most CACHED_SECONDS old."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._reading = asyncio.Lock()
        self._cached: dict[tuple[str, str], tuple[float, Any]] = {}

    async def figures(self, project: Project) -> Figures:
        """The figures for the page."""
        found: Figures = await self._recent("figures", project, self._read_figures)
        return found

    async def _recent(self, kind: str, project: Project, read: Callable[[Project], Awaitable[Any]]) -> Any:
        key = kind, project.name
        async with self._reading:  # many who ask together cause one reading
            now = self._clock()
            found = self._cached.get(key)
            if found is None or not 0 <= now - found[0] < CACHED_SECONDS:
                if len(self._cached) >= MAX_CACHED:
                    self._cached.clear()
                self._cached[key] = found = now, await read(project)
            return found[1]

    async def _read_figures(self, project: Project) -> Figures:
        board = self._store.work.leaderboard
        (stats,) = await self._store.work.statistics.read([project.name])
        month, week = periods.current(self._clock())
        boards = {
            (each, when): await board.top(project.name, each, when or None, SHOWN_CLAIMANTS)
            for when in (week, month, "")
            for each in BOARDS
        }
        entries = await self._store.work.log.newest(project.name, SHOWN_ENTRIES)
        last = await self._shown(project, entries)
        return Figures(project, stats, boards, month, week, last)

    async def stats(self, project: Project) -> dict[str, Any]:
        """The figures in the form of 2020. Claimants are the first LISTED_CLAIMANTS by finished items."""
        found: dict[str, Any] = await self._recent("stats", project, self._read_stats)
        return found

    async def _read_stats(self, project: Project) -> dict[str, Any]:
        board, statistics = self._store.work.leaderboard, self._store.work.statistics
        (stats,) = await statistics.read([project.name])
        counts = await board.top(project.name, "count", count=LISTED_CLAIMANTS)
        by_bytes = await board.top(project.name, "bytes", count=LISTED_CLAIMANTS)
        return {
            "domain_bytes": await statistics.domain_bytes(project.name),
            "downloader_bytes": {each.claimant: each.value for each in by_bytes},
            "downloader_count": {each.claimant: each.value for each in counts},
            "downloaders": [each.claimant for each in counts],
            "counts": {"todo": stats.wanted, "out": stats.out, "done": stats.done},
            "total_items": stats.wanted + stats.out + stats.done,
            "total_items_done": stats.done,
            "total_items_out": stats.out,
            "total_bytes": stats.totals.get("bytes", 0),
        }

    async def charts(self, project: Project) -> dict[str, Any]:
        """Sums over time in the form of 2020: a point is [epoch s, sum]. Claimants are the first CHARTED_CLAIMANTS by
        reported bytes."""
        found: dict[str, Any] = await self._recent("charts", project, self._read_charts)
        return found

    async def _read_charts(self, project: Project) -> dict[str, Any]:
        board = self._store.work.leaderboard
        names = [each.claimant for each in await board.top(project.name, "bytes", count=CHARTED_CLAIMANTS)]
        total, *charts = [_sample(points) for points in await board.charts(project.name, ["", *names])]
        return {
            "downloader_chart": {
                name: [[point.at, point.bytes] for point in points]
                for name, points in zip(names, charts, strict=True)
            },
            "downloader_items_chart": {
                name: [[point.at, point.items] for point in points]
                for name, points in zip(names, charts, strict=True)
            },
            "items_done_chart": [[point.at, point.items] for point in total],
            "bytes_chart": [[point.at, point.bytes] for point in total],
        }

    async def update_status(self, project: Project) -> dict[str, Any]:
        """The versions of claimants' programs, in the form of 2020."""
        found: dict[str, str] = await self._recent(
            "versions", project, lambda project: self._store.work.leaderboard.versions(project.name)
        )
        return {
            "downloader_version": found,
            "current_version": project.min_version or None,
            "current_version_update_message": None,
        }

    async def item(self, project: Project, item: str) -> tuple[str | None, str | None]:
        """(todo, out, done or None; who has it). A private torrent is not public."""
        if project.kind == "seeding" and not await self._open_torrents([item]):
            return None, None
        found = await self._store.work.items.status(project.name, item)
        return found.status, (found.claimants[0] if found.claimants else None)

    async def finished_after(self, project: Project, id: str, count: int) -> list[Finished]:
        """The log after the entry ``id``, the oldest first."""
        return await self._shown(project, await self._store.work.log.after(project.name, id, count))

    async def _shown(self, project: Project, entries: Sequence[LogEntry]) -> list[Finished]:
        """Leaves out the names of items that are private torrents, or no longer registered."""
        found = [finished_of(entry) for entry in entries]
        if project.kind != "seeding":
            return found
        shown = await self._open_torrents([each.item for each in found])
        return [each if each.item in shown else replace(each, item="") for each in found]

    async def _open_torrents(self, items: Sequence[str]) -> set[str]:
        """The items that are torrents, and not private."""
        hashes = {found for item in items if (found := info_hash_of(item.encode("utf-8", "replace")))}
        torrents = await self._store.torrents.get_all(list(hashes))
        return {torrent.info_hash.hex() for torrent in torrents if not torrent.private}

    async def newest_id(self, project: Project) -> str:
        """The id of the newest entry of the log; ``0-0`` when it is empty."""
        return next((each.id for each in await self._store.work.log.newest(project.name, 1)), "0-0")

    async def needed(
        self, project: Project, count: int, *, claimant: str = "", max_size: int | None = None
    ) -> list[Needed]:
        """The torrents that need seeders most: those that ask for ``claimant`` first, then by their average seeders,
        and of equal ones those with most leechers. Without a claimant: no private torrents. Torrents larger than
        ``max_size`` bytes are left out."""
        if claimant or max_size is not None:
            return await self._read_needed(project, count, claimant, max_size)
        found: list[Needed] = await self._recent(
            f"needed {count}", project, lambda project: self._read_needed(project, count, "", None)
        )
        return found

    async def _read_needed(
        self, project: Project, count: int, claimant: str, max_size: int | None
    ) -> list[Needed]:
        own = await self._asked(project, claimant, count) if claimant else []
        names = [*own, *await self._store.work.items.neediest(project.name, 2 * count)]  # some are left out
        found_hashes = (info_hash_of(name.encode("utf-8", "replace")) for name in dict.fromkeys(names))
        hashes = [info_hash for info_hash in found_hashes if info_hash is not None]
        torrents = [
            torrent
            for torrent in await self._store.torrents.get_all(hashes)
            if torrent.enabled
            and torrent.denied is None
            and (claimant or not torrent.private)
            and (max_size is None or (torrent.size or 0) <= max_size)
        ][:count]
        averages = await average_seeders(self._store, torrents, self._clock())
        found = [Needed(torrent, average) for torrent, average in zip(torrents, averages, strict=True)]
        return sorted(found, key=lambda each: (each.torrent.info_hash.hex() not in own, each.need))

    async def _asked(self, project: Project, claimant: str, count: int) -> list[str]:
        page = await self._store.work.items.page(project.name, "todo", claimant=claimant, count=count)
        return [name for name, _ in page.entries]


def _sample(points: Sequence[ChartPoint]) -> list[ChartPoint]:
    """At most MAX_POINTS of them, evenly, and the last one."""
    step = -(-len(points) // MAX_POINTS) or 1
    return list(points[::-1][::step])[::-1]


def finished_of(entry: LogEntry) -> Finished:
    fields = entry.fields

    def number(name: str) -> int:
        text = fields.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else 0

    return Finished(
        id=entry.id,
        at=number("at") // 1000,
        item=fields.get("item", ""),
        claimant=fields.get("by", ""),
        bytes=number("total"),
        domain_bytes=_domains(fields.get("bytes", "")),
        seconds=number("seconds"),
        version=fields.get("version", ""),
    )


def _domains(text: str) -> dict[str, int]:
    try:
        found = orjson.loads(text or "{}")
    except ValueError:
        return {}
    return (
        {name: n for name, n in found.items() if name and isinstance(n, int)}
        if isinstance(found, dict)
        else {}
    )
