"""Other programs as child processes, and waiting for them: there is nothing to wait on but what they show."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SECONDS = 20.0
STOP_SECONDS = 10.0


def until(condition: Callable[[], bool], seconds: float = SECONDS) -> float:
    """Asks until ``condition`` holds; the seconds it took. Fails when they are over."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, f"it did not happen within {seconds:g} s"
        time.sleep(0.05)
    return time.monotonic() - began


def free_port() -> int:
    """For programs that cannot choose one by themselves and say which."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
