"""Telemetry of one process, and sums over several."""

from tracker.runtime.telemetry import BOUNDS, Telemetry, merged


def test_values_of_a_second_are_added_to_each_of_their_names() -> None:
    telemetry = Telemetry()
    telemetry.add_second({("requests", "announces"): 3, ("requests", "scrapes"): 1}, {"announce_seconds": [0.0007]})
    telemetry.add_second({("requests", "announces"): 2}, {"announce_seconds": [99.0], "unknown": [1.0]})
    snapshot = telemetry.snapshot()
    assert snapshot.counts == {"requests": 6, "announces": 5, "scrapes": 1}
    histogram = snapshot.histograms["announce_seconds"]
    assert (histogram.counts[1], histogram.counts[-1], sum(histogram.counts)) == (1, 1, 2)
    assert histogram.sum == 99.0007


def test_a_value_equal_to_a_bound_counts_in_its_bucket() -> None:
    """As in Prometheus: ``le`` means less than or equal."""
    telemetry = Telemetry()
    telemetry.observe("announce_batch", 64)
    assert telemetry.snapshot().histograms["announce_batch"].counts[BOUNDS["announce_batch"].index(64)] == 1


def test_a_snapshot_does_not_change() -> None:
    telemetry = Telemetry()
    before = telemetry.snapshot()
    telemetry.observe("announce_batch", 1)
    telemetry.count("announces")
    assert before.counts == {} and sum(before.histograms["announce_batch"].counts) == 0


def test_snapshots_of_processes_are_summed() -> None:
    one, two = Telemetry(), Telemetry()
    one.count("announces", 2)
    two.count("announces", 3)
    two.count("scrapes")
    one.gauge("in_flight", lambda: 4)
    two.gauge("in_flight", lambda: 5)
    one.observe("announce_batch", 2)
    two.observe("announce_batch", 3)
    total = merged([one.snapshot(), two.snapshot()])
    assert total.counts == {"announces": 5, "scrapes": 1}
    assert total.gauges == {"in_flight": 9}
    histogram = total.histograms["announce_batch"]
    assert (sum(histogram.counts), histogram.sum) == (2, 5)
    assert merged([]).counts == {}
