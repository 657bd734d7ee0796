"""Runs the web processes of one tracker on the same sockets, and replaces each one that ends.

The parent opens the sockets and passes copies of them to each process, with the settings, through a private socket
pair. So no secret is in a command line or an environment.

On the same pair the parent sends a status message every second (why the tracker is not ready) and changed settings.
The process sends its telemetry. End of file means that the other side has ended.
"""

import asyncio
import json
import os
import pickle
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from tracker.errors import StartupError
from tracker.runtime.telemetry import Histogram, Snapshot, merged
from tracker.settings.model import PREFIX, Settings, values_of
from tracker.store.client.url import Address
from tracker.system import logs
from tracker.system.child_process import ChildProcess, start_child_process
from tracker.system.datagrams import DatagramSocket
from tracker.system.event_loop import running
from tracker.system.listeners import Listener
from tracker.system.logger import Logger

START_SECONDS = 30.0
"""Maximum time from the start of a process until it serves."""
STOP_SECONDS = 8.0
"""Maximum time for answering requests in flight when the tracker stops."""
STATUS_SECONDS = 1.0
MAX_UNANSWERED = 60
"""A process that leaves more status messages than this unanswered is ended and replaced."""
_MIN_PAUSE = 0.5
_MAX_PAUSE = 10.0
_MAX_SOCKETS = 253
"""The most that Linux passes at once."""
_LENGTH = struct.Struct(">I")
_MAX_LINE = 1_000_000
MODULE = "tracker.app.web_process"

log = Logger("tracker")


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Sent to a web process once. ``url`` is the store's; ``addresses`` and ``udp`` are those of the sockets; ``nodes``
    those of the store's cluster."""

    settings: Settings
    url: str
    secret: bytes
    addresses: tuple[str, ...]
    udp: tuple[str, ...] = ()
    nodes: tuple[Address, ...] = ()


def send_config(pair: socket.socket, config: WorkerConfig, sockets: Sequence[socket.socket]) -> None:
    """Blocks until the process has received ``config`` and ``sockets``."""
    body = pickle.dumps(config)
    socket.send_fds(pair, [_LENGTH.pack(len(body))], [each.fileno() for each in sockets])
    pair.sendall(body)


def receive_config(pair: socket.socket) -> tuple[WorkerConfig, list[socket.socket]]:
    """Blocks until the parent has sent both; raises EOFError if it ends first."""
    head, descriptors, _, _ = socket.recv_fds(pair, _LENGTH.size, _MAX_SOCKETS)
    if len(head) < _LENGTH.size:
        raise EOFError("the tracker ended first")
    (missing,) = _LENGTH.unpack(head)
    body = bytearray()
    while missing > len(body):
        part = pair.recv(missing - len(body))
        if not part:
            raise EOFError("the tracker ended first")
        body += part
    config: WorkerConfig = pickle.loads(bytes(body))  # noqa: S301  # from our parent, through a pair only it holds
    return config, [socket.socket(fileno=descriptor) for descriptor in descriptors]


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return json.dumps(asdict(snapshot)).encode() + b"\n"


def decode_snapshot(line: bytes) -> Snapshot:
    """Raises ValueError, TypeError or KeyError if ``line`` does not come from encode_snapshot."""
    row = json.loads(line)
    histograms = {name: Histogram(**histogram) for name, histogram in row["histograms"].items()}
    return Snapshot(dict(row["counts"]), histograms, dict(row["gauges"]))


@dataclass(eq=False)
class WebProcess:
    """One web process, as the parent sees it."""

    child: ChildProcess
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    """The number of the process: a replacement gets the same UDP sockets."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    serving: asyncio.Event = field(default_factory=asyncio.Event)
    unanswered: int = 0
    """Status messages since its last reply: counted, not timed, so a stalled parent does not kill its children."""

    async def listen(self) -> None:
        """Receives the process's telemetry until the process ends."""
        with suppress(OSError, ValueError):
            while line := await self.reader.readline():
                self.unanswered = 0
                with suppress(ValueError, TypeError, KeyError):
                    self.snapshot = decode_snapshot(line)
                self.serving.set()

    def apply_settings(self, settings: Settings) -> None:
        self._send(values_of(settings))

    def notify(self, problems: Sequence[str]) -> None:
        """Sends a status message, unless too much is waiting because the process does not read."""
        self.unanswered += 1
        if self.writer.transport.get_write_buffer_size() < _MAX_LINE:
            self._send(list(problems))

    def _send(self, message: Any) -> None:
        if not self.writer.is_closing():  # the process has ended; uvloop would raise RuntimeError
            self.writer.write(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Closes the pipes of a process that has ended."""
        self.child.transport.close()
        self.writer.close()


class WebProcessPool:
    """Starts, monitors and replaces web processes. ``problems`` returns why the tracker is not ready.
    ``max_unanswered`` and ``module``, the module that a process runs, apply from the next check or start."""

    def __init__(
        self,
        config: WorkerConfig,
        listeners: Sequence[Listener],
        problems: Callable[[], Sequence[str]],
        datagrams: Sequence[Sequence[DatagramSocket]] = (),
    ) -> None:
        self.max_unanswered = MAX_UNANSWERED
        self.module = MODULE
        self._config = config
        self._sockets = [listener.socket for listener in listeners]
        self._datagrams = [[each.socket for each in mine] for mine in datagrams]
        self._stop_seconds = STOP_SECONDS + config.settings.http.stop_delay_seconds
        self._problems = problems
        self._running: set[WebProcess] = set()
        self._ended = Snapshot()
        self._stopping = asyncio.Event()

    @property
    def alive(self) -> int:
        """The number of processes that serve."""
        return sum(process.serving.is_set() for process in self._running)

    @property
    def pids(self) -> list[int]:
        return sorted(process.child.pid for process in self._running)

    def snapshot(self) -> Snapshot:
        """The sums over all processes, including the counts of those that have ended."""
        return merged([self._ended, *(process.snapshot for process in self._running)])

    async def start(self, number: int = 0) -> WebProcess:
        """Starts process ``number``, from 0. Raises StartupError if it ends at once or the system cannot start it."""
        config = self._config
        process = await self._spawn(config, number)
        self._running.add(process)
        if self._config is not config:  # settings changed meanwhile
            process.apply_settings(self._config.settings)
        return process

    async def _spawn(self, config: WorkerConfig, number: int) -> WebProcess:
        sockets = self._sockets + (self._datagrams[number] if self._datagrams else [])
        ours, theirs = socket.socketpair()
        try:
            # -P: imports nothing from the working directory, which others may be able to write to.
            command = (sys.executable, "-P", "-m", self.module, str(theirs.fileno()))
            child = await start_child_process(
                command, logs.write_rendered, inherit=theirs.fileno(), environment=_environment()
            )
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise StartupError(f"cannot start a web process: {error}") from error
            raise
        finally:
            theirs.close()
        try:
            await asyncio.get_running_loop().run_in_executor(None, send_config, ours, config, sockets)
            reader, writer = await asyncio.open_connection(sock=ours, limit=_MAX_LINE)
        except BaseException as error:
            ours.close()
            await child.stop(0)
            # OSError: it ended before it had received the configuration. ValueError: the tracker stops meanwhile, and
            # has closed the sockets to send.
            if isinstance(error, OSError | ValueError):
                raise StartupError(f"a web process {await child.describe_end()}") from error
            raise
        return WebProcess(child, reader, writer, number)

    async def keep(self, process: WebProcess) -> None:
        """Receives a process's telemetry and replaces it whenever it ends, while the others keep serving; returns when
        the tracker stops."""
        pause = _MIN_PAUSE
        while True:
            await process.listen()
            await process.child.ended.wait()
            self._running.remove(process)
            last = Snapshot(process.snapshot.counts, process.snapshot.histograms)
            self._ended = merged([self._ended, last])
            if not self._stopping.is_set():
                log.error("web process ended", pid=process.child.pid, how=process.child.ending)
            process.close()
            pause = _MIN_PAUSE if process.serving.is_set() else min(2 * pause, _MAX_PAUSE)
            replacement = None
            while replacement is None:
                if not self._stopping.is_set():
                    await asyncio.sleep(pause)
                if self._stopping.is_set():
                    return
                try:
                    replacement = await self.start(process.number)
                except StartupError as error:
                    if not self._stopping.is_set():
                        log.error("cannot restart a web process", why=str(error))
                    pause = min(2 * pause, _MAX_PAUSE)
            process = replacement

    def apply_settings(self, settings: Settings) -> None:
        """Sends changed settings to all processes; those started later get them too."""
        self._config = replace(self._config, settings=settings)
        for process in self._running:
            process.apply_settings(settings)

    async def run(self) -> None:
        """Runs until cancelled: sends a status message every second, and ends processes that do not respond."""
        while True:
            problems = self._problems()
            for process in list(self._running):
                process.notify(problems)
                if process.unanswered > self.max_unanswered and not process.child.ended.is_set():
                    log.error("web process not responding; restarting it", pid=process.child.pid)
                    await process.child.stop(0)
            await asyncio.sleep(STATUS_SECONDS)

    async def stop(self) -> None:
        """Ends all processes after they have answered requests in flight. Their last telemetry is still received."""
        self._stopping.set()
        # Nothing would accept a connection to the parent's copies once the processes have closed theirs.
        for sock in chain(self._sockets, *self._datagrams):
            sock.close()
        await asyncio.gather(*(process.child.stop(self._stop_seconds) for process in list(self._running)))

    def close(self) -> None:
        """Closes the pipes of ended processes that ``keep`` has not closed, because it was cancelled."""
        for process in self._running:
            process.close()


@asynccontextmanager
async def open_web_processes(
    config: WorkerConfig,
    listeners: Sequence[Listener],
    problems: Callable[[], Sequence[str]],
    datagrams: Sequence[Sequence[DatagramSocket]] = (),
) -> AsyncIterator[WebProcessPool]:
    """Yields once all processes serve, and stops them gracefully on exit. Raises StartupError if one cannot start."""
    pool = WebProcessPool(config, listeners, problems, datagrams)
    try:
        processes = [await pool.start(number) for number in range(config.settings.http.workers)]
        async with running(pool.run, *(partial(pool.keep, process) for process in processes)):
            for process in processes:
                await _until_serving(process)
            yield pool
            await pool.stop()
    finally:
        await pool.stop()
        pool.close()


async def _until_serving(process: WebProcess) -> None:
    try:
        async with asyncio.timeout(START_SECONDS):
            while not process.serving.is_set():
                if process.child.ended.is_set():
                    raise StartupError(f"a web process {await process.child.describe_end()}")
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise StartupError(f"a web process did not serve within {START_SECONDS:.0f} s") from None


def _environment() -> dict[str, str]:
    """The environment of a web process: PYTHONPATH with this package, and no settings. WorkerConfig has them all."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    folders = [str(Path(__file__).parents[2]), *kept.get("PYTHONPATH", "").split(os.pathsep)]
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
