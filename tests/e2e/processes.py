"""Runs other programs as child processes."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STOP_SECONDS = 10.0


@contextmanager
def running(command: Sequence[str], log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Runs a program until the block ends. Its output goes to ``log``."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
        process.terminate()
        process.wait(STOP_SECONDS)
    finally:
        process.kill()
        process.wait()
