"""The limit of open files, and the connections it allows."""

import json
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from loadtest import trackers
from tests.waiting import until

_ASKED = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, tuple(json.loads(sys.argv[1])))
from tracker.system.resources import max_connections, raise_limit
raise_limit()
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE)[0], max_connections()]))
"""


@pytest.mark.parametrize(
    ("limits", "then"), [((64, 64), [64, 32]), ((64, 4096), [4096, 2560]), ((4096, 4096), [4096, 2560])]
)
def test_the_file_limit_is_raised_and_some_files_are_reserved(limits: tuple[int, int], then: list[int]) -> None:
    asked = [sys.executable, "-c", _ASKED, json.dumps(limits)]
    assert json.loads(subprocess.run(asked, capture_output=True, check=True).stdout) == then


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can limit another process")
@pytest.mark.usefixtures("own_interpreter")
def test_without_descriptors_open_connections_are_served(tmp_path: Path) -> None:
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

        def is_answered() -> bool:
            with suppress(OSError):
                return b"peers" in tracker.announce()
            return False

        until(is_answered)  # closed connections free their descriptors
        assert tracker.end() == 0
    finally:
        tracker.kill()
