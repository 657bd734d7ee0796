"""Writes files atomically, readable by their owner only."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def private_file(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file that replaces ``path`` when the block succeeds. Raises OSError, also if ``path`` is not a
    regular file: a device or pipe would be replaced by a file."""
    _check_place(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(str(temporary), "xb", opener=open_private) as file:  # Path.open takes no opener
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(path)  # the temporary name means nothing to the user
        raise
    sync_directory(path.parent)


def _check_place(path: Path) -> None:
    """Refuses links too: /dev/stdout is one."""
    try:
        mode = path.lstat().st_mode
    except OSError:  # no such file; other errors appear when the file is opened
        return
    if not stat.S_ISREG(mode):
        raise FileExistsError(errno.EEXIST, "exists and is not a regular file", str(path))


def sync_directory(path: Path) -> None:
    """Makes new and renamed files in ``path`` survive a power failure, if the file system supports it."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
