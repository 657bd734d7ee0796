"""Whole trackers as child processes: ``python -m tracker serve`` as an operator runs it, and other commands."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any

from bencodepy import decode as bdecode

from loadtest.servers import ROOT

SECONDS = 60.0
ANY_PORTS = {"TRACKER_HTTP__LISTEN": "127.0.0.1:0", "TRACKER_ADMIN__LISTEN": "127.0.0.1:0"}
PATIENCE = {"TRACKER_REDIS__TIMEOUT_SECONDS": "8", "TRACKER_REDIS__CONNECT_TIMEOUT_SECONDS": "8"}
"""A machine that is busy with other tests may take longer than the defaults allow."""
Environment = Mapping[str, str]
starter: "type[subprocess.Popen[Any]]" = subprocess.Popen
"""What starts a program; tests have most trackers forked (tests/fork_server.py)."""


def environment(settings: Environment) -> dict[str, str]:
    """Ours without any TRACKER_ variable, and ``settings``.

    The system's certificates are left out: aiohttp reads them twice when it is imported, a tenth of what a start takes.
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TRACKER_")}
    ours |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "SSL_CERT_FILE": os.devnull}
    return {**ours, **settings}


def restore_signal_handlers() -> None:
    """Restores default signal handlers in a child before exec, also if the tests run in the background under nohup."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def run(directory: Path, *words: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """One command in ``directory``, to its end."""
    command, variables = [sys.executable, "-m", "tracker", *words], environment(settings)
    with starter(command, cwd=directory, env=variables, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            stdout, stderr = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


@dataclass
class RunningTracker:
    """A tracker that serves on a port of its own; ``banner`` is what it printed."""

    process: "subprocess.Popen[str]"
    log_file: Path
    banner: str

    @property
    def url(self) -> str:
        found = re.search(r"http://127\.0\.0\.1:\d+", self.banner)
        assert found, self.banner
        return found[0]

    @property
    def admin_url(self) -> str:
        found = re.search(r"^\s*admin\s+(http://[^/\s]+)/", self.banner, re.MULTILINE)
        assert found, self.banner
        return found[1]

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def announce(self, passkey: str = "", source: str = "127.0.0.1", **changes: str) -> dict[bytes, Any]:
        """What one announce is answered, decoded; values in ``changes`` are percent-encoded already."""
        query = {
            "info_hash": "%01" * 20,
            "peer_id": "-TR4000-abcdefghijkl",
            "port": "6881",
            "left": "0",
            "uploaded": "0",
            "downloaded": "0",
            "event": "started",
            **changes,
        }
        path = f"/{passkey}/announce" if passkey else "/announce"
        text = "&".join(f"{name}={value}" for name, value in query.items())
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=SECONDS, source_address=(source, 0))
        try:
            connection.request("GET", f"{path}?{text}")
            reply: dict[bytes, Any] = bdecode(connection.getresponse().read())
        finally:
            connection.close()
        return reply

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends a signal and waits for the end: the exit code."""
        self.send(number)
        return self.wait()

    def wait(self, seconds: float = 10.0) -> int:
        try:
            return self.process.wait(seconds)
        finally:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def spawn(directory: Path, log: IO[str], *words: str, **settings: str) -> "subprocess.Popen[str]":
    """One that is about to start in ``directory``."""
    return starter(
        [sys.executable, "-m", "tracker", "serve", *words],
        cwd=directory,
        env=environment({**ANY_PORTS, **PATIENCE, **settings}),
        stdout=PIPE,
        stderr=log,
        text=True,
    )


def start(directory: Path, *words: str, **settings: str) -> RunningTracker:
    """Starts one in ``directory`` and waits for its banner."""
    log_file = directory / "log"
    with log_file.open("a") as log:
        process = spawn(directory, log, *words, **settings)
    return started(process, log_file)


def started(process: "subprocess.Popen[str]", log_file: Path) -> RunningTracker:
    """A tracker whose banner was printed by ``process``."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.strip().startswith("stop "):
            break
    tracker = RunningTracker(process, log_file, "".join(lines))
    if process.poll() is not None or not lines:
        tracker.kill()
        raise AssertionError(f"the tracker did not start: {tracker.log}")
    return tracker
