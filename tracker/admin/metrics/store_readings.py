"""Metrics read from the store at each scrape, with a deadline; partial if the store fails meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from tracker.admin.metrics.table import EVENTS, Source
from tracker.errors import StoreUnavailable
from tracker.runtime.telemetry import Histogram
from tracker.store.stats.memory_usage import read_usages
from tracker.store.store import Store
from tracker.store.swarms.reaping import read_peer_counts
from tracker.store.work.sizes import CLASSES
from tracker.store.work.statistics import CLAIM_SECONDS

MAX_QUEUES = 50
"""A queue is a label, and the number of labels is bounded; further queues are left out."""
MAX_PROJECTS = 50
"""The same of the projects of work distribution."""
_WORK_STATES = ("todo", "secondary", "redo", "asked", "out", "done")
_CLAIM_OUTCOMES = ("claimed", "done", "lapsed", "released", "repaired")
READ_SECONDS = 2.0
"""The default scrape timeout of Prometheus is 10 s."""


@dataclass(slots=True)
class StoreReadings:
    """``up``: the store responded; values it refused are missing."""

    up: bool = True
    values: dict[Source, float] = field(default_factory=dict)
    histograms: dict[str, tuple[Sequence[float], Histogram]] = field(default_factory=dict)
    """Bounds and counts, by metric."""

    def put(self, metric: str, value: float, *labels: str) -> None:
        self.values[metric, labels] = value


async def read_store(store: Store, seconds: float = READ_SECONDS) -> StoreReadings:
    """Reads for at most ``seconds``. Raises no store errors."""
    readings = StoreReadings()
    try:
        async with asyncio.timeout(seconds):
            for part in (_totals, _peers, _sizes, _changes, _scores, _jobs, _work, _memory):
                await _read(part, store, readings)
    except (StoreUnavailable, TimeoutError):
        readings.up = False
    return readings


async def _read(part: Callable[[Store, StoreReadings], Awaitable[None]], store: Store, readings: StoreReadings) -> None:
    """A key of a wrong type, or a forbidden command, drops only its own values; so does the main store of several
    shards that is unavailable."""
    try:
        await store.shards.main_or(part(store, readings), None)
    except (RedisError, ValueError):
        return


async def _totals(store: Store, readings: StoreReadings) -> None:
    totals = await store.counters.totals()
    readings.put("tracker_peers", max(0, totals["seeders"]), "seeder")
    readings.put("tracker_peers", max(0, totals["leechers"]), "leecher")
    if store.counters.is_unavailable:  # without its part, these would seem to fall
        return
    for event in EVENTS:
        readings.put("tracker_store_events_total", totals[event], event)
    readings.put("tracker_store_credit_cut_bytes_total", totals["credit_cut"])


async def _peers(store: Store, readings: StoreReadings) -> None:
    """What the sweep has counted, if it has by now."""
    counts = await read_peer_counts(store.shards)
    if counts is None:
        return
    for state in ("seeder", "leecher"):
        for label, parts in (("family", ("v4", "v6")), ("protocol", ("http", "udp", "ws"))):
            for part in parts:
                readings.put(f"tracker_peers_by_{label}", getattr(counts, f"{state}s_{part}"), state, part)


async def _sizes(store: Store, readings: StoreReadings) -> None:
    readings.put("tracker_torrents", await store.torrents.count())
    readings.put("tracker_users", await store.users.count())
    readings.put("tracker_limited_subjects", await store.rate_limits.subject_count())
    readings.put("tracker_figures_waiting", await store.outbox.waiting())


async def _changes(store: Store, readings: StoreReadings) -> None:
    readings.put("tracker_changes", await store.changes.size())


async def _scores(store: Store, readings: StoreReadings) -> None:
    lag = await store.scores.lag()
    readings.put("tracker_scored_torrents", lag.count)
    readings.put("tracker_scores_due", lag.waiting)
    readings.put("tracker_scores_late", lag.late)
    readings.put("tracker_scores_oldest_seconds", lag.longest_seconds)


async def _jobs(store: Store, readings: StoreReadings) -> None:
    for queue in (await store.jobs.queues())[:MAX_QUEUES]:
        for status, size in (await store.jobs.sizes(queue)).items():
            readings.put("tracker_jobs", size, queue, status)


async def _work(store: Store, readings: StoreReadings) -> None:
    for day in (await store.work.sizes.days())[-1:]:
        for seeders, size in zip(CLASSES, day.sums, strict=True):
            readings.put("tracker_work_bytes", size, seeders)
    names = [project.name for project in await store.work.projects.all()][:MAX_PROJECTS]
    took = Histogram([0] * (len(CLAIM_SECONDS) + 1))
    for name, found in zip(names, await store.work.statistics.read(names), strict=True):
        for state in _WORK_STATES:
            readings.put("tracker_work_items", getattr(found, state), name, state)
        for outcome in _CLAIM_OUTCOMES:
            readings.put("tracker_work_claims_total", found.totals.get(outcome, 0), name, outcome)
        readings.put("tracker_work_reported_bytes_total", found.totals.get("bytes", 0), name)
        readings.put("tracker_work_verified_seconds_total", found.totals.get("seconds", 0), name)
        readings.put("tracker_work_unverified_done_total", found.totals.get("unverified", 0), name)
        took.counts = [a + b for a, b in zip(took.counts, found.durations, strict=True)]
        took.sum += found.duration_sum
    if names:
        readings.histograms["tracker_work_claim_seconds"] = CLAIM_SECONDS, took


async def _memory(store: Store, readings: StoreReadings) -> None:
    """The reading of each server that answers. The label of a single one is empty, which Prometheus takes for none.
    There are at most as many as prefixes."""
    servers = store.shards.servers
    for server, usage in (await read_usages(servers)).items():
        node = server.master if len(servers) > 1 else ""
        if usage.used:
            readings.put("tracker_store_memory_bytes", usage.used, node)
        if usage.limit:
            readings.put("tracker_store_memory_limit_bytes", usage.limit, node)
