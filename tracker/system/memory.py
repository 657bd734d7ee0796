"""Returns free memory to the system."""

import asyncio
import ctypes
import gc
from collections.abc import Callable
from functools import cache


def release_memory() -> None:
    """Call after a flood: the allocator keeps the memory of the peak for the next one.

    Takes about a millisecond per free megabyte, mostly in another thread. Only glibc needs the call; elsewhere this
    only runs the garbage collector.
    """
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
