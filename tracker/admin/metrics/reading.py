"""What only the store knows, asked for at each scrape: all of it in a bounded time, or as much as it answers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from tracker.admin.metrics.table import EVENTS, Source
from tracker.errors import StoreAway
from tracker.stores import Stores

MOST_QUEUES = 50
"""Whatever else somebody enqueues is not shown: a queue is a label, and labels are bounded."""
READ_SECONDS = 2.0
"""Prometheus gives up after 10 s unless told otherwise."""


@dataclass(slots=True)
class StoreFigures:
    """``up``: the store answered; what it refused to tell is missing."""

    up: bool = True
    values: dict[Source, float] = field(default_factory=dict)

    def put(self, metric: str, value: float, *labels: str) -> None:
        self.values[metric, labels] = value


async def read_store(stores: Stores) -> StoreFigures:
    """Never raises because of the store."""
    figures = StoreFigures()
    try:
        async with asyncio.timeout(READ_SECONDS):
            for part in (_totals, _sizes, _scores, _jobs, _memory):
                await _read(part, stores, figures)
    except (StoreAway, TimeoutError):
        figures.up = False
    return figures


async def _read(
    part: Callable[[Stores, StoreFigures], Awaitable[None]], stores: Stores, figures: StoreFigures
) -> None:
    """A key of a wrong type, or a command that is forbidden, costs its own figures only."""
    try:
        await part(stores, figures)
    except (RedisError, ValueError):
        return


async def _totals(stores: Stores, figures: StoreFigures) -> None:
    totals = await stores.counters.totals()
    figures.put("tracker_peers", max(0, totals["seeders"]), "seeder")
    figures.put("tracker_peers", max(0, totals["leechers"]), "leecher")
    for event in EVENTS:
        figures.put("tracker_store_events_total", totals[event], event)
    figures.put("tracker_store_credit_cut_bytes_total", totals["credit_cut"])


async def _sizes(stores: Stores, figures: StoreFigures) -> None:
    figures.put("tracker_torrents", await stores.torrents.count())
    figures.put("tracker_users", await stores.users.count())
    figures.put("tracker_limited_subjects", await stores.connection.command("ZCARD", stores.keys.limits()))
    waiting = await stores.connection.command("GET", stores.keys.outbox_waiting())
    figures.put("tracker_figures_waiting", int(waiting or 0))


async def _scores(stores: Stores, figures: StoreFigures) -> None:
    lag = await stores.scores.lag()
    figures.put("tracker_scored_torrents", lag.count)
    figures.put("tracker_scores_due", lag.waiting)
    figures.put("tracker_scores_late", lag.late)
    figures.put("tracker_scores_oldest_seconds", lag.longest_seconds)


async def _jobs(stores: Stores, figures: StoreFigures) -> None:
    for queue in (await stores.jobs.queues())[:MOST_QUEUES]:
        for status, size in (await stores.jobs.sizes(queue)).items():
            figures.put("tracker_jobs", size, queue, status)


async def _memory(stores: Stores, figures: StoreFigures) -> None:
    info = await stores.connection.command("INFO", "memory")
    if used := int(info.get("used_memory", 0)):
        figures.put("tracker_store_memory_bytes", used)
    if limit := int(info.get("maxmemory", 0)):
        figures.put("tracker_store_memory_limit_bytes", limit)
