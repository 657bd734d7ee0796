"""The allow-list and the deny list of clients, by peer-id prefix, and what a process has read of them. Several shards
have copies of both, which a tracker reads that starts without the main prefix."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from tracker.bittorrent import HASH_LENGTH, PeerId
from tracker.errors import ClientError, Conflict
from tracker.names import clean_text
from tracker.store.sharding.shards import Shard, StorePart, scan

STALE_SECONDS = 4.0
"""How long a process uses what it has read of a list."""
MAX_PREFIXES = 1000
"""Prefixes of the deny list. Each process keeps them in memory, and compares each announce with all of them."""
MAX_REASON_LENGTH = 200


class _List(StorePart):
    """Prefixes, each with a text: the name of an allowed client, or why a client is denied."""

    async def _changed(self, prefix: bytes) -> None:
        await self._connection.command("PUBLISH", self._keys.channel("whitelist"), prefix)

    @staticmethod
    def _pairs(prefixes: Iterable[bytes], texts: Iterable[object]) -> list[tuple[bytes, str]]:
        """A text of another type, which a site has written, is empty."""
        as_bytes = (text if isinstance(text, bytes) else b"" for text in texts)
        return [
            (prefix, clean_text(text.decode("utf-8", "replace")))
            for prefix, text in zip(prefixes, as_bytes, strict=True)
        ]


def check_prefix(prefix: bytes) -> None:
    """Raises ClientError if ``prefix`` is not 1 to 20 bytes long."""
    if not 1 <= len(prefix) <= HASH_LENGTH:
        raise ClientError("a peer id prefix is 1 to 20 characters")


class AllowList(_List):
    @property
    def is_unavailable(self) -> bool:
        return self._connection.unavailable

    async def add(self, prefix: bytes, name: str = "") -> None:
        """Allows peers whose id begins with ``prefix``. Raises ClientError if it is not 1 to 20 bytes long."""
        check_prefix(prefix)
        await self._connection.command("HSET", self._keys.allowed_client(prefix), "name", clean_text(name))
        await self._connection.command("SADD", self._keys.allowed_clients(), prefix)
        await self._changed(prefix)

    async def remove(self, prefix: bytes) -> bool:
        """Removes a prefix from the list. False if it was not on it."""
        existed = await self._connection.command("UNLINK", self._keys.allowed_client(prefix))
        listed = await self._connection.command("SREM", self._keys.allowed_clients(), prefix)
        await self._changed(prefix)
        return bool(existed or listed)

    async def name(self, prefix: bytes) -> str | None:
        """The name of an allowed prefix; None if it is not allowed."""
        found = await self._connection.command("HGET", self._keys.allowed_client(prefix), "name")
        return None if found is None else clean_text(found.decode("utf-8", "replace"))

    async def page(self, cursor: int, count: int = 100) -> tuple[int, list[tuple[bytes, str]]]:
        """Returns (next cursor, about ``count`` pairs (prefix, name)). Cursor 0 begins and ends the walk. A prefix
        whose hash a site deleted is left out."""
        after, prefixes = await self._connection.command("SSCAN", self._keys.allowed_clients(), cursor, "COUNT", count)
        hashes = [self._keys.allowed_client(prefix) for prefix in prefixes]
        asked = [("EXISTS", key) for key in hashes] + [("HGET", key, "name") for key in hashes]
        found = await self._connection.pipeline(*asked) if asked else []
        pairs = self._pairs(prefixes, found[len(hashes) :])
        return int(after), [pair for pair, exists in zip(pairs, found, strict=False) if exists == 1]

    async def allowed_prefixes(self, peer_id: PeerId) -> list[bytes]:
        """Returns the prefixes of ``peer_id`` that are allowed. The hash of a prefix is enough, as a site may write it
        directly. The call adds such a prefix to the list."""

        async def read(shard: Shard) -> list[bytes]:
            prefixes = [peer_id[:length] for length in range(1, HASH_LENGTH + 1)]
            keys = [shard.keys.allowed_client(prefix) for prefix in prefixes]
            if not await shard.connection.command("EXISTS", *keys):  # an unknown peer id costs one command only
                return []
            hashes = await shard.connection.pipeline(*(("EXISTS", key) for key in keys))
            found = [prefix for prefix, exists in zip(prefixes, hashes, strict=True) if exists == 1]
            if found and shard is self._shards.main:
                listed = shard.keys.allowed_clients()
                with suppress(ResponseError):  # such as of a full store: the next sweep adds them
                    if not all(await shard.connection.command("SMISMEMBER", listed, *found)):
                        await shard.connection.command("SADD", listed, *found)
            return found

        return await self._shards.main_or_copy(read)


MAX_REMEMBERED = 10_000
"""About how many prefixes and peer ids a process keeps."""


@dataclass(frozen=True, slots=True)
class _Cache:
    """Allowed prefixes, their lengths, and peer ids without an allowed prefix."""

    allowed: set[bytes] = field(default_factory=set)
    lengths: set[int] = field(default_factory=set)
    denied: set[bytes] = field(default_factory=set)


class AllowListCache:
    """A cache of the allow-list in one process. It lives for at most STALE_SECONDS, or until ``clear``. It stores the
    prefixes of allowed peers, so one lookup serves all peers with the same client. ``clock`` returns seconds and never
    goes back."""

    def __init__(self, allow_list: AllowList, clock: Callable[[], float]) -> None:
        self._allow_list = allow_list
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        self._cache = _Cache()
        self._since = self._clock()

    def known(self, peer_id: PeerId) -> bool | None:
        """Returns the cached answer of ``allows``. None if the store must be asked. While the store is unavailable,
        the cache does not age: of several shards, the others are served."""
        is_stale = self._clock() - self._since >= STALE_SECONDS and not self._allow_list.is_unavailable
        if is_stale or len(self._cache.allowed) + len(self._cache.denied) >= MAX_REMEMBERED:
            self.clear()
        cache = self._cache
        for length in cache.lengths:
            if peer_id[:length] in cache.allowed:
                return True
        return False if peer_id in cache.denied else None

    async def allows(self, peer_id: PeerId) -> bool:
        """Returns whether the peer's client is allowed. Raises StoreUnavailable if the cache has no answer."""
        known = self.known(peer_id)
        if known is None:
            # A change during the lookup replaces the cache: this answer must not get into the new one.
            cache = self._cache
            prefixes = await self._allow_list.allowed_prefixes(peer_id)
            known = bool(prefixes)
            cache.allowed.update(prefixes)
            cache.lengths.update(map(len, prefixes))
            if not known:
                cache.denied.add(peer_id)
        return known


class DenyList(_List):
    """The deny list in the store."""

    async def add(self, prefix: bytes, reason: str = "") -> None:
        """Refuses peers whose id begins with ``prefix``. Clients show ``reason``; without one, a default text. Raises
        ClientError if ``prefix`` is not 1 to 20 bytes long, Conflict if the list is full. The peers are not returned to
        others from now on, and are removed; in a shard that is unavailable, the sweep removes them."""
        check_prefix(prefix)
        key = self._keys.denied_clients()
        is_known, size = await self._connection.pipeline(("HEXISTS", key, prefix), ("HLEN", key))
        if not is_known and size >= MAX_PREFIXES:
            raise Conflict(f"the deny list is full: it has at most {MAX_PREFIXES} prefixes")
        await self._connection.command("HSET", key, prefix, clean_text(reason)[:MAX_REASON_LENGTH])
        entries = dict.fromkeys(self._shards, (f"client:{prefix.hex()}",))
        await self._shards.run(lambda shard: shard.scripts.begin_removal, entries)
        await self._changed(prefix)

    async def remove(self, prefix: bytes) -> bool:
        """Removes a prefix from the list. False if it was not on it. The peers are returned to others again."""
        existed = await self._connection.command("HDEL", self._keys.denied_clients(), prefix)
        entries = dict.fromkeys(self._shards, (f"client:{prefix.hex()}",))
        await self._shards.run(lambda shard: shard.scripts.end_removal, entries)
        await self._changed(prefix)
        return bool(existed)

    async def page(self, cursor: int, count: int = 100) -> tuple[int, list[tuple[bytes, str]]]:
        """Returns (next cursor, about ``count`` pairs (prefix, reason)). Cursor 0 begins and ends the walk. A small
        list comes in one page, whatever ``count`` is."""
        after, flat = await self._connection.command("HSCAN", self._keys.denied_clients(), cursor, "COUNT", count)
        return int(after), self._pairs(flat[::2], flat[1::2])

    async def all(self) -> dict[bytes, str]:
        """Returns the reasons by prefix: at most MAX_PREFIXES. A site may have written more, or invalid prefixes."""

        async def read(shard: Shard) -> dict[bytes, str]:
            found: dict[bytes, str] = {}
            async for flat in scan(shard.connection, ("HSCAN", shard.keys.denied_clients()), "COUNT", MAX_PREFIXES):
                pairs = self._pairs(flat[::2], flat[1::2])
                found.update(pair for pair in pairs if 1 <= len(pair[0]) <= HASH_LENGTH)
                if len(found) >= MAX_PREFIXES:
                    break
            return dict(list(found.items())[:MAX_PREFIXES])

        return await self._shards.main_or_copy(read)


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
