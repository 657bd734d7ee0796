"""Rate limits with several web processes and real connections."""

import pytest

from loadtest.trackers import RunningTracker
from tests.e2e.conftest import StartTracker
from tests.e2e.requests import announce_path, get
from tests.waiting import until


def ask(tracker: RunningTracker, source: str, number: int) -> str:
    """Announces another peer id from ``source`` and returns the result."""
    try:
        reply = get(tracker.url, announce_path(peer_id=b"-TR4000-%012d" % number), source=source)
    except ConnectionError:
        return "dropped"
    if b"failure reason" in reply:
        assert reply[b"failure reason"].startswith(b"too many new peers") and reply[b"retry in"] == 5
        return "refused"
    return "softened" if reply[b"interval"] > 2000 else "answered"


@pytest.mark.slow
def test_an_address_over_its_limit_is_dropped_by_every_process(start_tracker: StartTracker) -> None:
    tracker = start_tracker(
        TRACKER_HTTP__WORKERS="2",
        TRACKER_LIMITS__PRIVATE_ADDRESSES="true",
        # The stages begin at 60, 120 and 240. Processes share their counts once a second; fewer than 100 announces
        # arrive in a second.
        TRACKER_LIMITS__JOINS_MINUTE="60",
    )
    met: list[str] = []

    def is_dropped() -> bool:
        met.append(ask(tracker, "127.0.0.2", len(met)))
        return met[-1] == "dropped"

    until(is_dropped)
    assert met[0] == "answered" and "refused" in met
    until(lambda: all(ask(tracker, "127.0.0.2", 0) == "dropped" for _ in range(20)))
    assert {ask(tracker, "127.0.0.3", 1) for _ in range(5)} == {"answered"}
    assert "addresses exceed a rate limit" in tracker.log and "127.0.0.2" not in tracker.log
