"""GET /metrics for Prometheus: metrics of this tracker, over all its processes, and of its store.

A scrape queries the store with a deadline. Without the store, the metrics of the tracker are still exposed; if it fails
meanwhile, a part of its own. docs/metrics.md lists the metrics and describes access.
"""

import asyncio
import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from tracker import __version__
from tracker.admin.context import AdminContext
from tracker.admin.metrics.table import COUNTED, EVENTS, GAUGES, HISTOGRAMS, METRICS, WITH_LABELS, Source
from tracker.errors import StoreUnavailable
from tracker.runtime.telemetry import BOUNDS, Histogram, Snapshot
from tracker.store.jobs.records import STATUSES
from tracker.store.stats.memory_usage import read_usages
from tracker.store.store import Store
from tracker.store.swarms.reaping import read_peer_counts
from tracker.store.work.sizes import CLASSES
from tracker.store.work.statistics import CLAIM_SECONDS

MAX_REASONS = 100
"""Failure reasons are a few dozen fixed texts. Beyond the max, further ones become ``other``."""
MAX_QUEUES = 50
"""A queue is a label, and the number of labels is bounded."""
MAX_LABEL_LENGTH = 100

Histograms = dict[Source, tuple[Sequence[float], Histogram]]
"""By metric and labels: the bounds of the buckets, and what is in them."""

PROCESS = CollectorRegistry()
"""Metrics of the serving process: memory, files, CPU time, Python version, garbage collector."""
ProcessCollector(registry=PROCESS)
PlatformCollector(registry=PROCESS)
GCCollector(registry=PROCESS)


MAX_PROJECTS = 50
"""Projects of work distribution; further ones, and further queues, are left out."""
_WORK_STATES = ("todo", "secondary", "redo", "asked", "out", "done")
_CLAIM_OUTCOMES = ("claimed", "done", "lapsed", "released", "repaired")
READ_SECONDS = 2.0
"""The default scrape timeout of Prometheus is 10 s."""


@dataclass(slots=True)
class StoreReadings:
    """``up``: the store responded; values it refused are missing."""

    up: bool = True
    values: dict[Source, float] = field(default_factory=dict)
    histograms: Histograms = field(default_factory=dict)

    def put(self, metric: str, value: float, *labels: str) -> None:
        self.values[metric, labels] = value


async def read_store(store: Store, seconds: float = READ_SECONDS) -> StoreReadings:
    """Reads for at most ``seconds``. Raises no store errors."""
    readings = StoreReadings()
    try:
        async with asyncio.timeout(seconds):
            for part in (_totals, _peers, _sizes, _changes, _scores, _jobs, _work, _memory):
                # A key of a wrong type, or a forbidden command, drops only the values of its part; so does the main
                # store of several shards that is unavailable.
                with suppress(RedisError, ValueError):
                    await store.shards.main_or(part(store, readings), None)
    except (StoreUnavailable, TimeoutError):
        readings.up = False
    return readings


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
        readings.histograms["tracker_work_claim_seconds", ()] = CLAIM_SECONDS, took


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


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    started = context.clock()

    async def metrics(request: web.Request) -> web.Response:
        store = await read_store(context.store)
        scrape = Scrape(context.telemetry(), store, about(context, started))
        encode, content_type = choose_encoder(",".join(request.headers.getall("Accept", [])))
        response = web.Response(body=encode(scrape), headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    return [web.get("/metrics", metrics)]


@dataclass(frozen=True, slots=True)
class Scrape(Collector):
    snapshot: Snapshot
    store: StoreReadings
    about: dict[Source, float]
    """Metrics of neither source."""

    def collect(self) -> Iterator[Metric]:
        yield from PROCESS.collect()
        values = {**_counted(self.snapshot), **_gauges(self.snapshot), **self.about, **self.store.values}
        values["tracker_store_up", ()] = int(self.store.up)
        histograms: Histograms = {
            HISTOGRAMS[name]: (BOUNDS[name], found)
            for name, found in self.snapshot.histograms.items()
            if name in HISTOGRAMS
        }
        yield from _families(values, histograms | self.store.histograms)


def about(context: AdminContext, started: float) -> dict[Source, float]:
    """Metrics of the tracker itself; ``started``: epoch seconds."""
    values: dict[Source, float] = {
        ("tracker_build_info", (__version__, platform.python_version(), context.server)): 1,
        ("tracker_start_time_seconds", ()): started,
        ("tracker_ready", ()): int(not context.problems()),
        ("tracker_shards_unavailable", ()): len(context.store.shards.unavailable),
        ("tracker_store_refuses_writes", ()): int(any(shard.connection.refusal for shard in context.store.shards.all)),
        ("tracker_reap_interval_seconds", ()): context.settings.reaper.interval_seconds,
    }
    if context.settings.geoip_file is not None:
        database = context.places.describe()
        values["tracker_geoip_usable", ()] = int(database is not None)
        if database is not None and database.built is not None:
            values["tracker_geoip_build_timestamp_seconds", ()] = database.built.timestamp()
    return values


def _counted(snapshot: Snapshot) -> Mapping[Source, float]:
    counts = snapshot.counts
    values = Counter({source: counts.get(name, 0) for name, source in COUNTED.items()})
    for name, number in counts.items():
        source = None if name in COUNTED else _source(name)
        if source is None:
            continue
        if source[0] == "tracker_job_changes_total":  # so that the first failure of a queue shows as an increase
            for status in STATUSES:
                values.setdefault((source[0], (source[1][0], status)), 0)
        values[source] += number
    return _capped(values)


def _source(name: str) -> Source | None:
    """The metric of a counter whose name contains labels; None if unknown. Those of the DHT are fixed texts."""
    if name.startswith(("dht.nodes.", "dht.hashes.")):
        return f"tracker_dht_ktable_{name[4:].replace('.', '_')}_total", ()
    for pattern, metric in WITH_LABELS.items():
        if found := re.fullmatch(pattern, name, re.DOTALL):
            labels = tuple(label[:MAX_LABEL_LENGTH] for label in found.groups())
            return (metric, labels) if metric != "tracker_job_changes_total" or labels[1] in STATUSES else None
    return None


def _capped(values: Counter[Source]) -> Counter[Source]:
    """Bounds the number of labels. The first ones keep theirs, so that no counter decreases."""
    kept: Counter[Source] = Counter()
    limits = {"tracker_failures_total": MAX_REASONS, "tracker_job_changes_total": MAX_QUEUES}
    known: dict[str, set[str]] = {metric: set() for metric in limits}
    for (metric, labels), number in values.items():
        shown = labels
        if metric in limits:
            if labels[0] in known[metric] or len(known[metric]) < limits[metric]:
                known[metric].add(labels[0])
            else:
                shown = ("other", *labels[1:])
        kept[metric, shown] += number
    return kept


def _gauges(snapshot: Snapshot) -> dict[Source, float]:
    values = {metric: snapshot.gauges[name] for name, metric in GAUGES.items() if name in snapshot.gauges}
    if not values.get(("tracker_sweep_end_timestamp_seconds", ())):  # no complete round yet
        values.pop(("tracker_sweep_end_timestamp_seconds", ()), None)
        values.pop(("tracker_sweep_last_seconds", ()), None)
    if not values.get(("tracker_dht_answer_timestamp_seconds", ())):  # no answer yet
        values.pop(("tracker_dht_answer_timestamp_seconds", ()), None)
    return values


def _families(values: dict[Source, float], histograms: Histograms) -> Iterator[Metric]:
    """In the order of the table, without metrics that have no value."""
    samples: dict[str, list[tuple[Sequence[str], float]]] = {}
    for (name, labels), value in values.items():
        samples.setdefault(name, []).append((labels, value))
    for metric in METRICS:
        if metric.kind == "histogram":
            histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
            for (name, labels), (bounds, found) in histograms.items():
                if name == metric.name:
                    limits = [*(str(float(bound)) for bound in bounds), "+Inf"]
                    histogram.add_metric(labels, list(zip(limits, accumulate(found.counts), strict=True)), found.sum)
            if histogram.samples:
                yield histogram
        elif metric.name in samples:
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = make(metric.name, metric.help, labels=metric.labels)
            for label_values, value in samples[metric.name]:
                family.add_metric(label_values, value)
            yield family
