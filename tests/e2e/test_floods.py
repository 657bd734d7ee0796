"""Floods from one address against a tracker process: other clients get replies, memory is bounded and released, and the
store stays connected."""

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
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and several loopback addresses"),
]
HONEST = 40
KILOBYTES_A_CONNECTION = 160
"""Maximum: the objects of the connection, 64 kB read ahead, and one reply."""
KEPT_MEGABYTES = 24
"""Maximum growth after the flood: filled caches, and memory that the allocator keeps."""


@contextmanager
def flood(kind: str, url: str) -> Iterator[None]:
    """Runs clients of this kind in a separate process. They are connected when the block begins."""
    port = url.rpartition(":")[2]
    words = [sys.executable, "-m", "loadtest.clients.client_kinds", kind, port]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as clients:
        assert clients.stdout is not None
        try:
            assert clients.stdout.readline() == b"ready\n"
            yield
        finally:
            clients.kill()


def megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.mark.long
def test_pipelined_scrapes_with_unread_replies_block_no_other_client(start_tracker: StartTracker) -> None:
    """400 connections from one address. Clients at other addresses and at the same address get replies."""
    tracker = start_tracker(TRACKER_HTTP__MAX_CONNECTIONS_PER_ADDRESS="390")
    pid = tracker.process.pid
    for number in range(20):
        get(tracker.url, announce_path(port=1000 + number))
    before = most = megabytes(pid)
    with flood("unread-pipelines", tracker.url):
        for number in range(HONEST):
            source = f"127.77.0.{1 + number}" if number % 2 else "127.66.0.1"
            assert b"peers" in get(tracker.url, announce_path(port=2000 + number), source=source)
            most = max(most, megabytes(pid))
    assert most - before < 400 * KILOBYTES_A_CONNECTION / 1024
    until(lambda: megabytes(pid) < before + KEPT_MEGABYTES)
    assert "store lost" not in tracker.log
