"""Settings of earlier versions. They are accepted, ignored and named in a warning, so that no upgrade stops a start."""

from collections.abc import Mapping

REMOVED: Mapping[tuple[str, str], str] = {
    ("http", "max_headers"): "64 header lines",
    ("http", "max_pending_request_bytes"): "32 MB in each process",
    ("http", "max_unread_answer_bytes"): "64 MB in each process",
    ("http", "half_close_seconds"): "5 seconds",
    ("limits", "early_seconds"): "30 seconds, or a quarter of the interval if that is shorter",
    ("uniques", "max_waiting"): "100,000 joins in each process",
    ("scoring", "cap"): "4.0",
    ("scoring", "processors_max"): "8",
    ("scoring", "upstream_timeout_seconds"): "10 seconds",
    ("jobs", "max_retries"): "2 retries",
    ("jobs", "timeout_seconds"): "30 minutes",
    ("jobs", "keep_seconds"): "one day",
    ("stathat", "max_waiting"): "100,000 statistics",
    ("stathat", "timeout_seconds"): "10 seconds",
}
"""By (section, name): the fixed value that replaced the setting."""
