"""Which client programs came, as an operator sees it, by real announces to a real tracker."""

import json
import signal
from pathlib import Path

import pytest

from loadtest import trackers
from tests.e2e.conftest import StartTracker

HASH = "01" * 20
SEEN = ("client", "seen", "--json")


def told(directory: Path, *words: str) -> list[dict[str, object]]:
    """What a command prints as JSON."""
    done = trackers.run(directory, *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def come_and_go(tracker: trackers.RunningTracker) -> None:
    """qBittorrent and Transmission join, and stay; qBittorrent is refused once as well."""
    for peer_id in ("-qB5020-abcdefghijkl", "-TR4060-abcdefghijkl", "-qB5020-mnopqrstuvwx"):
        for event in ("started", "", ""):
            assert b"failure reason" not in tracker.announce(peer_id=peer_id, event=event)
    assert b"failure reason" in tracker.announce(peer_id="-qB5020-abcdefghijkl", info_hash="%02" * 20)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.slow
def test_programs_are_counted_and_survive_a_stop(start_tracker: StartTracker, workers: str) -> None:
    """What has not been sent yet goes out with the stop, from every process."""
    tracker = start_tracker(TRACKER_TORRENTS__MODE="registered", TRACKER_HTTP__WORKERS=workers)
    home = tracker.log_file.parent
    assert trackers.run(home, "torrent", "add", HASH).returncode == 0
    come_and_go(tracker)
    assert tracker.end(signal.SIGTERM) == 0
    assert told(home, *SEEN) == [
        {"joins": 2, "program": "qBittorrent 5.0.2"},
        {"joins": 1, "program": "Transmission 4.0.6"},
    ]
    refused = {"failures": 1, "program": "qBittorrent 5.0.2", "reason": "unknown torrent"}
    assert told(home, *SEEN, "--failures") == [refused]


def test_counting_programs_can_be_switched_off(start_tracker: StartTracker) -> None:
    tracker = start_tracker(TRACKER_TORRENTS__MODE="registered", TRACKER_CLIENTS__COUNT_SOFTWARE="false")
    home = tracker.log_file.parent
    assert trackers.run(home, "torrent", "add", HASH).returncode == 0
    come_and_go(tracker)
    assert tracker.end(signal.SIGTERM) == 0
    assert told(home, *SEEN) == told(home, *SEEN, "--failures") == []
