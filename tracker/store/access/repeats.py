"""Requests with a key of the caller's, such as the API's Idempotency-Key: what was done for one is not done again.

A key is kept for a week as `t:once:<digest>`: a digest of the request, the rows that were applied, and the reply.
Scripts note a row in the step that applies it, so a request that was cut off can be repeated too.
"""

import hashlib
import re
import zlib

from tracker.errors import ClientError, Conflict
from tracker.store.sharding.shards import Part

KEPT_SECONDS = 7 * 86_400
KEY = "[!-~]{1,255}"
"""A regular expression for the caller's key."""


class Repeats(Part):
    """``begin`` comes before the request is applied, ``finish`` after it. Raises StoreUnavailable and RedisError."""

    async def begin(self, key: str, request: bytes) -> bytes | None:
        """The reply that this request got before; None if it has got none. Raises ClientError for an invalid key,
        Conflict for one that another request had."""
        if not re.fullmatch(KEY, key, re.ASCII):
            raise ClientError("an idempotency key is 1 to 255 printable characters of ASCII without spaces")
        name, digest = self._keys.once(once_of(key)), hashlib.sha256(request).digest()
        _, _, (known, reply) = await self._connection.pipeline(
            ("HSETNX", name, "request", digest),
            ("EXPIRE", name, KEPT_SECONDS, "NX"),
            ("HMGET", name, "request", "reply"),
        )
        if known != digest:
            raise Conflict("another request had this idempotency key within the last week; use a new one")
        return zlib.decompress(reply) if reply else None

    async def finish(self, key: str, reply: bytes) -> None:
        await self._connection.command("HSET", self._keys.once(once_of(key)), "reply", zlib.compress(reply))


def once_of(key: str) -> str:
    """The caller's key as scripts get it: its digest, for it may be a secret of the site."""
    return hashlib.sha256(key.encode()).hexdigest()
