"""``tracker top``: one snapshot, and live in a terminal."""

import json
import os
import pty
import re
import sys
import time
from pathlib import Path

from loadtest import trackers
from tests.commands import Command

HASH = "ab" * 20


def test_one_snapshot_is_printed(tracker: Command) -> None:
    tracker("torrent", "add", HASH, "--name", "a\x1b[2J")
    text = tracker("top", "--once").stdout
    assert "announces\t0.0/s" in text and "a[2J" in text and "\x1b" not in text
    found = json.loads(tracker("top", "--json").stdout)
    assert found["torrents"] == 1 and found["top"][0]["info_hash"] == HASH
    assert set(found["rates"]) == set(found["series"]) and found["memory_bytes"] > 0
    tracker("top", "--sort", "size", code=2)


def test_it_runs_in_a_terminal_until_q(tracker: Command, tmp_path: Path) -> None:
    tracker("torrent", "add", HASH, "--name", "shown by name")
    settings = {name: value for name, value in os.environ.items() if name.startswith("TRACKER_")}
    ours, theirs = pty.openpty()
    shown = b""
    deadline = time.monotonic() + trackers.SECONDS
    with trackers.starter(
        [sys.executable, "-m", "tracker", "top"],
        cwd=tmp_path,
        env=trackers.environment({**settings, "COLUMNS": "100", "LINES": "30", "TERM": "xterm"}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        for wanted, key in ((b"by seeders", b"s"), (b"by leechers", b"q")):
            while wanted not in shown and time.monotonic() < deadline:
                shown += os.read(ours, 65536)
            os.write(ours, key)
        while time.monotonic() < deadline:
            try:
                if not (part := os.read(ours, 65536)):
                    break
            except OSError:  # Linux raises this when the other end is closed
                break
            shown += part
        assert process.wait(trackers.SECONDS) == 0, shown
    os.close(ours)
    text = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown)
    assert b"shown by name" in text and b"announces" in text and b"Traceback" not in text


def test_it_does_not_start_the_private_store(tmp_path: Path) -> None:
    """A private store started by top would prevent the start of a tracker."""
    done = trackers.run(tmp_path, "top", "--once")
    assert done.returncode == 0 and "announces\t0.0/s" in done.stdout
