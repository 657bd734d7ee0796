"""Floods of one address against a whole tracker: others are answered, memory is bounded and comes back, the store is
not lost."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtest.servers import ROOT
from tests.e2e.conftest import StartTracker
from tests.e2e.requests import announce_path, get
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it needs /proc, and more than one loopback address"),
]
HONEST = 40
KILOBYTES_A_CONNECTION = 160
"""At most: its objects, 64 kB that were read ahead, and one answer."""
KEPT_MEGABYTES = 24
"""More than before, when it is over: caches that were filled, and what the allocator cannot part with."""


@contextmanager
def rude(kind: str, url: str) -> Iterator[None]:
    """Clients of this kind, in a process of their own, all of which have connected."""
    port = url.rpartition(":")[2]
    words = [sys.executable, "-m", "loadtest.clients.client_kinds", kind, port]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as mob:
        assert mob.stdout is not None
        try:
            assert mob.stdout.readline() == b"ready\n"
            yield
        finally:
            mob.kill()


def megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.mark.long
def test_pipelined_scrapes_of_one_address_whose_answers_nobody_reads(start_tracker: StartTracker) -> None:
    """400 connections. Both the neighbours of others and the one behind the same address are answered."""
    tracker = start_tracker(TRACKER_HTTP__MAX_CONNECTIONS_PER_ADDRESS="390")
    pid = tracker.process.pid
    for number in range(20):
        get(tracker.url, announce_path(port=1000 + number))
    before = most = megabytes(pid)
    with rude("unread-pipelines", tracker.url):
        for number in range(HONEST):
            source = f"127.77.0.{1 + number}" if number % 2 else "127.66.0.1"
            assert b"peers" in get(tracker.url, announce_path(port=2000 + number), source=source)
            most = max(most, megabytes(pid))
    assert most - before < 400 * KILOBYTES_A_CONNECTION / 1024
    until(lambda: megabytes(pid) < before + KEPT_MEGABYTES)
    assert "store lost" not in tracker.log
