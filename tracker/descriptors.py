"""File descriptors: every connection takes one, and systems give few of them to those who do not ask."""

import resource
from contextlib import suppress

_MOST = 1_048_576
"""Asked for where the system names no limit; Linux gives no more unless told to."""
_KEPT = 1536
"""Left for the store, files and logs, and for a whole queue of a listener, which is taken in at once."""


def raise_limit() -> None:
    """Asks for as many as this process may have, and takes what it gets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    for wanted in (_MOST, 65_536, 10_240) if hard == resource.RLIM_INFINITY else (hard,):
        if wanted > soft:
            with suppress(OSError, ValueError):  # a system may have a limit of its own that it tells nobody
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return


def room() -> int:
    """Connections that there are descriptors for: nearly all of many, half of a few."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = _MOST
    return max(limit - _KEPT, limit // 2)
