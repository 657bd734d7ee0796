"""What a drill is about: trackers as an operator runs them, their store, and the processes of both."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis

from bench.processes import free_port
from tests import trackers
from tests.servers import Server, start_valkey
from tests.trackers import RunningTracker

INTERVAL_SECONDS = 2
REAP_SECONDS = 10.0
"""How long a peer may be silent; with the interval above it is the timeout of every announce."""
SETTINGS = {
    "TRACKER_ANNOUNCE__INTERVAL_SECONDS": str(INTERVAL_SECONDS),
    "TRACKER_ANNOUNCE__MIN_INTERVAL_SECONDS": "0",
    "TRACKER_ANNOUNCE__INTERVAL_JITTER": "0",
    "TRACKER_REAPER__INTERVAL_SECONDS": f"{REAP_SECONDS:g}",
}
"""The rest is as an operator gets it."""
PREFIX = "t:"
ServerOptions = tuple[str, ...]


class DrillError(Exception):
    """The drill could not be held: what was to be shown was not tried."""


@dataclass(slots=True)
class Post:
    """One tracker and what it takes to start it again where it was."""

    directory: Path
    port: int
    settings: dict[str, str]
    running: RunningTracker | None = None

    @property
    def pid(self) -> int:
        if self.running is None:
            raise DrillError("this tracker does not run")
        return self.running.process.pid

    def children(self, name: str = "") -> list[int]:
        """Pids of its processes, those whose command line has ``name``."""
        found = []
        with suppress(OSError):
            for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
                with suppress(OSError):
                    if name in Path(f"/proc/{pid}/cmdline").read_text():
                        found.append(int(pid))
        return found

    def start(self) -> None:
        """Blocks until it serves; raises DrillError when it does not start."""
        try:
            self.running = trackers.start(self.directory, **self.settings)
        except AssertionError as error:
            raise DrillError(str(error)[-1000:]) from error

    def kill(self) -> None:
        """Without a word, as the system does when memory is short."""
        if self.running is not None:
            self.running.kill()

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")


@dataclass(slots=True)
class Scene:
    """``server`` is a store of our own, where the trackers were not to bring theirs."""

    directory: Path
    posts: list[Post] = field(default_factory=list)
    server: Server | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """Of all trackers, besides those above and those a drill asks for."""
    _ends: list[Callable[[], object]] = field(default_factory=list)

    @property
    def post(self) -> Post:
        return self.posts[0]

    @property
    def store_url(self) -> str:
        if self.server is not None:
            return self.server.url
        _, _, path = (self.data / "tracker.lock").read_text().partition("\n")
        return f"unix://{path}?db=0"

    @property
    def data(self) -> Path:
        """The data directory of the first tracker's private store."""
        return Path(self.post.settings["TRACKER_DATA__DIRECTORY"])

    @property
    def store_pid(self) -> int:
        """Of the store, whosever it is."""
        if self.server is not None:
            return self.server.pid
        found = self.post.children("valkey-server")
        if not found:
            raise DrillError("the private store does not run")
        return found[0]

    @contextmanager
    def store(self) -> Iterator["redis.Redis"]:
        """A client to the store."""
        with redis.Redis.from_url(self.store_url, socket_timeout=10.0) as client:
            yield client

    def start_server(self, *options: str) -> Server:
        """A store of our own, with its append-only file, for the trackers that are started after it."""
        folder = self.directory / "store"
        folder.mkdir(exist_ok=True)
        self.server = start_valkey(folder, *options)
        return self.server

    def add_tracker(self, **settings: str) -> Post:
        """One more tracker, which serves when this returns."""
        folder = self.directory / f"tracker{len(self.posts)}"
        folder.mkdir(exist_ok=True)
        port = free_port()
        where = {
            "TRACKER_HTTP__LISTEN": f"127.0.0.1:{port}",
            "TRACKER_DATA__DIRECTORY": str(folder / "data"),
        }
        if self.server is not None:
            where["TRACKER_REDIS__URL"] = self.server.url
        patience = {"TRACKER_REDIS__TIMEOUT_SECONDS": "0.8", "TRACKER_REDIS__CONNECT_TIMEOUT_SECONDS": "0.5"}
        post = Post(folder, port, {**SETTINGS, **patience, **where, **self.settings, **settings})
        post.start()
        self.posts.append(post)
        return post

    def at_the_end(self, undo: Callable[[], object]) -> None:
        """``undo`` is called when all processes have ended."""
        self._ends.append(undo)

    def strike_down(self) -> None:
        """Ends what still runs, whatever state it is in."""
        for post in self.posts:
            with suppress(DrillError, OSError):
                for pid in post.children():  # a stopped process would not hear of its parent's end
                    os.kill(pid, signal.SIGCONT)
            post.kill()
        if self.server is not None and self.server.process is not None:
            with suppress(OSError):
                os.kill(self.server.pid, signal.SIGCONT)
            self.server.kill()
        for undo in reversed(self._ends):
            undo()


async def until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Asks until ``condition`` holds: the seconds it took. Raises DrillError when they are over."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() > began + seconds:
            raise DrillError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(0.05)
    return time.monotonic() - began
