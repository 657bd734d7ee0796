"""Files that only their owner can read, and that are there whole or not at all."""

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
    """A file that takes the place of ``path`` when the block ends well; meanwhile its ``name`` is another one.

    Raises OSError, also where something else than a file is there: a device or a pipe would be one no more.
    """
    _check_place(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(str(temporary), "xb", opener=_for_us_alone) as file:  # a Path's open takes no opener
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(path)  # nobody knows the other name
        raise
    sync_directory(path.parent)


def _check_place(path: Path) -> None:
    """A link is no file either: /dev/stdout is one."""
    try:
        mode = path.lstat().st_mode
    except OSError:  # nothing is there, or opening the file says what is wrong
        return
    if not stat.S_ISREG(mode):
        raise FileExistsError(errno.EEXIST, "is there already, and is no plain file", str(path))


def sync_directory(path: Path) -> None:
    """Files that were made or renamed there are so after a power failure, too; where the file system can say that."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
