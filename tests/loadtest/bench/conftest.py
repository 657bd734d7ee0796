"""A server for tests of the load generators."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.bench import processes
from loadtest.servers import free_port


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a server that answers every request."""
    port = free_port()
    command = [sys.executable, "-m", "loadtest.bench.baseline", "--bare", "--port", str(port)]
    with processes.running("bare", command, tmp_path) as pid:
        processes.wait_until_listening(pid, port)
        yield port
