"""GET /metrics for Prometheus: metrics of this tracker, over all its processes, and of its store.

A scrape queries the store with a deadline. Without the store, the metrics of the tracker are still exposed.
docs/metrics.md lists the metrics and describes access.
"""

import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tracker import __version__
from tracker.admin.context import AdminContext
from tracker.admin.metrics.store_readings import StoreReadings, read_store
from tracker.admin.metrics.table import COUNTED, GAUGES, HISTOGRAMS, METRICS, WITH_LABELS, Source
from tracker.admin.metrics.table import Metric as TableMetric
from tracker.runtime.telemetry import BOUNDS, Histogram, Snapshot
from tracker.store.jobs.records import STATUSES

MAX_REASONS = 100
"""Failure reasons are a few dozen fixed texts. Beyond the max, further ones become ``other``."""
MAX_QUEUES = 50
MAX_LABEL_LENGTH = 100

Histograms = dict[Source, tuple[Sequence[float], Histogram]]
"""By metric and labels: the bounds of the buckets, and what is in them."""

PROCESS = CollectorRegistry()
"""Metrics of the serving process: memory, files, CPU time, Python version, garbage collector."""
ProcessCollector(registry=PROCESS)
PlatformCollector(registry=PROCESS)
GCCollector(registry=PROCESS)


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
    """The metrics of one scrape."""

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
        histograms |= {(name, ()): each for name, each in self.store.histograms.items()}
        yield from _families(values, histograms)


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


def _counted(snapshot: Snapshot) -> dict[Source, float]:
    counts = snapshot.counts
    values: dict[Source, float] = {source: counts.get(name, 0) for name, source in COUNTED.items()}
    for name, number in counts.items():
        source = None if name in COUNTED else _source(name)
        if source is None:
            continue
        if source[0] == "tracker_job_changes_total":  # so that the first failure of a queue shows as an increase
            for status in STATUSES:
                values.setdefault((source[0], (source[1][0], status)), 0)
        _add(values, source, number)
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


def _add(values: dict[Source, float], source: Source, number: float) -> None:
    values[source] = values.get(source, 0) + number


def _capped(values: dict[Source, float]) -> dict[Source, float]:
    """Bounds the number of labels. The first ones keep theirs, so that no counter decreases."""
    kept: dict[Source, float] = {}
    reasons: set[str] = set()
    queues: set[str] = set()
    for (metric, labels), number in values.items():
        if metric == "tracker_failures_total":
            _add(kept, (metric, (_known(labels[0], reasons, MAX_REASONS),)), number)
        elif metric == "tracker_job_changes_total":
            _add(kept, (metric, (_known(labels[0], queues, MAX_QUEUES), labels[1])), number)
        else:
            kept[metric, labels] = number
    return kept


def _known(label: str, known: set[str], max_labels: int) -> str:
    if label not in known and len(known) >= max_labels:
        return "other"
    known.add(label)
    return label


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
            yield from _histogram(metric, histograms)
        elif metric.name in samples:
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = make(metric.name, metric.help, labels=metric.labels)
            for label_values, value in samples[metric.name]:
                family.add_metric(label_values, value)
            yield family


def _histogram(metric: TableMetric, histograms: Histograms) -> Iterator[Metric]:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for (name, labels), (bounds, found) in histograms.items():
        if name == metric.name:
            limits = [*(str(float(bound)) for bound in bounds), "+Inf"]
            family.add_metric(labels, list(zip(limits, accumulate(found.counts), strict=True)), found.sum)
    if family.samples:
        yield family
