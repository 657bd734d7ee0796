"""What the generators of load are tried on."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import processes


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Of a server that answers everything."""
    port = processes.free_port()
    command = [sys.executable, "-m", "bench.baseline", "--bare", "--port", str(port)]
    with processes.running("bare", command, tmp_path) as pid:
        processes.wait_until_listening(pid, port)
        yield port
