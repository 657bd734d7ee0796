"""The limit of open files. Each connection takes one, and the default limit of most systems is low."""

import resource
from contextlib import suppress

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
