"""Trackers without their start: a process that has imported a tracker's modules forks for each program
``python -m tracker …``, which saves most of its CPU time.

It holds nothing but modules: no thread, no socket but the one it is asked through, no child, no signal handler. A fork
has the working directory, environment, arguments and standard streams it would have been started with, and becomes a
child of the process that asked: ``Forked`` is a ``subprocess.Popen``. What a start itself takes, imports or reads is
tested with real processes: fixture ``own_interpreter``.
"""

import ctypes
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from loadtest import trackers
from loadtest.servers import ROOT

# What `tracker serve` imports until it serves; tracker.__main__ is run, and so not imported.
MODULES = ("uvloop", "tracker.cli.main", "tracker.cli.commands.serve", "tracker.app.service", "tracker.admin.server")
READ_AT_THE_START = ("PYTHON", "LC_", "LANG", "SSL_", "MALLOC_")
"""Variables of these names are read before a program can set them, or while modules are imported."""
TRACKER = [sys.executable, "-m", "tracker"]
_USUAL = [True, None, None, None, -1, False, -1]
"""What Popen has by default of signals, groups, user, umask and session."""
_SET_CHILD_SUBREAPER = 36
_MESSAGE_BYTES = 200_000


class ForkServer:
    """Starts when it is first asked, and ends with this process at the latest."""

    def __init__(self) -> None:
        self.environment = trackers.environment({})
        self.process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def fork(self, words: list[str], directory: str, environment: dict[str, str], streams: list[int]) -> int:
        """Returns the pid of a new child that runs ``python -m words…``. ``streams``: its stdin, stdout and stderr."""
        message = json.dumps([words, directory, environment]).encode()
        with self._lock:
            if self.process is None:
                self._start()
            _adopt_orphans(True)
            try:
                socket.send_fds(self._control, [message], streams)
                pid = int(self._control.recv(_MESSAGE_BYTES))
                assert self._control.recv(_MESSAGE_BYTES) == b"forked"
            finally:
                _adopt_orphans(False)
        return pid

    def _start(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    @property
    def pids(self) -> set[int]:
        return {self.process.pid} if self.process else set()

    def stop(self) -> None:
        if self.process is not None:
            self._control.close()
            self.process.wait(trackers.SECONDS)


SERVER = ForkServer()


class Forked(subprocess.Popen[Any]):
    """A program ``python -m tracker …`` that is a fork where that makes no difference; any other one is started."""

    def _execute_child(self, args: list[str], executable: Any, *others: Any) -> None:
        preexec_fn, _, pass_fds, cwd, env, _, _, shell, *more = others
        streams, special = more[:6], preexec_fn or pass_fds or shell or more[6:] != _USUAL
        environment = dict(os.environ if env is None else env)
        if (
            special
            or list(args[:3]) != TRACKER
            or _read_at_the_start(environment) != _read_at_the_start(SERVER.environment)
        ):
            super()._execute_child(args, executable, *others)  # type: ignore[misc]  # private
            return
        ends = (streams[0], streams[3], streams[5])
        inherited = [ours if end == -1 else end for ours, end in enumerate(ends)]
        try:
            self.pid = SERVER.fork(list(args[2:]), str(Path(cwd or ".").absolute()), environment, inherited)
            self._child_created = True
        finally:
            self._close_pipe_fds(*streams)  # type: ignore[attr-defined]  # private


def _read_at_the_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_THE_START)}


def _adopt_orphans(yes: bool) -> None:
    """Whether a process whose parent ends becomes a child of this one."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()
    words, directory, environment = _fork_when_asked(control)
    control.close()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[0] = directory
    sys.argv = sys.argv[:1] + words[1:]
    sys.stdin = sys.__stdin__ = _reopen(sys.stdin)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _reopen(sys.stdout)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _reopen(sys.stderr)  # type: ignore[misc]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def _fork_when_asked(control: socket.socket) -> Any:
    """Returns in each new process what was asked for."""
    while True:
        message, streams, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 3)
        if not message:
            sys.exit()
        between = os.fork()
        if between:
            os.waitpid(between, 0)  # from now on its child is one of the process that asked
            control.send(b"forked")
            for stream in streams:
                os.close(stream)
        elif pid := os.fork():
            control.send(str(pid).encode())
            os._exit(0)
        else:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return json.loads(message)


def _reopen(stream: Any) -> Any:
    """The standard stream as Python opens it: by lines where it is a terminal."""
    again: Any = os.fdopen(stream.fileno(), stream.mode, encoding=stream.encoding, errors=stream.errors, closefd=False)
    again.reconfigure(line_buffering=stream.line_buffering or again.isatty() or stream.write_through)
    return again


if __name__ == "__main__":
    main()
