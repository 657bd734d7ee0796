"""How the private store comes by its memory: its C library's allocator, and huge pages.

**Thread cache.** The wheel's server is built on the C library's allocator, and a script call takes in and lets go of thousands of small
strings at once: more than glibc's per-thread cache holds by default (7 of a size), which made malloc and free a quarter of
the server's time. With room for a whole batch an announce costs it a fifth to a quarter less. What is in that cache is never
given back: at most 37 MB, reached after hours (4,096 of each of 32 sizes, up to the answer to an announce; with those up to
1 kB it was no faster, and up to 138 MB).

**Huge pages.** An announce reads a dozen places of a large memory, and most of them want an entry of the page table that no cache
holds. docs/decisions/0018 has what pages of 2 MB spare, and what became of the reasons why Redis goes without.
"""

import os
import platform
import re
from collections.abc import Mapping

_CACHE = "glibc.malloc.tcache_count=4096:glibc.malloc.tcache_max=512"
_HUGE = "glibc.malloc.hugetlb=1"
"""Known to glibc since 2.35; an older one takes no notice."""
_SINCE = (5, 8)
"""The Linux that, where a huge page is shared with a forked child, copies a small part of it at a write and not all."""


def server_environment(
    inherited: Mapping[str, str] = os.environ, release: str = platform.release()
) -> dict[str, str]:
    """What the server inherits: nothing of ours, and settings for its allocator unless somebody chose some."""
    version = re.match(r"(\d+)\.(\d+)", release) if platform.system() == "Linux" else None
    modern = version is not None and (int(version[1]), int(version[2])) >= _SINCE
    passed = {name: value for name, value in inherited.items() if not name.startswith("TRACKER_")}
    if not modern:
        return {"GLIBC_TUNABLES": _CACHE, **passed}
    # Up to 2.36 at least glibc does not end the text in which it looks for `[madvise]`: whether it finds it depends on what lay there
    # on the stack. Where functions are bound as they are first called that is rubbish in every second process, else zeros.
    return {"GLIBC_TUNABLES": f"{_CACHE}:{_HUGE}", "LD_BIND_NOW": "1", **passed}


def server_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Its configuration by name: it would forbid itself huge pages that its allocator asks for."""
    return {"disable-thp": "no"} if _HUGE in environment["GLIBC_TUNABLES"] else {}
