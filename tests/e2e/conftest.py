"""Trackers as processes. None may print a traceback or an error, whatever a test does to it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.trackers import RunningTracker

StartTracker = Callable[..., RunningTracker]


@pytest.fixture
def start_tracker(tmp_path: Path) -> Iterator[StartTracker]:
    """Called with settings; in a directory of its own, ``home``, where its data stays for another one."""
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
    """What it listens on, in the order of its settings: ``http://host:port`` or ``unix:/path``."""
    announce, _, _ = tracker.banner.partition("\n  admin ")
    return re.findall(r"http://[^/\s]+|unix:\S+", announce)
