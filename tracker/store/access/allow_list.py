"""The allow-list of clients, by peer-id prefix."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from tracker.bittorrent import HASH_LENGTH, PeerId
from tracker.errors import ClientError
from tracker.names import clean_text
from tracker.store.sharding.shards import Part

STALE_SECONDS = 4.0
"""How long a process uses its cache of the allow-list."""


class AllowList(Part):
    """The allow-list in the store."""

    @property
    def is_unavailable(self) -> bool:
        return self._connection.unavailable

    async def allow(self, prefix: bytes, name: str = "") -> None:
        """Allows peers whose id begins with ``prefix``. Raises ClientError if it is not 1 to 20 bytes long."""
        check_prefix(prefix)
        await self._connection.command("HSET", self._keys.allowed_client(prefix), "name", clean_text(name))
        await self._connection.command("SADD", self._keys.allowed_clients(), prefix)
        await self._changed(prefix)

    async def disallow(self, prefix: bytes) -> bool:
        """Removes a prefix from the list. False if it was not on it."""
        existed = await self._connection.command("UNLINK", self._keys.allowed_client(prefix))
        listed = await self._connection.command("SREM", self._keys.allowed_clients(), prefix)
        await self._changed(prefix)
        return bool(existed or listed)

    async def _changed(self, prefix: bytes) -> None:
        await self._connection.command("PUBLISH", self._keys.channel("whitelist"), prefix)

    async def name(self, prefix: bytes) -> str | None:
        """The name of an allowed prefix; None if it is not allowed."""
        found = await self._connection.command("HGET", self._keys.allowed_client(prefix), "name")
        return None if found is None else clean_text(found.decode("utf-8", "replace"))

    async def page(self, cursor: int, count: int = 100) -> tuple[int, list[tuple[bytes, str]]]:
        """Returns (next cursor, about ``count`` pairs (prefix, name)). Cursor 0 begins and ends the walk.

        A prefix whose hash a site deleted is left out.
        """
        after, prefixes = await self._connection.command(
            "SSCAN", self._keys.allowed_clients(), cursor, "COUNT", count
        )
        keys = [self._keys.allowed_client(prefix) for prefix in prefixes]
        hashes = await self._connection.pipeline(*(("EXISTS", key) for key in keys)) if keys else []
        names = await self._connection.pipeline(*(("HGET", key, "name") for key in keys)) if keys else []
        return int(after), [
            (prefix, clean_text(name.decode("utf-8", "replace")) if isinstance(name, bytes) else "")
            for prefix, exists, name in zip(prefixes, hashes, names, strict=True)
            if exists == 1
        ]

    async def allowed_prefixes(self, peer_id: PeerId) -> list[bytes]:
        """Returns the prefixes of ``peer_id`` that are allowed.

        The hash of a prefix is enough, as a site may write it directly. The call adds such a prefix to the list.
        """
        prefixes = [peer_id[:length] for length in range(1, HASH_LENGTH + 1)]
        keys = [self._keys.allowed_client(prefix) for prefix in prefixes]
        if not await self._connection.command("EXISTS", *keys):  # an unknown peer id costs one command only
            return []
        hashes = await self._connection.pipeline(*(("EXISTS", key) for key in keys))
        found = [prefix for prefix, exists in zip(prefixes, hashes, strict=True) if exists == 1]
        if found:
            await self._list(found)
        return found

    async def _list(self, prefixes: Sequence[bytes]) -> None:
        """Adds prefixes to the list. Ignores errors, such as a full store: the next sweep adds them."""
        listed = self._keys.allowed_clients()
        with suppress(ResponseError):
            if not all(await self._connection.command("SMISMEMBER", listed, *prefixes)):
                await self._connection.command("SADD", listed, *prefixes)


def check_prefix(prefix: bytes) -> None:
    """Raises ClientError if ``prefix`` is not 1 to 20 bytes long."""
    if not 1 <= len(prefix) <= HASH_LENGTH:
        raise ClientError("a peer id prefix is 1 to 20 characters")


@dataclass(frozen=True, slots=True)
class _Cache:
    """Allowed prefixes, their lengths, and peer ids without an allowed prefix."""

    allowed: set[bytes] = field(default_factory=set)
    lengths: set[int] = field(default_factory=set)
    denied: set[bytes] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.allowed) + len(self.denied)


class AllowListCache:
    """A cache of the allow-list in one process. It lives for at most STALE_SECONDS, or until ``clear``.

    It stores the prefixes of allowed peers, so one lookup serves all peers with the same client. ``clock`` returns
    seconds and never goes back. The cache holds about ``max_remembered`` prefixes and peer ids at most.
    """

    def __init__(
        self, allow_list: AllowList, clock: Callable[[], float], max_remembered: int = 10_000
    ) -> None:
        self._allow_list = allow_list
        self._clock = clock
        self._max_remembered = max_remembered
        self._cache = _Cache()
        self._since = clock()

    @property
    def remembered(self) -> int:
        """Number of prefixes and peer ids in the cache."""
        return len(self._cache)

    def clear(self) -> None:
        self._cache = _Cache()
        self._since = self._clock()

    def known(self, peer_id: PeerId) -> bool | None:
        """Returns the cached answer of ``allows``. None if the store must be asked. While the store is unavailable,
        the cache does not age: of several shards, the others are served."""
        is_stale = self._clock() - self._since >= STALE_SECONDS and not self._allow_list.is_unavailable
        if is_stale or len(self._cache) >= self._max_remembered:
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
            cache = (
                self._cache
            )  # a change during the lookup replaces the cache: this answer must not get into the new one
            prefixes = await self._allow_list.allowed_prefixes(peer_id)
            known = bool(prefixes)
            cache.allowed.update(prefixes)
            cache.lengths.update(map(len, prefixes))
            if not known:
                cache.denied.add(peer_id)
        return known
