"""Figures of one process, and their sums over several."""

from tracker.telemetry import BOUNDS, Telemetry, merged


def test_a_second_is_taken_over_by_its_names() -> None:
    telemetry = Telemetry()
    telemetry.take_over(
        {("requests", "announces"): 3, ("requests", "scrapes"): 1}, {"announce_seconds": [0.0007]}
    )
    telemetry.take_over({("requests", "announces"): 2}, {"announce_seconds": [99.0], "unknown": [1.0]})
    snapshot = telemetry.snapshot()
    assert snapshot.counts == {"requests": 6, "announces": 5, "scrapes": 1}
    histogram = snapshot.histograms["announce_seconds"]
    assert (histogram.counts[1], histogram.counts[-1], sum(histogram.counts)) == (1, 1, 2)
    assert histogram.sum == 99.0007


def test_a_value_on_a_bound_belongs_below_it() -> None:
    """As Prometheus' ``le`` says: less than or equal."""
    telemetry = Telemetry()
    telemetry.observe("announce_batch", 64)
    assert telemetry.snapshot().histograms["announce_batch"].counts[BOUNDS["announce_batch"].index(64)] == 1


def test_a_snapshot_stays_as_it_is() -> None:
    telemetry = Telemetry()
    before = telemetry.snapshot()
    telemetry.observe("announce_batch", 1)
    telemetry.count("announces")
    assert before.counts == {} and sum(before.histograms["announce_batch"].counts) == 0


def test_processes_add_up() -> None:
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
