"""GET /metrics: the exposition of a tracker after announces, and access to it."""

import os
import signal
import subprocess
from collections.abc import Callable

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from loadtest.servers import ROOT, Server
from tests.admin.conftest import Admin
from tests.admin.scraping import OPENMETRICS, PROMTOOL, Samples, Scrapes, needs_promtool, samples_of, scraped
from tests.store.harness import Store, redis_of
from tracker.admin.metrics import exposition
from tracker.admin.metrics.exposition import MAX_QUEUES, MAX_REASONS, Scrape, StoreReadings, read_store
from tracker.admin.metrics.table import METRICS, as_markdown
from tracker.runtime.telemetry import Snapshot, Telemetry, merged
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

NAMED_AS_IN_THE_ORIGINAL = ("tracker_dht_ktable_nodes_count", "tracker_dht_ktable_hashes_count")
"""promtool does not like the end of these names. Dashboards of the original expect them."""


@pytest.fixture(scope="module")
def scrapes() -> Scrapes:
    return scraped()


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


@needs_promtool
@pytest.mark.parametrize("which", ["fresh", "used", "unavailable"])
def test_promtool_accepts_the_exposition(scrapes: Scrapes, which: str) -> None:
    checked = subprocess.run(
        [PROMTOOL, "check", "metrics"],
        input=getattr(scrapes, which),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    complaints = [line for line in checked.stderr.splitlines() if line.split(" ")[0] not in NAMED_AS_IN_THE_ORIGINAL]
    assert (checked.stdout, complaints) == ("", [])


def test_events_are_counted(scrapes: Scrapes) -> None:
    samples = samples_of(scrapes.used)
    requests = {
        ("announce", "answered"): 5,
        ("announce", "refused"): 1,
        ("scrape", "answered"): 1,
        ("scrape", "refused"): 0,
        ("other", "refused"): 0,
    }
    for (kind, result), number in requests.items():
        assert value(samples, "tracker_requests_total", kind=kind, result=result) == number
    assert value(samples, "tracker_announces_total", family="v6") == 1
    assert value(samples, "tracker_failures_total", reason="port must be from 1 to 65535") == 1
    assert value(samples, "tracker_peers", state="seeder") == 1
    assert value(samples, "tracker_peers", state="leecher") == 1
    assert value(samples, "tracker_torrents") == 1
    assert value(samples, "tracker_announce_seconds_count") == 5
    assert value(samples, "tracker_announce_batch_size_sum") == 5
    assert value(samples, "tracker_sweep_repairs_total") == 0
    assert value(samples, "tracker_store_up") == 1
    assert value(samples, "tracker_ready") == 1
    assert value(samples, "tracker_geoip_usable") == 1
    assert value(samples, "tracker_work_items", project="proj", state="todo") == 1
    assert value(samples, "tracker_work_bytes", seeders="0") == 7
    assert value(samples, "tracker_work_bytes", seeders="1-3") == 2**60
    assert value(samples, "tracker_work_bytes", seeders="11+") == 1
    assert value(samples, "tracker_work_items", project="proj", state="done") == 1
    assert value(samples, "tracker_work_claims_total", project="proj", outcome="claimed") == 1
    assert value(samples, "tracker_work_reported_bytes_total", project="proj") == 5
    assert value(samples, "tracker_work_unverified_done_total", project="proj") == 1
    assert value(samples, "tracker_work_verified_seconds_total", project="proj") == 0
    assert value(samples, "tracker_work_claim_seconds_bucket", le="60.0") == 1
    assert value(samples, "tracker_store_round_trips_total", outcome="answered") > 10


def test_every_metric_has_its_kind_and_labels(scrapes: Scrapes) -> None:
    """And no metric is missing from the table."""
    found = {}
    for family in parse_text(scrapes.used):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if name.startswith("tracker_"):
            labels = {tuple(sorted(set(sample.labels) - {"le"})) for sample in family.samples}
            assert len(labels) == 1, name
            found[name] = (family.type, labels.pop())
    kinds = {"info": "gauge"}
    assert found == {
        metric.name: (kinds.get(metric.kind, metric.kind), tuple(sorted(metric.labels))) for metric in METRICS
    }


def test_openmetrics_has_the_same_samples(scrapes: Scrapes) -> None:
    assert scrapes.openmetrics.endswith("# EOF\n")
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_openmetrics(scrapes.openmetrics)  # type: ignore[no-untyped-call]
        for sample in family.samples
    }
    in_text = samples_of(scrapes.later)
    assert {name for name, _ in samples} == {name for name, _ in in_text}
    assert value(samples, "tracker_announces_total", family="v6") == 1


def test_counters_never_decrease(scrapes: Scrapes) -> None:
    texts = [scrapes.fresh, scrapes.used, scrapes.later, scrapes.unavailable]
    before: Samples = {}
    for text in texts:
        now = samples_of(text)
        for key, number in before.items():
            falls = key[0].endswith(("_total", "_bucket", "_count", "_sum"))
            if falls and (key in now or text != scrapes.unavailable):
                assert now[key] >= number, key
        before = {**before, **now}


def test_metrics_of_the_tracker_need_no_store(scrapes: Scrapes) -> None:
    samples = samples_of(scrapes.unavailable)
    assert value(samples, "tracker_store_up") == 0
    assert value(samples, "tracker_ready") == 0
    assert value(samples, "tracker_announces_total", family="v4") >= 3
    there = {name for name, _ in samples}
    assert not there & {metric.name for metric in METRICS if metric.scope == "store"}
    assert {"process_cpu_seconds_total", "python_info"} <= there


async def test_metrics_need_a_token_with_role_read(admin: Admin) -> None:
    async with admin.client() as stranger, admin.client("read") as reader, admin.browser("read") as browser:
        refused = await stranger.get("/metrics", allow_redirects=False)
        assert (refused.status, refused.content_type) == (401, "application/problem+json")
        for client in (reader, browser):
            response = await client.get("/metrics")
            assert response.status == 200
            assert "tracker_store_up 1.0" in await response.text()
        head = await reader.head("/metrics")
        assert (head.status, await head.read()) == (200, b"")
        assert (await reader.post("/metrics")).status in (403, 405)


async def test_the_format_is_negotiated(admin: Admin) -> None:
    prometheus = (
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
        "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
    )
    kinds = {
        "*/*": "text/plain; version=0.0.4",
        "text/plain": "text/plain; version=0.0.4",
        OPENMETRICS: "application/openmetrics-text; version=1.0.0",
        prometheus: "application/openmetrics-text; version=1.0.0",
    }
    async with admin.client("read") as client:
        for accept, kind in kinds.items():
            response = await client.get("/metrics", headers={"Accept": accept})
            assert response.headers["Content-Type"].startswith(kind)
            assert response.headers["Content-Encoding"] in ("gzip", "deflate")
            assert (await response.text()).endswith("# EOF\n") == ("openmetrics" in kind)
        plain = await client.get("/metrics", headers={"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain.headers


def exposed(snapshot: Snapshot, store: StoreReadings | None = None) -> Samples:
    return samples_of(generate_latest(Scrape(snapshot, store or StoreReadings(), {})).decode())


def test_metrics_are_summed_over_processes() -> None:
    one, two = Telemetry(), Telemetry()
    for telemetry, announces in ((one, 2), (two, 3)):
        telemetry.add_second({("announces", "announces.v4"): announces}, {"announce_seconds": [0.003]})
        telemetry.gauge("processes", lambda: 1)
        telemetry.round_trip("timeout", 0.5)
    samples = exposed(merged([one.snapshot(), two.snapshot()]))
    assert value(samples, "tracker_announces_total", family="v4") == 5
    assert value(samples, "tracker_processes") == 2
    assert value(samples, "tracker_announce_seconds_bucket", le="0.005") == 2
    assert value(samples, "tracker_announce_seconds_bucket", le="0.0025") == 0
    assert value(samples, "tracker_announce_seconds_count") == 2
    assert value(samples, "tracker_announce_seconds_sum") == 0.006
    assert value(samples, "tracker_store_round_trips_total", outcome="timeout") == 2


def test_labels_are_bounded_and_escaped() -> None:
    """Reasons are fixed texts and queues have short names; the bounds are a second defence."""
    telemetry = Telemetry()
    hostile = 'a "quoted"\nline\\' + "x" * 1000
    telemetry.count(f"failures.{hostile}", 7)
    for number in range(2 * MAX_REASONS):
        telemetry.count(f"failures.reason {number}")
    for number in range(2 * MAX_QUEUES):
        telemetry.count(f"jobs.queue{number}.failed")
    telemetry.count("somebody else's name")
    samples = exposed(telemetry.snapshot())
    reasons = {dict(labels)["reason"]: v for (name, labels), v in samples.items() if "failures" in name}
    assert len(reasons) == MAX_REASONS + 1
    assert reasons[hostile[:100]] == 7
    assert sum(reasons.values()) == 7 + 2 * MAX_REASONS
    queues = {dict(labels)["queue"] for name, labels in samples if name == "tracker_job_changes_total"}
    assert len(queues) == MAX_QUEUES + 1 and "other" in queues
    telemetry.count("failures.reason 0", 5)
    again = exposed(telemetry.snapshot())
    assert value(again, "tracker_failures_total", reason="reason 0") == 6
    assert value(again, "tracker_failures_total", reason="other") == reasons["other"]


async def test_a_key_of_a_wrong_type_drops_only_its_metrics(admin: Admin) -> None:
    keys, client = admin.store.keys, redis_of(admin.store.connection)
    await client.hset(keys.index("score"), "x", "1")
    await client.set(keys.outbox_waiting(), "nonsense")
    figures = await read_store(admin.store)
    assert figures.up
    assert ("tracker_scored_torrents", ()) not in figures.values
    assert ("tracker_figures_waiting", ()) not in figures.values
    assert figures.values["tracker_torrents", ()] == 0
    assert figures.values["tracker_store_memory_bytes", ("",)] > 0


async def test_the_number_of_queues_is_bounded(admin: Admin) -> None:
    for number in range(exposition.MAX_QUEUES + 5):
        await admin.store.jobs.enqueue(f"queue{number}")
    figures = await read_store(admin.store)
    assert len({labels[0] for name, labels in figures.values if name == "tracker_jobs"}) == 50


async def test_a_scrape_does_not_wait_for_a_hanging_store(start_server: Callable[..., Server]) -> None:
    server = start_server("--appendonly", "no")
    store = Store(server.url, Keys("t:"), SwarmRules())
    assert (await read_store(store)).up
    os.kill(server.pid, signal.SIGSTOP)
    try:
        figures = await read_store(store, 0.2)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert not figures.up and not figures.values
    await store.connection.close()


async def test_recent_readers_can_read_metrics_while_the_store_is_unavailable(admin: Admin) -> None:
    """Only recent readers, and only /metrics."""
    async with admin.client("read") as reader, admin.client("admin") as other, admin.client() as stranger:
        assert (await reader.get("/metrics")).status == 200
        admin.store.connection._lost(OSError())
        assert "tracker_store_up 0.0" in await (await reader.get("/metrics")).text()
        assert (await other.get("/metrics")).status == 503
        assert (await stranger.get("/metrics", allow_redirects=False)).status == 401
        guessed = {"Authorization": "Bearer swk_0123456789ab_" + "x" * 43}
        assert (await stranger.get("/metrics", headers=guessed)).status == 503
        assert (await reader.get("/api/v1/torrents")).status == 503


async def test_a_revoked_token_leaves_the_cache_at_its_next_use(admin: Admin) -> None:
    async with admin.client("read") as reader:
        assert (await reader.get("/metrics")).status == 200
        await admin.store.tokens.revoke("test read")
        assert (await reader.get("/metrics")).status == 401
        admin.store.connection._lost(OSError())
        assert (await reader.get("/metrics")).status == 503


def test_the_documentation_has_the_table() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert as_markdown() in page
