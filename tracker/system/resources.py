"""What a process asks of the system: the limit of open files, and to take back free memory. Each connection takes a
file, and the default limit of most systems is low."""

import asyncio
import ctypes
import gc
import resource
from collections.abc import Callable
from contextlib import suppress
from functools import cache

_MAX = 1_048_576
"""Requested if the hard limit is infinite; Linux grants no more by default."""
_RESERVED = 1536
"""Descriptors for the store, files, logs, and a full accept queue, which is accepted at once."""


def raise_limit() -> None:
    """Raises the soft limit as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    for wanted in (_MAX, 65_536, 10_240) if hard == resource.RLIM_INFINITY else (hard,):
        if wanted > soft:
            with suppress(OSError, ValueError):  # the system may have another, unpublished limit
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return


def max_connections() -> int:
    """Connections that the limit allows: the limit less a reserve, at least half."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = _MAX
    return max(limit - _RESERVED, limit // 2)


def release_memory() -> None:
    """Call after a flood: the allocator keeps the memory of the peak for the next one. Takes about a millisecond per
    free megabyte, mostly in another thread. Only glibc needs the call; elsewhere this only runs the garbage
    collector."""
    gc.collect()
    trim = _malloc_trim()
    if trim is not None:
        asyncio.get_running_loop().run_in_executor(None, trim, 0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # not glibc
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    found: Callable[[int], int] = trim
    return found
