"""Starts trackers as processes. A test fails if one of them logs a traceback or an error."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.trackers import RunningTracker

StartTracker = Callable[..., RunningTracker]


@pytest.fixture
def start_tracker(tmp_path: Path) -> Iterator[StartTracker]:
    """Starts a tracker with the given settings, in the directory ``home``. A later tracker with the same home finds the
    data."""
    started: list[RunningTracker] = []

    def start(home: str = "tracker", **settings: str) -> RunningTracker:
        directory = tmp_path / home
        directory.mkdir(exist_ok=True)
        started.append(trackers.start(directory, **settings))
        return started[-1]

    yield start
    for tracker in started:
        tracker.kill()
    for tracker in started:
        assert "Traceback" not in tracker.log, tracker.log
        assert '"level": "error"' not in tracker.log, tracker.log


def addresses(tracker: RunningTracker) -> list[str]:
    """Returns the listen addresses in the order of the settings: ``http://host:port`` or ``unix:/path``."""
    announce, _, _ = tracker.banner.partition("\n  admin ")
    return re.findall(r"http://[^/\s]+|unix:\S+", announce)
