"""`tracker client seen` after announces to a tracker process."""

import json
import signal
from pathlib import Path

import pytest

from loadtest import trackers
from tests import commands
from tests.e2e.conftest import StartTracker

HASH = "01" * 20
SEEN = ("client", "seen", "--json")


def run_json(directory: Path, *words: str) -> list[dict[str, object]]:
    """Runs a command and returns its JSON lines."""
    done = commands.run(directory, *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def announce_as_clients(tracker: trackers.RunningTracker) -> None:
    """qBittorrent joins three times, from as many addresses, and so is refused. Transmission joins once, and is not
    listed: it came from one address."""
    clients = ("-qB5020-abcdefghijkl", "-TR4060-abcdefghijkl", "-qB5020-mnopqrstuvwx", "-qB5020-012345678901")
    for number, peer_id in enumerate(clients, 1):
        for event in ("started", "", ""):
            reply = tracker.announce(peer_id=peer_id, event=event, source=f"127.0.0.{number}")
            assert b"failure reason" not in reply
        refused = tracker.announce(peer_id=clients[0], info_hash="%02" * 20, source=f"127.0.0.{min(number, 3)}")
        assert b"failure reason" in refused


@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.long), "2"])
@pytest.mark.slow
def test_a_graceful_stop_saves_the_counts_of_client_programs(start_tracker: StartTracker, workers: str) -> None:
    """Every process writes its waiting counts when the tracker stops."""
    tracker = start_tracker(TRACKER_TORRENTS__MODE="registered", TRACKER_HTTP__WORKERS=workers)
    home = tracker.log_file.parent
    assert commands.run(home, "torrent", "add", HASH).returncode == 0
    announce_as_clients(tracker)
    assert tracker.end(signal.SIGTERM) == 0
    assert run_json(home, *SEEN) == [{"joins": 3, "program": "qBittorrent 5.0.2"}]
    refused = {"failures": 4, "program": "qBittorrent 5.0.2", "reason": "unknown torrent"}
    assert run_json(home, *SEEN, "--failures") == [refused]


@pytest.mark.long
def test_counting_client_programs_can_be_disabled(start_tracker: StartTracker) -> None:
    tracker = start_tracker(TRACKER_TORRENTS__MODE="registered", TRACKER_CLIENTS__COUNT_SOFTWARE="false")
    home = tracker.log_file.parent
    assert commands.run(home, "torrent", "add", HASH).returncode == 0
    announce_as_clients(tracker)
    assert tracker.end(signal.SIGTERM) == 0
    assert run_json(home, *SEEN) == run_json(home, *SEEN, "--failures") == []
