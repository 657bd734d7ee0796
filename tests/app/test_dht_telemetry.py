"""D13: the metrics of the DHT are exact, whatever happened: count = added - dropped."""

import random

import pytest

from tests.dht.test_node import Island, address, joined
from tracker.admin.metrics.exposition import Scrape, StoreReadings
from tracker.app.dht import DhtTelemetry
from tracker.bittorrent import InfoHash
from tracker.runtime.telemetry import Telemetry
from tracker.store.dht.torrents import Participation


def samples(telemetry: Telemetry) -> dict[tuple[str, ...], float]:
    scrape = Scrape(telemetry.snapshot(), StoreReadings(), {})
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in scrape.collect()
        for sample in family.samples
        if sample.name.startswith("tracker_dht")
    }


def test_counts_are_those_added_less_those_dropped() -> None:
    island: Island = joined(20)
    node, telemetry, rng = island.first(), Telemetry(), random.Random(1)
    report = DhtTelemetry(telemetry, {4: node})
    for step in range(6):
        for number in range(20):
            info_hash = InfoHash(rng.randbytes(20))
            node.announced.announce(info_hash, address(number), island.now, seed=False)
            if number % 3 == 0:
                node.responder.forget(info_hash)
        if step == 3:
            island.cut = {address(number) for number in range(5, 15)}
        island.run(900, step=5)
        report.flush()
        found = samples(telemetry)
        for kind, entries in (("nodes", node.table), ("hashes", node.announced)):
            added, dropped = (found[f"tracker_dht_ktable_{kind}_{each}_total",] for each in ("added", "dropped"))
            assert found[f"tracker_dht_ktable_{kind}_count",] == added - dropped == len(entries)
    assert found["tracker_dht_ktable_nodes_dropped_total",] > 0
    assert found["tracker_dht_ktable_hashes_dropped_total",] > 0
    assert found["tracker_dht_peers",] == node.announced.peer_count
    assert found["tracker_dht_queries_out_total", "ping", "answered"] == node.counts.queries_out["ping", "answered"]
    assert found["tracker_dht_queries_out_total", "ping", "failed"] > 0
    assert found["tracker_dht_packets_total", "in"] == node.counts.packets_in
    assert found["tracker_dht_bytes_total", "in"] == node.counts.bytes_in


def test_a_node_that_no_node_answers_is_down() -> None:
    """D22: ``tracker_dht_up`` is 0 after a minute without an answer."""
    island, telemetry = joined(20), Telemetry()
    node = island.first()
    report = DhtTelemetry(
        telemetry,
        {4: node},
        lambda: Participation(1000, 100, 7),
        clock=lambda: 5000 + island.now,
        timer=lambda: island.now,
    )
    report.add_health()
    found = samples(telemetry)
    assert node.table.last_answer is not None
    assert found["tracker_dht_answer_timestamp_seconds",] == 5000 + node.table.last_answer
    assert (found["tracker_dht_up",], found["tracker_dht_torrents",]) == (1, 70)
    island.cut = {address(0)}
    island.run(61)
    assert samples(telemetry)["tracker_dht_up",] == 0
    island.cut = set()
    island.run(30)
    assert samples(telemetry)["tracker_dht_up",] == 1
    report.remove_health()
    assert ("tracker_dht_up",) not in samples(telemetry)


def test_a_node_has_half_a_minute_to_find_others() -> None:
    island, telemetry = Island(1), Telemetry()
    DhtTelemetry(telemetry, {4: island.first()}, clock=lambda: 5000, timer=lambda: island.now).add_health()
    assert samples(telemetry)["tracker_dht_up",] == 1
    island.run(30)
    found = samples(telemetry)
    assert found["tracker_dht_up",] == 0 and ("tracker_dht_answer_timestamp_seconds",) not in found


def test_nothing_is_counted_twice() -> None:
    telemetry = Telemetry()
    report = DhtTelemetry(telemetry, {4: joined(5).first()}, clock=lambda: 5000, timer=lambda: 60)
    report.flush()
    once = samples(telemetry)
    report.flush()
    assert samples(telemetry) == once


def test_answer_times_are_by_query_and_counted_once() -> None:
    island, telemetry = Island(2), Telemetry()
    node = island.first()
    report = DhtTelemetry(telemetry, {4: node})
    node.contact([address(1)], 0)
    island.now = 0.3
    island.deliver()
    report.flush()
    report.flush()
    found = samples(telemetry)
    count = found["tracker_dht_query_seconds_count", "find_node"]  # others followed, and were answered at once
    assert count - found["tracker_dht_query_seconds_bucket", "find_node", "0.25"] == 1
    assert found["tracker_dht_query_seconds_sum", "find_node"] == pytest.approx(0.3)
    assert found["tracker_dht_query_seconds_count", "get_peers"] == 0
