"""The report of the limits on new torrents."""

from structlog.testing import capture_logs

from tests.store.jobs.harness import Metrics
from tracker.core.refusals import LOG_SECONDS, RegistrationLimits


def test_limits_on_new_torrents_are_counted_and_logged_once_a_minute() -> None:
    now, metrics = 1000.0, Metrics()
    limits = RegistrationLimits(metrics.count, lambda: now)
    with capture_logs() as logs:
        limits.note(0, 0)
        limits.note(2, 3)
        for _ in range(100):
            limits.note(1, 1)
        now += LOG_SECONDS
        limits.note(0, 1)
    assert [(line["event"], line["forgotten"], line["refused"]) for line in logs] == [
        ("new torrents are limited", 2, 3),
        ("new torrents are limited", 100, 101),
    ]
    assert metrics.counts == {"forgotten": 102, "forgotten.full": 102}
