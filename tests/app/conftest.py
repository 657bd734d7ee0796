"""Starts trackers as processes, with the test's directory as their working directory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.trackers import RunningTracker

StartTracker = Callable[..., RunningTracker]
"""Takes command-line arguments, and settings as keywords."""


@pytest.fixture
def start_tracker(tmp_path: Path) -> Iterator[StartTracker]:
    started: list[RunningTracker] = []

    def start(*words: str, **settings: str) -> RunningTracker:
        started.append(trackers.start(tmp_path, *words, **settings))
        return started[-1]

    yield start
    for tracker in started:
        tracker.kill()
