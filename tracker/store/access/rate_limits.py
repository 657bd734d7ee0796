"""Rate limits across processes: adds up what the processes of all hosts have counted, and returns the sources over a
limit. State is bounded: at most MAX_SOURCES count in a minute, and at most MAX_STATES hold at a time."""

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Part, in_parts

WINDOW_SECONDS = 60
HOLD_SECONDS = 120
"""How long a state holds after the last excess."""
MAX_SOURCES = 20_000
MAX_STATES = 4096
_MAX_FIELDS = 500


class Hit(NamedTuple):
    """``number`` requests more; ``subject`` as core/rate_limits.py writes it."""

    limit: str
    subject: str
    number: int


class RateLimitState(NamedTuple):
    """``stage`` (1 to 3, see core/rate_limits.py) holds ``until`` (epoch s)."""

    stage: int
    limit: str
    subject: str
    until: float


class RateLimitStore(Part):
    """The rate limits of one prefix. ``clock`` returns epoch seconds."""

    async def count_hits(self, hits: Sequence[Hit], limits: Mapping[str, int]) -> list[RateLimitState]:
        """Adds hits up and returns all states that hold now. ``limits`` is how many hits each limit allows in a minute.
        Raises StoreUnavailable; the hits are lost then."""
        argv: list[Argument] = [int(self._clock()), WINDOW_SECONDS, HOLD_SECONDS, MAX_SOURCES, MAX_STATES]
        for hit in hits:
            argv += (f"{hit.limit} {hit.subject}", hit.number, limits[hit.limit])
        listed = await self._scripts.count_hits(argv)
        pairs = zip(map(_read, listed[::2]), listed[1::2], strict=True)
        return [RateLimitState(*read, float(until)) for read, until in pairs if read is not None]

    async def subject_count(self) -> int:
        """The number of sources over a limit."""
        return int(await self._connection.command("ZCARD", self._keys.limits()))

    async def entries(self, networks: Sequence[bytes]) -> dict[bytes, int]:
        """How many entries in swarms each network (packed IPv4 address, or /64) has. Raises StoreUnavailable."""
        found: dict[bytes, int] = {}
        for several in in_parts(networks, _MAX_FIELDS):
            counts = await self._connection.command("HMGET", self._keys.addresses(), *several)
            found |= {
                net: int(count)
                for net, count in zip(several, counts, strict=True)
                if count and count.isdigit() and len(count) < 16  # ignores values of a site
            }
        return dict.fromkeys(networks, 0) | found


@lru_cache(MAX_STATES)
def _read(member: bytes) -> tuple[int, str, str] | None:
    """Cached: most states of one second held in the one before."""
    stage, _, rest = member.decode("utf-8", "replace").partition(" ")
    limit, _, subject = rest.partition(" ")
    return (int(stage), limit, subject) if stage in ("1", "2", "3") else None


async def shared_secret(connection: Connection, keys: Keys, new: bytes | None = None) -> bytes:
    """Returns the 32 bytes that key the hash of the clients' ``key``. If the store has none, ``new`` ones, else random
    ones."""
    key = keys.secret()
    known = await connection.command("GET", key)
    if known is None:
        await connection.command("SET", key, secrets.token_bytes(32) if new is None else new, "NX")
        known = await connection.command("GET", key)
    return bytes(known)
