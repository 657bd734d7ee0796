"""Rates that staff pages show."""

import pytest

from tests.store.harness import Clock
from tracker.admin.site.changes import WINDOWS, Rates
from tracker.runtime.telemetry import Snapshot, Telemetry


def counting(telemetry: Telemetry, requests: int, announces: int) -> None:
    telemetry.count("requests", requests)
    telemetry.count("announces", announces)


def test_a_steady_rate_is_reached_sooner_over_a_shorter_time() -> None:
    clock, telemetry = Clock(), Telemetry()
    counting(telemetry, 5000, 5000)  # before the start
    rates = Rates(telemetry.snapshot, clock)
    for _ in range(60):
        clock.now += 1
        counting(telemetry, 100, 40)
        rates.read()
    shown = rates.shown()
    found = [shown[f"requests_per_{window}s"] for window in WINDOWS]
    assert found == sorted(found, reverse=True)
    assert found[:3] == pytest.approx([100, 100 * (1 - 2.7**-6), 63], abs=1)
    assert shown["announce_responses_per_60s"] == pytest.approx(0.4 * found[2])
    assert (shown["created_at"], shown["last_request_at"]) == (clock.now - 60, clock.now)


def test_without_requests_rates_fall_and_the_last_time_stays() -> None:
    clock, telemetry = Clock(), Telemetry()
    rates = Rates(telemetry.snapshot, clock)
    assert rates.shown()["last_announce_response_at"] == 0
    clock.now += 1
    counting(telemetry, 10, 10)
    rates.read()
    last = clock.now
    clock.now += 3600
    rates.read()
    shown = rates.shown()
    assert (shown["last_request_at"], shown["last_announce_response_at"]) == (last, last)
    assert shown["requests_per_900s"] < 0.001


def test_a_web_process_that_ended_takes_its_counts_along() -> None:
    clock, snapshots = Clock(), [Snapshot(), Snapshot({"requests": 1000, "announces": 1000})]
    rates = Rates(snapshots.pop, clock)
    clock.now += 1
    rates.read()
    assert set(rates.per_second.values()) == {0.0}
