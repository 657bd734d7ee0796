"""What a project shows publicly: its figures, its leaderboards, its log, and what it needs most."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from tracker.bittorrent import info_hash_of
from tracker.core.work import average_seeders
from tracker.store.store import Store
from tracker.store.torrents.records import Torrent
from tracker.store.work import periods
from tracker.store.work.log import FinishedClaim
from tracker.store.work.records import Project
from tracker.store.work.statistics import Board, ChartPoint, ProjectStatistics, Rank

CACHED_SECONDS = 10.0
LISTED_CLAIMANTS = 1000
"""Claimants in stats.json."""
CHARTED_CLAIMANTS = 20
SHOWN_CLAIMANTS = 500
"""Claimants of a leaderboard on the page."""
_READINGS = 3
SHOWN_ENTRIES = 20
"""Entries of the log on the page."""
MAX_CACHED = 256
_Read = TypeVar("_Read")


class Finished(NamedTuple):
    """A finished item."""

    id: str
    """The id in the log's stream."""
    shown: dict[str, Any]
    """What is public of it: no address, the name of a user who has one, no name of a private torrent."""


@dataclass(frozen=True, slots=True)
class Figures:
    """``ranks``: the claimants of the current week, the current month and all time, by their period (empty: all time).
    All is as of the entry ``id`` of the log, but for the counts, which may be newer."""

    id: str
    stats: ProjectStatistics
    ranks: Mapping[str, Sequence[Rank]]
    domain_bytes: Mapping[str, int]
    chart: Sequence[ChartPoint]
    """Of all claimants together."""
    charts: Mapping[str, Sequence[ChartPoint]]
    """Of the claimants with most bytes, by name."""
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


def periods_of(at: float) -> list[str]:
    """The leaderboards in which an item that is finished at ``at`` (epoch s) counts: week, month, all time."""
    month, week = periods.current(at)
    return [week, month, ""]


class WorkFigures:
    """``clock`` returns epoch seconds. Figures are at most CACHED_SECONDS old."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._reading = asyncio.Lock()
        self._cached: dict[tuple[str, str], tuple[float, Any]] = {}

    async def figures(self, project: Project) -> Figures:
        return await self._recent("figures", project, self._read_figures)

    async def _recent(self, kind: str, project: Project, read: Callable[[Project], Awaitable[_Read]]) -> _Read:
        key = kind, project.name
        async with self._reading:  # many who ask together cause one reading
            now = self._clock()
            found = self._cached.get(key)
            if found is None or not 0 <= now - found[0] < CACHED_SECONDS:
                if len(self._cached) >= MAX_CACHED:
                    self._cached.clear()
                self._cached[key] = found = now, await read(project)
            return cast(_Read, found[1])

    async def _read_figures(self, project: Project) -> Figures:
        work, name = self._store.work, project.name
        by: Board = "count" if project.verify == "none" else "seconds"
        for _ in range(_READINGS):  # until nothing is added to the leaderboards meanwhile
            id = await work.leaderboard.position(name)
            ranks = {
                when: (await work.leaderboard.table(name, by, when or None, SHOWN_CLAIMANTS, 0))[0]
                for when in periods_of(self._clock())
            }
            by_bytes = [each for each, _ in await work.leaderboard.top(name, "bytes", count=CHARTED_CLAIMANTS)]
            charts = await work.leaderboard.charts(name, ["", *by_bytes])
            domain_bytes = await work.statistics.domain_bytes(name)
            (stats,) = await work.statistics.read([name])
            if id == await work.leaderboard.position(name):
                break
        last = await self._shown(project, await work.log.newest(name, SHOWN_ENTRIES))
        shown = {*by_bytes, *(rank.claimant for each in ranks.values() for rank in each)}
        names = await self._names(project, shown)
        return Figures(
            id=id,
            stats=stats,
            ranks={
                when: [replace(rank, claimant=names.get(rank.claimant, rank.claimant)) for rank in each]
                for when, each in ranks.items()
            },
            domain_bytes=domain_bytes,
            chart=charts[0],
            charts={names.get(each, each): points for each, points in zip(by_bytes, charts[1:], strict=True)},
            last=last,
        )

    async def _names(self, project: Project, claimants: Collection[str]) -> dict[str, str]:
        """The names of users; a user without one is shown by its id."""
        if project.by_name:
            return {}
        users = await self._store.users.by_ids([each for each in claimants if each.isdigit()])
        return {user.user_id: user.name for user in users if user.name}

    async def counts(self, project: Project) -> dict[str, Any]:
        """The counts of items, and the periods of the leaderboards."""
        (stats,) = await self._store.work.statistics.read([project.name])
        return {**counts_of(stats), "periods": periods_of(self._clock())}

    async def stats(self, project: Project) -> dict[str, Any]:
        """The figures in the form of 2020. Claimants are the first LISTED_CLAIMANTS by finished items."""
        return await self._recent("stats", project, self._read_stats)

    async def _read_stats(self, project: Project) -> dict[str, Any]:
        board, statistics = self._store.work.leaderboard, self._store.work.statistics
        (stats,) = await statistics.read([project.name])
        counts = await board.top(project.name, "count", count=LISTED_CLAIMANTS)
        return {
            "domain_bytes": await statistics.domain_bytes(project.name),
            "downloader_bytes": dict(await board.top(project.name, "bytes", count=LISTED_CLAIMANTS)),
            "downloader_count": dict(counts),
            "downloaders": [claimant for claimant, _ in counts],
            "counts": counts_of(stats),
            "total_items": stats.wanted + stats.out + stats.done,
            "total_items_done": stats.done,
            "total_items_out": stats.out,
            "total_bytes": stats.totals.get("bytes", 0),
        }

    async def update_status(self, project: Project) -> dict[str, Any]:
        """The versions of claimants' programs, in the form of 2020."""
        found = await self._recent(
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

    async def _shown(self, project: Project, claims: Sequence[FinishedClaim]) -> list[Finished]:
        """With the names of users and torrents. Leaves out items that are private torrents, or no longer registered."""
        names = await self._names(project, {claim.claimant for claim in claims})
        titles = {claim.item: "" for claim in claims}
        if project.kind == "seeding":
            titles = await self._open_torrents(list(titles))
        return [
            Finished(
                claim.id,
                {
                    "item": claim.item if claim.item in titles else "",
                    "downloader": names.get(claim.claimant, claim.claimant),
                    "at": int(claim.at),
                    "bytes": claim.total_bytes,
                    "domain_bytes": {name: number for name, number in claim.bytes.items() if name},
                    "seconds": claim.seconds,
                    "version": claim.version,
                    "title": titles.get(claim.item, ""),
                    "periods": periods_of(int(claim.at)),
                },
            )
            for claim in claims
        ]

    async def _open_torrents(self, items: Sequence[str]) -> dict[str, str]:
        """The names of the items that are torrents, and not private."""
        hashes = {found for item in items if (found := info_hash_of(item.encode("utf-8", "replace")))}
        torrents = await self._store.torrents.get_all(list(hashes))
        return {torrent.info_hash.hex(): torrent.name for torrent in torrents if not torrent.private}

    async def newest_id(self, project: Project) -> str:
        """The id of the newest entry of the log; ``0-0`` when it is empty."""
        return next((each.id for each in await self._store.work.log.newest(project.name, 1)), "0-0")

    async def needed(
        self, project: Project, count: int, *, claimant: str = "", max_size: int | None = None
    ) -> list[Needed]:
        """The torrents that need seeders most: those that ask for ``claimant`` first, then by their average seeders,
        and of equal ones those with most leechers. Without a claimant: no private torrents. Torrents larger than
        ``max_size`` bytes are left out."""
        read = partial(self._read_needed, count=count, claimant=claimant, max_size=max_size)
        if claimant or max_size is not None:
            return await read(project)
        return await self._recent(f"needed {count}", project, read)

    async def _read_needed(self, project: Project, count: int, claimant: str, max_size: int | None) -> list[Needed]:
        items, own = self._store.work.items, list[str]()
        if claimant:
            page = await items.page(project.name, "todo", claimant=claimant, count=count)
            own = [name for name, _ in page.entries]
        names = [*own, *await items.neediest(project.name, 2 * count)]  # some are left out
        hashes = [each for name in dict.fromkeys(names) if (each := info_hash_of(name.encode("utf-8", "replace")))]
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


def counts_of(stats: ProjectStatistics) -> dict[str, int]:
    return {"todo": stats.wanted, "out": stats.out, "done": stats.done}


def columns_of(project: Project) -> list[str]:
    if project.verify == "none":
        return ["items", "bytes"]
    return ["seconds", "items"] if project.verify == "address" else ["seconds", "items", "bytes"]
