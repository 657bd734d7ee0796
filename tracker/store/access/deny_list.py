"""The deny list of clients, by peer-id prefix."""

import asyncio
from collections.abc import Awaitable, Callable

from tracker.bittorrent import HASH_LENGTH, PeerId
from tracker.errors import Conflict
from tracker.names import clean_text
from tracker.store.access.allow_list import check_prefix
from tracker.store.sharding.shards import Part, Shard

MAX_PREFIXES = 1000
"""Prefixes of the list. Each process keeps them in memory, and compares each announce with all of them."""
MAX_REASON_LENGTH = 200


class DenyList(Part):
    """The deny list in the store. ``begin_removal`` has the peers of a
    client removed, ``end_removal`` lets them stay."""

    def __init__(
        self,
        shard: Shard,
        begin_removal: Callable[[bytes], Awaitable[None]],
        end_removal: Callable[[bytes], Awaitable[None]],
    ) -> None:
        super().__init__(shard)
        self._begin_removal = begin_removal
        self._end_removal = end_removal

    async def deny(self, prefix: bytes, reason: str = "") -> None:
        """Refuses peers whose id begins with ``prefix``. Clients show ``reason``; without one, a default text.

        Raises ClientError if ``prefix`` is not 1 to 20 bytes long, Conflict if the list is full.
        """
        check_prefix(prefix)
        key = self._keys.denied_clients()
        is_known, size = await self._connection.pipeline(("HEXISTS", key, prefix), ("HLEN", key))
        if not is_known and size >= MAX_PREFIXES:
            raise Conflict(f"the deny list is full: it has at most {MAX_PREFIXES} prefixes")
        await self._connection.command("HSET", key, prefix, clean_text(reason)[:MAX_REASON_LENGTH])
        await self._begin_removal(prefix)
        await self._changed(prefix)

    async def undeny(self, prefix: bytes) -> bool:
        """Removes a prefix from the list. False if it was not on it."""
        existed = await self._connection.command("HDEL", self._keys.denied_clients(), prefix)
        await self._end_removal(prefix)
        await self._changed(prefix)
        return bool(existed)

    async def _changed(self, prefix: bytes) -> None:
        await self._connection.command("PUBLISH", self._keys.channel("whitelist"), prefix)

    async def page(self, cursor: int, count: int = 100) -> tuple[int, list[tuple[bytes, str]]]:
        """Returns (next cursor, about ``count`` pairs (prefix, reason)). Cursor 0 begins and ends the walk.

        A small list comes in one page, whatever ``count`` is.
        """
        after, flat = await self._connection.command(
            "HSCAN", self._keys.denied_clients(), cursor, "COUNT", count
        )
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return int(after), [
            (prefix, clean_text(reason.decode("utf-8", "replace"))) for prefix, reason in pairs
        ]

    async def all(self) -> dict[bytes, str]:
        """Returns the reasons by prefix: at most MAX_PREFIXES. A site may have written more, or invalid prefixes."""
        found: dict[bytes, str] = {}
        cursor, more = 0, True
        while more and len(found) < MAX_PREFIXES:
            cursor, page = await self.page(cursor, MAX_PREFIXES)
            found.update(pair for pair in page if 1 <= len(pair[0]) <= HASH_LENGTH)
            more = cursor != 0
        return dict(list(found.items())[:MAX_PREFIXES])


class DenyListCache:
    """The deny list as one process last read it. It answers without the store."""

    def __init__(self, deny_list: DenyList) -> None:
        self._deny_list = deny_list
        self._reasons: dict[bytes, str] = {}
        self._prefixes: tuple[bytes, ...] = ()
        self.changed = asyncio.Event()
        """Set when the list must be read again."""

    async def read(self) -> None:
        """Reads the list. Raises StoreUnavailable, and ResponseError for a key of another type."""
        self._reasons = await self._deny_list.all()
        self._prefixes = tuple(self._reasons)

    def denies(self, peer_id: PeerId) -> bool:
        return peer_id.startswith(self._prefixes)

    def reason(self, peer_id: PeerId) -> str:
        """The reason of the longest prefix of ``peer_id`` on the list; empty if it has none."""
        found = [prefix for prefix in self._prefixes if peer_id.startswith(prefix)]
        return self._reasons[max(found, key=len)][:MAX_REASON_LENGTH] if found else ""
