"""The directory that the private store's data lies in: who may read it, and whose it is."""

import asyncio
import fcntl
import os
import shutil
import stat
import time
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from tracker.errors import StartupError

FILES = "appendonlydir"
"""Where in it the server keeps its data."""
NEW_FILES = f"{FILES}.new"
"""Where a restore makes the data ready that will be put there."""
MANIFEST = "appendonly.aof.manifest"
"""The file that names the others; a restore writes it last."""
WAIT_SECONDS = 15.0
"""How long a predecessor that is still going may take."""


class DataDirectory:
    """Two lock files and a mode. See tracker/valkey.py for what each lock is for.

    The locks are the kernel's (flock), so they end with their holders and never have to be cleared away.
    """

    def __init__(self, path: Path, log: FilteringBoundLogger) -> None:
        self.path = path.absolute()
        self._log = log
        self._lock: int | None = None

    @property
    def locked(self) -> bool:
        """Whether it is ours."""
        return self._lock is not None

    async def claim(self) -> None:
        """Make the directory and take it. Raises StartupError when it cannot be used or is in use."""
        if self._lock is not None:
            return
        self._prepare()
        # A holder that has died leaves the lock to its children for a moment, which are dying too.
        self._lock = await self._acquire("tracker.lock", wait_for_the_living=False)
        self._write(f"{os.getpid()}\n".encode())

    def publish_socket(self, path: Path) -> None:
        """Tell other processes of this user where the server listens."""
        self._write(f"{os.getpid()}\n".encode() + os.fsencode(path))

    def published_socket(self) -> Path | None:
        """Where the server of whoever holds the directory listens, or held it last."""
        try:
            _, _, name = (self.path / "tracker.lock").read_bytes().partition(b"\n")
        except OSError:
            return None
        return Path(os.fsdecode(name)) if name else None

    async def lock_for_server(self) -> int:
        """A locked descriptor for the server to inherit; waits for the last server to be gone."""
        return await self._acquire("server.lock", wait_for_the_living=True)

    def finish_restore(self) -> None:
        """Put in its place what a restore had made ready when it was cut off, instead of beginning with nothing.

        Only for who holds both locks. What was never to take effect is removed.
        """
        new, files = self.path / NEW_FILES, self.path / FILES
        try:
            if (new / MANIFEST).exists() and not files.exists():
                new.rename(files)
                self._log.warning("finished a restore that was interrupted", directory=str(self.path))
            elif new.exists():
                shutil.rmtree(new)
        except OSError as error:
            raise self._unusable(error) from error

    def appended_bytes(self) -> int:
        """What the server has written since it last rewrote its append-only file: a start runs it command by command."""
        try:
            return sum(path.stat().st_size for path in (self.path / FILES).glob("*.incr.aof"))
        except OSError:  # gone between the list and the look
            return 0

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _write(self, text: bytes) -> None:
        assert self._lock is not None, "not claimed"
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, text, 0)
        except OSError as error:
            raise self._unusable(error) from error

    def _prepare(self) -> None:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = stat.S_IMODE(self.path.stat().st_mode)
            if mode & 0o077:
                self._close_to_others(mode)
        except OSError as error:
            raise self._unusable(error) from error

    def _close_to_others(self, mode: int) -> None:
        """Only a directory of our own: closing one that holds other things could break what uses them."""
        if any(self.path.iterdir()) and not (self.path / "tracker.lock").exists():
            self._log.warning(
                "data directory is open to other users", directory=str(self.path), mode=f"{mode:o}"
            )
        else:
            self.path.chmod(0o700)

    async def _acquire(self, name: str, *, wait_for_the_living: bool) -> int:
        try:
            lock = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            while not self._try_lock(lock):
                pid = _written_pid(lock)
                if time.monotonic() > deadline or not (wait_for_the_living or _is_gone(pid)):
                    raise self._in_use(name, pid)
                await asyncio.sleep(0.05)
        except BaseException:
            os.close(lock)
            raise
        return lock

    def _try_lock(self, lock: int) -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._unusable(error) from error
        return True

    def _in_use(self, name: str, pid: int | None) -> StartupError:
        if name == "server.lock":
            return StartupError(
                f"data directory {self.path} is in use by the store of a tracker that ended "
                f"(still there after {WAIT_SECONDS:.0f} s)"
            )
        return StartupError(
            f"data directory {self.path} is in use by another tracker (pid {pid or 'unknown'}): stop that one, "
            "or choose another directory with TRACKER_DATA__DIRECTORY"
        )

    def _unusable(self, error: OSError) -> StartupError:
        return StartupError(f"cannot use data directory {self.path}: {error.strerror or error}")


def _written_pid(lock: int) -> int | None:
    text = os.pread(lock, 20, 0).split(b"\n")[0]
    return int(text) if text.isdigit() else None


def _is_gone(pid: int | None) -> bool:
    """Whether that process has ended; one that cannot be seen (None) has not."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
