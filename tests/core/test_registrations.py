"""The report of the limits on new torrents."""

from collections import Counter

from structlog.testing import capture_logs

from tracker.core.refusals import LOG_SECONDS, RegistrationLimits


def test_limits_on_new_torrents_are_counted_and_logged_once_a_minute() -> None:
    counted: Counter[str] = Counter()
    now = 1000.0

    def count(*names: str, by: int = 1) -> None:
        counted.update(dict.fromkeys(names, by))

    limits = RegistrationLimits(count, lambda: now)
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
    assert counted == {"forgotten": 102, "forgotten.full": 102}
