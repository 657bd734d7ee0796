"""How the private store comes by its memory: mimalloc, and huge pages.

**mimalloc.** The wheel's server is built on the C library's allocator. A script call takes in and lets go of thousands of small
strings, and from glibc each gets the piece of its size that was given back last, which lies anywhere among the data. mimalloc
hands out the pieces of one page before it goes to the next, so that they lie together. docs/decisions/0019 has what that spares.

**Huge pages.** An announce reads a dozen places of a large memory, and most of them want an entry of the page table that no cache
holds. docs/decisions/0018 has what pages of 2 MB spare, and what became of the reasons why Redis goes without.
"""

import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_SINCE = (5, 8)
"""The Linux that, where a huge page is shared with a forked child, copies a small part of it at a write and not all."""


def server_environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the server inherits: nothing of ours, and its allocator unless somebody said what is to be loaded before all else."""
    passed = {name: value for name, value in inherited.items() if not name.startswith("TRACKER_")}
    library = _allocator()
    return passed if library is None else {"LD_PRELOAD": library, **passed}


def server_options(environment: Mapping[str, str], release: str = platform.release()) -> dict[str, str]:
    """Its configuration by name: it would forbid itself the huge pages that this allocator asks for."""
    version = re.match(r"(\d+)\.(\d+)", release)
    modern = version is not None and (int(version[1]), int(version[2])) >= _SINCE
    library = _allocator()
    ours = library is not None and environment.get("LD_PRELOAD") == library
    return {"disable-thp": "no"} if modern and ours else {}


def _allocator() -> str | None:
    """Its path; None where it is not installed, or in a folder whose name the loader would take for two."""
    if sys.platform != "linux":
        return None
    try:
        installed = distribution("cmeel-mimalloc")
    except PackageNotFoundError:
        return None
    library = Path(str(installed.locate_file("cmeel.prefix/lib/libmimalloc.so"))).absolute()
    return str(library) if library.is_file() and not set(" :") & set(str(library)) else None
