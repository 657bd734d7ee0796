"""The private store's data directory: its locks and its permissions."""

import asyncio
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tracker.errors import StartupError
from tracker.system.logger import Logger

FILES = "appendonlydir"
"""The server's data, inside the directory."""
NEW_FILES = f"{FILES}.new"
"""Data prepared by a restore, which replaces FILES."""
STAGING = "restore.tmp"
"""Where a restore loads and changes the data."""
MANIFEST = "appendonly.aof.manifest"
"""The list of the other files. A restore writes it last."""
WAIT_SECONDS = 15.0
"""How long to wait for an earlier tracker or server that is still stopping."""


class DataDirectory:
    """Two lock files and the permissions. tracker/valkey/server.py explains each lock. The kernel releases the locks
    (flock) when their holder ends."""

    def __init__(self, path: Path, log: Logger) -> None:
        self.path = path.absolute()
        self._log = log
        self._lock: int | None = None

    @property
    def locked(self) -> bool:
        return self._lock is not None

    async def claim(self) -> None:
        """Creates and locks the directory. Raises StartupError if it is unusable or in use."""
        if self._lock is not None:
            return
        self._prepare()
        # The children of a dead holder keep the lock for a moment, until they end too.
        self._lock = await self._acquire("tracker.lock", wait_while_running=False)
        self._write(f"{os.getpid()}\n".encode())

    def publish_socket(self, path: Path) -> None:
        """Stores the server's socket path for other processes of this user."""
        self._write(f"{os.getpid()}\n".encode() + os.fsencode(path))

    def published_socket(self) -> Path | None:
        """The socket path of the server of the current or last holder."""
        try:
            _, _, name = (self.path / "tracker.lock").read_bytes().partition(b"\n")
        except OSError:
            return None
        return Path(os.fsdecode(name)) if name else None

    async def lock_for_server(self) -> int:
        """A locked descriptor for the server to inherit; waits for the end of the last server."""
        return await self._acquire("server.lock", wait_while_running=True)

    def finish_restore(self) -> None:
        """Completes an interrupted restore whose data is ready, and removes incomplete data. Call it with both locks
        held."""
        new, files = self.path / NEW_FILES, self.path / FILES
        with usable(self.path):
            if (self.path / STAGING).exists():
                shutil.rmtree(self.path / STAGING)
            if (new / MANIFEST).exists() and not files.exists():
                new.rename(files)
                self._log.warning("finished a restore that was interrupted", directory=str(self.path))
            elif new.exists():
                shutil.rmtree(new)

    def appended_bytes(self) -> int:
        """Bytes that the server wrote since the last rewrite of its append-only file; a start runs them as commands."""
        try:
            return sum(path.stat().st_size for path in (self.path / FILES).glob("*.incr.aof"))
        except OSError:  # removed between glob and stat
            return 0

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _write(self, text: bytes) -> None:
        assert self._lock is not None, "not claimed"
        with usable(self.path):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, text, 0)

    def _prepare(self) -> None:
        with usable(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = stat.S_IMODE(self.path.stat().st_mode)
            if not mode & 0o077:
                return
            # A directory that is neither empty nor of a tracker may belong to another program.
            if any(self.path.iterdir()) and not (self.path / "tracker.lock").exists():
                self._log.warning("data directory is open to other users", directory=str(self.path), mode=f"{mode:o}")
            else:
                self.path.chmod(0o700)

    async def _acquire(self, name: str, *, wait_while_running: bool) -> int:
        with usable(self.path):
            lock = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            with usable(self.path):
                while not try_lock(lock):
                    text = os.pread(lock, 20, 0).split(b"\n")[0]
                    pid = int(text) if text.isdigit() else None
                    if time.monotonic() > deadline or not (wait_while_running or _is_gone(pid)):
                        raise self._in_use(name, pid)
                    await asyncio.sleep(0.05)
        except BaseException:
            os.close(lock)
            raise
        return lock

    def _in_use(self, name: str, pid: int | None) -> StartupError:
        if name == "server.lock":
            return StartupError(
                f"data directory {self.path} is in use by the private store of a stopped tracker "
                f"(still running after {WAIT_SECONDS:.0f} s)"
            )
        return StartupError(
            f"data directory {self.path} is in use by another tracker (pid {pid or 'unknown'}): stop it, "
            "or choose another directory with TRACKER_DATA__DIRECTORY"
        )


@contextmanager
def usable(directory: Path) -> Iterator[None]:
    """Raises StartupError for an OSError in the block."""
    try:
        yield
    except OSError as error:
        reason = "not a directory" if isinstance(error, FileExistsError) else error.strerror or error
        raise StartupError(f"cannot use data directory {directory}: {reason}") from error


def try_lock(lock: int) -> bool:
    """Whether this process has got the lock. Raises OSError on a file system without such locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_gone(pid: int | None) -> bool:
    """Whether the process has ended; False for an unknown pid."""
    try:
        with suppress(PermissionError):
            os.kill(os.getpid() if pid is None else pid, 0)
    except ProcessLookupError:
        return True
    return False
