"""Trackers started as operators start them, their store, and the processes of both."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis

from loadtest import trackers
from loadtest.servers import Server, free_port, start_valkey
from loadtest.trackers import RunningTracker

INTERVAL_SECONDS = 2
REAP_SECONDS = 10.0
"""The timeout of every announce, with the interval above."""
SETTINGS = {
    "TRACKER_ANNOUNCE__INTERVAL_SECONDS": str(INTERVAL_SECONDS),
    "TRACKER_ANNOUNCE__MIN_INTERVAL_SECONDS": "0",
    "TRACKER_ANNOUNCE__INTERVAL_JITTER": "0",
    "TRACKER_REAPER__INTERVAL_SECONDS": f"{REAP_SECONDS:g}",
    "TRACKER_CHANGES__MAX_ENTRIES": "100000",
}
"""All others are defaults. The change feed shows which joins and stops were applied."""
PREFIX = "t:"
ServerOptions = tuple[str, ...]


class ExperimentError(Exception):
    """The experiment failed, or its fault could not be injected."""


@dataclass(slots=True)
class TrackerProcess:
    """One tracker, and what is needed to restart it."""

    directory: Path
    port: int
    settings: dict[str, str]
    running: RunningTracker | None = None

    @property
    def pid(self) -> int:
        if self.running is None:
            raise ExperimentError("this tracker is not running")
        return self.running.process.pid

    def children(self, name: str = "") -> list[int]:
        """PIDs of its child processes whose command line contains ``name``."""
        found = []
        with suppress(OSError):
            for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
                with suppress(OSError):
                    if name in Path(f"/proc/{pid}/cmdline").read_text():
                        found.append(int(pid))
        return found

    def start(self) -> None:
        """Blocks until it serves; raises ExperimentError if it does not start."""
        try:
            self.running = trackers.start(self.directory, **self.settings)
        except AssertionError as error:
            raise ExperimentError(str(error)[-1000:]) from error

    def kill(self) -> None:
        """Sends SIGKILL, as the OOM killer does."""
        if self.running is not None:
            self.running.kill()

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")


@dataclass(slots=True)
class Environment:
    """``server`` is an external store; None: the first tracker's private store."""

    directory: Path
    trackers: list[TrackerProcess] = field(default_factory=list)
    server: Server | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """Additional settings of all trackers."""
    _cleanups: list[Callable[[], object]] = field(default_factory=list)

    @property
    def tracker(self) -> TrackerProcess:
        return self.trackers[0]

    @property
    def store_url(self) -> str:
        if self.server is not None:
            return self.server.url
        _, _, path = (self.data / "tracker.lock").read_text().partition("\n")
        return f"unix://{path}?db=0"

    @property
    def data(self) -> Path:
        """The data directory of the first tracker's private store."""
        return Path(self.tracker.settings["TRACKER_DATA__DIRECTORY"])

    @property
    def store_pid(self) -> int:
        """The PID of the store, external or private."""
        if self.server is not None:
            return self.server.pid
        found = self.tracker.children("valkey-server")
        if not found:
            raise ExperimentError("the private store is not running")
        return found[0]

    @contextmanager
    def store(self) -> Iterator["redis.Redis"]:
        """A client to the store."""
        with redis.Redis.from_url(self.store_url, socket_timeout=10.0) as client:
            yield client

    def start_server(self, *options: str) -> Server:
        """Starts an external store with an append-only file, for trackers started after it."""
        folder = self.directory / "store"
        folder.mkdir(exist_ok=True)
        self.server = start_valkey(folder, *options)
        return self.server

    def add_tracker(self, **settings: str) -> TrackerProcess:
        """Starts one more tracker; it serves when this returns."""
        folder = self.directory / f"tracker{len(self.trackers)}"
        folder.mkdir(exist_ok=True)
        port = free_port()
        where = {"TRACKER_HTTP__LISTEN": f"127.0.0.1:{port}", "TRACKER_DATA__DIRECTORY": str(folder / "data")}
        if self.server is not None:
            where["TRACKER_REDIS__URL"] = self.server.url
        timeouts = {"TRACKER_REDIS__TIMEOUT_SECONDS": "0.8", "TRACKER_REDIS__CONNECT_TIMEOUT_SECONDS": "0.5"}
        tracker = TrackerProcess(folder, port, {**SETTINGS, **timeouts, **where, **self.settings, **settings})
        tracker.start()
        self.trackers.append(tracker)
        return tracker

    def add_cleanup(self, cleanup: Callable[[], object]) -> None:
        """``cleanup`` is called after all processes have ended."""
        self._cleanups.append(cleanup)

    def kill_all(self) -> None:
        """Ends all processes, even suspended ones."""
        for tracker in self.trackers:
            with suppress(ExperimentError, OSError):
                for pid in tracker.children():  # a suspended process would not notice the end of its parent
                    os.kill(pid, signal.SIGCONT)
            tracker.kill()
        if self.server is not None and self.server.process is not None:
            with suppress(OSError):
                os.kill(self.server.pid, signal.SIGCONT)
            self.server.kill()
        for cleanup in reversed(self._cleanups):
            cleanup()


async def until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Polls until ``condition`` holds; returns the seconds it took. Raises ExperimentError after ``seconds``."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() > began + seconds:
            raise ExperimentError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(0.05)
    return time.monotonic() - began
