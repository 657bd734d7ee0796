"""The memory use of the store, compared with its maxmemory."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from redis.exceptions import ResponseError

from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.client.server_info import bytes_in, read_info

NEARLY_FULL = 0.8
"""Above this share of maxmemory, statistics stop growing and leave the rest to peers."""
READ_SECONDS = 1.0
"""How long a reading is used."""


class Usage(NamedTuple):
    """Memory use in bytes. ``limit`` is 0 if there is none, or if INFO is forbidden."""

    used: int = 0
    limit: int = 0

    @property
    def share(self) -> float:
        """The used share of the limit; 0 without a limit."""
        return self.used / self.limit if self.limit else 0.0


async def read_usage(connection: Connection) -> Usage:
    """Reads the memory use from INFO. All values are 0 if INFO is forbidden. Raises StoreUnavailable."""
    try:
        info = await read_info(connection, "memory")
    except ResponseError:
        return Usage()
    return Usage(bytes_in(info, "used_memory"), bytes_in(info, "maxmemory"))


async def read_usages(servers: Sequence[Connection]) -> dict[Connection, Usage]:
    """The same of each server that answers. Raises StoreUnavailable if none does."""
    found: dict[Connection, Usage] = {}
    for server in servers:
        try:
            found[server] = await read_usage(server)
        except StoreUnavailable:
            if not found and server is servers[-1]:
                raise
    return found


class Memory:
    """Caches the memory use for READ_SECONDS. ``clock`` returns seconds."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._read_at: float | None = None
        self._usage = Usage()

    async def nearly_full(self) -> bool:
        """Returns whether memory use is above NEARLY_FULL. Raises StoreUnavailable."""
        now = self._clock()
        if self._read_at is None or now - self._read_at >= READ_SECONDS:
            self._usage, self._read_at = await read_usage(self._connection), now
        return self._usage.share > NEARLY_FULL
