"""A data directory on a file system that is really full: a small tmpfs in a mount namespace of the tracker's."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.trackers import RunningTracker
from tests.waiting import until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="needs root, to mount"),
]
MEGABYTES = 48


@pytest.fixture
def tracker(tmp_path: Path) -> Iterator[RunningTracker]:
    """Its first process becomes the tracker, so its files are those below /proc/PID/root."""
    (tmp_path / "data").mkdir()
    mount = f'mount -t tmpfs -o size={MEGABYTES}m tmpfs data && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, "-", sys.executable, "-m", "tracker", "serve"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=trackers.environment({**trackers.ANY_PORTS, **trackers.PATIENCE}),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    started = trackers.started(process, tmp_path / "log")
    yield started
    started.kill()


def reader(url: str, path: str, token: str = "") -> Callable[[], tuple[int, str]]:
    def read() -> tuple[int, str]:
        connection = HTTPConnection(url.removeprefix("http://"), timeout=trackers.SECONDS)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    return read


def test_a_full_disk_is_named_within_a_minute_and_forgotten_when_there_is_room(
    tracker: RunningTracker, tmp_path: Path
) -> None:
    """In /ready, the log, and the metric of the alert StoreRefusesWrites, which fires at once."""
    pid = tracker.process.pid
    enter = ["nsenter", "--target", str(pid), "--mount", f"--wdns={tmp_path}"]
    made = subprocess.run(
        [*enter, sys.executable, "-m", "tracker", "token", "create", "t", "--role", "read"],
        env=trackers.environment({}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    token = next(word for word in made.stdout.split() if word.startswith("swk_"))
    ready = reader(tracker.url, "/ready")
    metrics = reader(tracker.admin_url, "/metrics", token)
    until(lambda: ready()[0] == 200)
    assert tracker.announce()[b"complete"] == 1
    filler = Path(f"/proc/{pid}/root{tmp_path}/data/filler")
    with filler.open("wb", buffering=0) as file:
        with pytest.raises(OSError, match="No space left"):  # noqa: PT012  # each write may be the one
            while True:
                file.write(bytes(65536))

    def is_refused() -> bool:
        tracker.announce(port="6882", peer_id="-TR4000-abcdefghijkx")
        return "store refuses writes: disk full" in ready()[1]

    until(is_refused, seconds=60)
    assert ready()[0] == 503
    assert "\ntracker_store_refuses_writes 1.0\n" in metrics()[1]
    assert "the store refuses writes" in tracker.log and "disk full" in tracker.log
    filler.unlink()
    until(lambda: ready()[0] == 200, seconds=60)
    assert "\ntracker_store_refuses_writes 0.0\n" in metrics()[1]
    assert b"failure reason" not in tracker.announce(port="6883", peer_id="-TR4000-abcdefghijky")
