"""The web processes of one tracker: as many as are wanted, all on the same sockets, each started anew when it ends.

The parent opens the sockets and hands each process copies of them through a private pair of sockets, together with the
settings, so that no secret stands in a command line or an environment. On the same pair it says once a second why the
tracker is not ready, if it is not, and which settings have changed when some have; and hears the process's figures; its end tells either that the other is gone.
"""

import asyncio
import json
import os
import pickle
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from tracker import logs
from tracker.child import Child, start_child
from tracker.errors import StartupError
from tracker.listeners import Listener
from tracker.loops import running
from tracker.reloading import values_of
from tracker.settings import PREFIX, Settings
from tracker.telemetry import Histogram, Snapshot, merged

START_SECONDS = 30.0
"""How long a process may take until it serves."""
STOP_SECONDS = 8.0
"""How long one may take to answer what is in flight when the tracker stops."""
NEWS_SECONDS = 1.0
MOST_SILENT = 60
"""A process that has let so many of our news go by without any of its own hangs, and makes room for another."""
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
_LENGTH = struct.Struct(">I")
_LONGEST_LINE = 1_000_000
_MODULE = "tracker.web_process"

log = structlog.get_logger("tracker")


@dataclass(frozen=True, slots=True)
class Orders:
    """What a web process is told once. ``url`` is the store's, ``addresses`` what the sockets are bound to."""

    settings: Settings
    url: str
    secret: bytes
    addresses: tuple[str, ...]


def send_orders(pair: socket.socket, orders: Orders, sockets: Sequence[socket.socket]) -> None:
    """Blocks until the process at the other end has taken them."""
    body = pickle.dumps(orders)
    socket.send_fds(pair, [_LENGTH.pack(len(body))], [each.fileno() for each in sockets])
    pair.sendall(body)


def receive_orders(pair: socket.socket) -> tuple[Orders, list[socket.socket]]:
    """Blocks; raises EOFError when the parent is gone before it said anything."""
    head, descriptors, _, _ = socket.recv_fds(pair, _LENGTH.size, 64)
    if len(head) < _LENGTH.size:
        raise EOFError("the tracker ended first")
    (missing,) = _LENGTH.unpack(head)
    body = bytearray()
    while missing > len(body):
        part = pair.recv(missing - len(body))
        if not part:
            raise EOFError("the tracker ended first")
        body += part
    orders: Orders = pickle.loads(bytes(body))  # noqa: S301  # from our parent, through a pair only it holds
    return orders, [socket.socket(fileno=descriptor) for descriptor in descriptors]


def encode_news(news: Any) -> bytes:
    return json.dumps(news).encode() + b"\n"


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return encode_news(asdict(snapshot))


def decode_snapshot(line: bytes) -> Snapshot:
    """Raises ValueError, TypeError or KeyError for what encode_snapshot did not write."""
    row = json.loads(line)
    histograms = {name: Histogram(**histogram) for name, histogram in row["histograms"].items()}
    return Snapshot(dict(row["counts"]), histograms, dict(row["gauges"]))


class WebProcess:
    """One of them, from its start to its end."""

    def __init__(self, child: Child, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.child = child
        self.snapshot = Snapshot()
        self.serving = asyncio.Event()
        self.silent = 0
        """How many times it was told something since it was last heard: while this process stands still, nobody is late."""
        self._reader = reader
        self._writer = writer

    async def listen(self) -> None:
        """Hears its figures until it ends."""
        with suppress(OSError, ValueError):
            while line := await self._reader.readline():
                self.silent = 0
                with suppress(ValueError, TypeError, KeyError):
                    self.snapshot = decode_snapshot(line)
                self.serving.set()

    def change(self, values: Mapping[str, Any]) -> None:
        """``values`` are settings, as reloading.py takes them out."""
        self._writer.write(encode_news(dict(values)))

    def tell(self, problems: Sequence[str]) -> None:
        """A process that does not listen, because it hangs, is told nothing more."""
        self.silent += 1
        if self._writer.transport.get_write_buffer_size() < _LONGEST_LINE:
            self._writer.write(encode_news(list(problems)))

    async def stop(self, seconds: float) -> None:
        """It answers what is in flight; what else it has to say is still heard."""
        await self.child.stop(seconds)

    async def end_if_it_hangs(self) -> None:
        if self.silent > MOST_SILENT and not self.child.ended.is_set():
            log.error("a web process hangs", pid=self.child.pid)
            await self.child.stop(0)

    def close(self) -> None:
        """Lets go of one that has ended."""
        self.child.transport.close()
        self._writer.close()


class Workforce:
    """``problems`` says why the tracker is not ready."""

    def __init__(
        self, orders: Orders, listeners: Sequence[Listener], problems: Callable[[], Sequence[str]]
    ) -> None:
        self._orders = orders
        self._sockets = [listener.socket for listener in listeners]
        self._stop_seconds = STOP_SECONDS + orders.settings.http.stop_delay_seconds
        self._problems = problems
        self._running: set[WebProcess] = set()
        self._departed = Snapshot()
        self._stopping = asyncio.Event()

    @property
    def alive(self) -> int:
        """How many serve."""
        return sum(process.serving.is_set() for process in self._running)

    @property
    def pids(self) -> list[int]:
        return sorted(process.child.pid for process in self._running)

    def snapshot(self) -> Snapshot:
        """The figures of all of them, with what those that have ended had counted."""
        return merged([self._departed, *(process.snapshot for process in self._running)])

    async def start(self) -> WebProcess:
        """Starts one; raises StartupError when it ends at once, or the system has no room for it."""
        orders = self._orders
        process = await self._spawn(orders)
        self._running.add(process)
        if self._orders is not orders:  # settings changed meanwhile
            process.change(values_of(self._orders.settings))
        return process

    async def _spawn(self, orders: Orders) -> WebProcess:
        ours, theirs = socket.socketpair()
        try:
            # -P: no module out of the working directory, which may be one that others write into.
            command = (sys.executable, "-P", "-m", _MODULE, str(theirs.fileno()))
            child = await start_child(
                command, logs.pass_on, inherit=theirs.fileno(), environment=_environment()
            )
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise StartupError(f"cannot start a web process: {error}") from error
            raise
        finally:
            theirs.close()
        try:
            await asyncio.get_running_loop().run_in_executor(None, send_orders, ours, orders, self._sockets)
            reader, writer = await asyncio.open_connection(sock=ours, limit=_LONGEST_LINE)
        except BaseException as error:
            ours.close()
            await child.stop(0)
            if isinstance(error, OSError):  # it ended before it had taken them
                raise StartupError(f"a web process {await child.last_words()}") from error
            raise
        return WebProcess(child, reader, writer)

    async def keep(self, process: WebProcess) -> None:
        """Hears a process, and starts another whenever one has ended; returns when the tracker stops."""
        pause = _SHORTEST_PAUSE
        while True:
            await process.listen()
            await process.child.ended.wait()
            self._part_with(process)
            if not self._stopping.is_set():
                log.error("a web process ended", pid=process.child.pid, how=process.child.ending)
            process.close()
            if self._stopping.is_set():
                return
            pause = _SHORTEST_PAUSE if process.serving.is_set() else min(2 * pause, _LONGEST_PAUSE)
            replacement = await self._replacement(pause)
            if replacement is None:
                return
            process = replacement

    async def _replacement(self, pause: float) -> WebProcess | None:
        """Another one, as soon as one can be started: the others go on meanwhile. None when the tracker stops first."""
        while True:
            await asyncio.sleep(pause)
            if self._stopping.is_set():
                return None
            try:
                return await self.start()
            except StartupError as error:
                log.error("a web process cannot be started again", why=str(error))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _part_with(self, process: WebProcess) -> None:
        """What it counted stays counted."""
        if process in self._running:
            self._running.remove(process)
            last = Snapshot(process.snapshot.counts, process.snapshot.histograms)
            self._departed = merged([self._departed, last])

    def go_by(self, settings: Settings) -> None:
        """All of them, and those that will be started in the place of one."""
        self._orders = replace(self._orders, settings=settings)
        for process in self._running:
            process.change(values_of(settings))

    async def run(self) -> None:
        """Runs until cancelled: tells them every second how the tracker is, and ends those that hang."""
        while True:
            problems = self._problems()
            for process in list(self._running):
                process.tell(problems)
                await process.end_if_it_hangs()
            await asyncio.sleep(NEWS_SECONDS)

    async def stop(self) -> None:
        """Lets all of them answer what is in flight, and end."""
        self._stopping.set()
        # Whoever connected to ours would never be accepted once they have closed theirs.
        for sock in self._sockets:
            sock.close()
        await asyncio.gather(*(process.stop(self._stop_seconds) for process in list(self._running)))


@asynccontextmanager
async def open_workforce(
    orders: Orders, listeners: Sequence[Listener], problems: Callable[[], Sequence[str]]
) -> AsyncIterator[Workforce]:
    """Web processes, serving; leaving the block stops them gracefully. Raises StartupError when one cannot start."""
    force = Workforce(orders, listeners, problems)
    try:
        processes = [await force.start() for _ in range(orders.settings.http.workers)]
        async with running(force.run, *(partial(force.keep, process) for process in processes)):
            for process in processes:
                await _until_serving(process)
            yield force
            await force.stop()
    finally:
        await force.stop()


async def _until_serving(process: WebProcess) -> None:
    try:
        async with asyncio.timeout(START_SECONDS):
            while not process.serving.is_set():
                if process.child.ended.is_set():
                    raise StartupError(f"a web process {await process.child.last_words()}")
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise StartupError(f"a web process did not serve within {START_SECONDS:.0f} s") from None


def _environment() -> dict[str, str]:
    """Where it finds the package; no setting, for it is told all it needs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    folders = [str(Path(__file__).parents[1]), *kept.get("PYTHONPATH", "").split(os.pathsep)]
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
