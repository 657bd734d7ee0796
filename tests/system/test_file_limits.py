"""As many connections as there are descriptors for."""

import json
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests import trackers

_ASKED = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, tuple(json.loads(sys.argv[1])))
from tracker.descriptors import raise_limit, room
raise_limit()
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE)[0], room()]))
"""


@pytest.mark.parametrize(
    ("limits", "then"),
    [((64, 64), [64, 32]), ((64, 4096), [4096, 2560]), ((4096, 4096), [4096, 2560])],
)
def test_takes_what_it_may_have_and_leaves_some_for_others(limits: tuple[int, int], then: list[int]) -> None:
    asked = [sys.executable, "-c", _ASKED, json.dumps(limits)]
    assert json.loads(subprocess.run(asked, capture_output=True, check=True).stdout) == then


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can limit another process")
def test_without_descriptors_those_inside_are_served_and_later_everybody(tmp_path: Path) -> None:
    tracker = trackers.start(tmp_path)
    try:
        pid, host = tracker.process.pid, tracker.url.removeprefix("http://")
        port = int(host.rpartition(":")[2])
        inside = HTTPConnection(host, timeout=trackers.SECONDS)
        with closing(inside), ExitStack() as stack:
            inside.connect()
            tracker.announce()
            few = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) + 10
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, few))
            for _ in range(40):
                with suppress(OSError):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            for _ in range(5):
                inside.request("GET", "/health")
                assert inside.getresponse().read() == b"alive\n"
        for _ in range(100):  # until the places of those who have left are free
            try:
                assert b"peers" in tracker.announce()
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise AssertionError("nobody is let in any more")
        assert tracker.end() == 0
    finally:
        tracker.kill()
