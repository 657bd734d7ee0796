"""A child process that ends with the tracker, and whose output the tracker reads.

On Linux the kernel ends it: the child requests SIGTERM for its parent's death, then executes the program. No process is
added. The kernel watches the *thread* that started the child, so start children from the main thread. On other systems
a small supervisor process stays between the two; it reads a pipe that closes when the tracker ends.

A child has its own session: Ctrl-C in a terminal reaches only the tracker, which then stops its children. The child
ignores SIGHUP, because only the tracker reloads settings. Its output comes through a pipe, so no log file grows, and
the last lines can be quoted in an error.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

# Both run under `python -I -S -c`, without the tracker's modules. Arguments: the descriptor that the program inherits,
# the tracker's pid, and the program's command line.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[2]):
    sys.exit("the tracker ended first")
os.umask(0o077)
try:
    os.execv(sys.argv[3], sys.argv[3:])
except OSError as error:
    sys.exit(f"cannot run {sys.argv[3]}: {error.strerror}")
"""
_SUPERVISE = """
import os, signal, subprocess, sys, threading
signal.signal(signal.SIGHUP, signal.SIG_IGN)
running = []
def end(*_):
    for child in running:
        child.terminate()
def wait_for_the_tracker_to_end():
    os.read(0, 1)
    end()
signal.signal(signal.SIGTERM, end)
os.umask(0o077)
inherited = int(sys.argv[1])
try:
    running.append(subprocess.Popen(sys.argv[3:], stdin=subprocess.DEVNULL, pass_fds=[inherited]))
except OSError as error:
    sys.exit(f"cannot run {sys.argv[3]}: {error.strerror}")
os.close(inherited)
threading.Thread(target=wait_for_the_tracker_to_end, daemon=True).start()
status = running[0].wait()
os._exit(status if status >= 0 else 128 - status)
"""
HAS_PARENT_DEATH_SIGNAL = sys.platform == "linux"


class ChildProcess(asyncio.SubprocessProtocol):
    """The running process. Passes each line of output on, keeps the last ones, and sets ``ended``."""

    transport: asyncio.SubprocessTransport

    def __init__(self, on_line: Callable[[str], None], parent_pipe: int | None) -> None:
        self.ended = asyncio.Event()
        self._on_line = on_line
        self._parent_pipe = parent_pipe
        self._output_closed = asyncio.Event()
        self._partial_line = b""
        self._lines: deque[str] = deque(maxlen=3)

    @property
    def pid(self) -> int:
        """The pid of the process, or of its supervisor."""
        return self.transport.get_pid()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # the base class depends on the loop

    def pipe_data_received(self, _fd: int, data: bytes) -> None:
        *lines, rest = (self._partial_line + data).split(b"\n")
        self._partial_line = rest[:8192]
        for line in lines:
            if text := line.decode(errors="replace").strip():
                self._lines.append(text)
                self._on_line(text)

    def process_exited(self) -> None:
        self.ended.set()

    def connection_lost(self, _error: Exception | None) -> None:
        self._output_closed.set()

    async def describe_end(self) -> str:
        """How it ended, and its last lines of output, as one line. Call it after the end only."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):  # a grandchild may hold the pipe open
                await self._output_closed.wait()
        return f"ended with {self.ending}, saying: {' / '.join(self._lines) or 'nothing'}"

    @property
    def ending(self) -> str:
        status = self.transport.get_returncode()
        return f"signal {-status}" if status is not None and status < 0 else f"status {status}"

    async def stop(self, seconds: float) -> None:
        """Sends SIGTERM; SIGKILL after ``seconds``, or when cancelled."""
        try:
            if not self.ended.is_set():
                with suppress(ProcessLookupError):
                    self.transport.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.ended.wait()
        finally:
            if not self.ended.is_set():
                # The whole session: the supervisor, if there is one, and the program.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            if self._parent_pipe is not None:
                os.close(self._parent_pipe)
                self._parent_pipe = None
        await self.ended.wait()
        self.transport.close()


async def start_child_process(
    command: Sequence[str],
    on_line: Callable[[str], None],
    *,
    inherit: int,
    environment: Mapping[str, str] | None = None,
    supervised: bool = not HAS_PARENT_DEATH_SIGNAL,
) -> ChildProcess:
    """Runs ``command`` (an absolute path and its arguments); the files it creates are readable by their owner only.
    ``on_line`` receives each line of output. ``inherit`` is a descriptor that the process keeps open. ``environment``
    defaults to this process's. Raises OSError if no process can be started. If the program cannot be executed, the
    process ends at once with an error line."""
    code = _SUPERVISE if supervised else _DIE_WITH_PARENT
    stdin_pipe, parent_pipe = os.pipe() if supervised else (None, None)
    try:
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: ChildProcess(on_line, parent_pipe),
            *(sys.executable, "-I", "-S", "-c", code, str(inherit), str(os.getpid()), *command),
            stdin=subprocess.DEVNULL if stdin_pipe is None else stdin_pipe,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(inherit,),
            start_new_session=True,
            env=environment,
        )
    except BaseException:
        if parent_pipe is not None:
            os.close(parent_pipe)
        raise
    finally:
        if stdin_pipe is not None:
            os.close(stdin_pipe)
    return child
