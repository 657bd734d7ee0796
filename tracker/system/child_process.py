"""A child process that never outlives the tracker, and whose log is heard.

On Linux the kernel sees to the first: the child asks for SIGTERM at its parent's death, then becomes
the program wanted, so no process is added. The kernel means the *thread* that started it: start children
from the main thread, whose end is the process's. Elsewhere a small supervisor stays between the two
and reads a pipe that closes when the tracker is gone.

A child has a session of its own, so a Ctrl-C in the terminal reaches the tracker only, which stops its
children when it no longer needs them. SIGHUP means nothing to it: settings are the tracker's affair. What it writes comes through a pipe: no file that grows, and its
last words are at hand.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

# Both run under `python -I -S -c`, before anything of ours is imported; their arguments are the
# descriptor that the program is to inherit, the tracker's pid, and the program's command line.
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
def wait_for_the_tracker_to_go():
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
threading.Thread(target=wait_for_the_tracker_to_go, daemon=True).start()
status = running[0].wait()
os._exit(status if status >= 0 else 128 - status)
"""
HAS_PARENT_DEATH_SIGNAL = sys.platform == "linux"


class Child(asyncio.SubprocessProtocol):
    """The running process: passes its lines on, keeps the last, knows when it ended."""

    transport: asyncio.SubprocessTransport

    def __init__(self, hear: Callable[[str], None], lifeline: int | None) -> None:
        self.ended = asyncio.Event()
        self._hear = hear
        self._lifeline = lifeline
        self._silent = asyncio.Event()
        self._unfinished = b""
        self._lines: deque[str] = deque(maxlen=3)

    @property
    def pid(self) -> int:
        """Of the process; where it is supervised, of its supervisor."""
        return self.transport.get_pid()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # which of the bases it is depends on the loop

    def pipe_data_received(self, _fd: int, data: bytes) -> None:
        *lines, rest = (self._unfinished + data).split(b"\n")
        self._unfinished = rest[:8192]
        for line in lines:
            if text := line.decode(errors="replace").strip():
                self._lines.append(text)
                self._hear(text)

    def process_exited(self) -> None:
        self.ended.set()

    def connection_lost(self, _error: Exception | None) -> None:
        self._silent.set()

    async def last_words(self) -> str:
        """How it ended, with the end of its log, in one line. Only for one that has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):  # a grandchild may hold the pipe open
                await self._silent.wait()
        return f"ended with {self.ending}, saying: {' / '.join(self._lines) or 'nothing'}"

    @property
    def ending(self) -> str:
        """The signal or status it ended with."""
        status = self.transport.get_returncode()
        return f"signal {-status}" if status is not None and status < 0 else f"status {status}"

    async def stop(self, seconds: float) -> None:
        """SIGTERM, and SIGKILL when that is not obeyed in time or we are cancelled."""
        try:
            if not self.ended.is_set():
                with suppress(ProcessLookupError):
                    self.transport.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.ended.wait()
        finally:
            self._kill()
        await self.ended.wait()
        self.transport.close()

    def _kill(self) -> None:
        if not self.ended.is_set():
            # The whole session: where there is a supervisor, it and what it supervises.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None


async def start_child(
    command: Sequence[str],
    hear: Callable[[str], None],
    *,
    inherit: int,
    environment: Mapping[str, str] | None = None,
    supervised: bool = not HAS_PARENT_DEATH_SIGNAL,
) -> Child:
    """Run ``command`` (an absolute path and its arguments), with files private to the owner.

    ``hear`` gets each line it writes; ``inherit`` is a descriptor it keeps open while it lives; ``environment`` is
    its own, this process's where it is not given. Raises
    OSError when no process can be started; a program that cannot be run ends at once and says so.
    """
    code = _SUPERVISE if supervised else _DIE_WITH_PARENT
    ears, lifeline = os.pipe() if supervised else (None, None)
    try:
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: Child(hear, lifeline),
            *(sys.executable, "-I", "-S", "-c", code, str(inherit), str(os.getpid()), *command),
            stdin=subprocess.DEVNULL if ears is None else ears,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(inherit,),
            start_new_session=True,
            env=environment,
        )
    except BaseException:
        if lifeline is not None:
            os.close(lifeline)
        raise
    finally:
        if ears is not None:
            os.close(ears)
    return child
