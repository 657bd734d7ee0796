"""Other programs as child processes."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STOP_SECONDS = 10.0


@contextmanager
def running(command: Sequence[str], log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A program until the block is left; what it prints goes to ``log``."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
        process.terminate()
        process.wait(STOP_SECONDS)
    finally:
        process.kill()
        process.wait()
