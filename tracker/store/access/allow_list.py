"""Which clients may announce: the allow-list of peer id prefixes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tracker.bittorrent import HASH_LENGTH, PeerId
from tracker.errors import ClientError
from tracker.store.connection import Connection
from tracker.store.keys import Keys

STALE_SECONDS = 4.0


class Clients:
    """The allow-list as it stands in the store."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys

    async def allow(self, prefix: bytes, name: str = "") -> None:
        """Lets peers in whose id begins with ``prefix`` (1 to 20 bytes)."""
        check_prefix(prefix)
        await self._connection.command("HSET", self._keys.allowed_client(prefix), "name", name)
        await self._connection.command("SADD", self._keys.allowed_clients(), prefix)
        await self._changed(prefix)

    async def disallow(self, prefix: bytes) -> bool:
        """Takes a prefix off the list; False when it was not on it."""
        was = await self._connection.command("UNLINK", self._keys.allowed_client(prefix))
        listed = await self._connection.command("SREM", self._keys.allowed_clients(), prefix)
        await self._changed(prefix)
        return bool(was or listed)

    async def _changed(self, prefix: bytes) -> None:
        await self._connection.command("PUBLISH", self._keys.channel("whitelist"), prefix)

    async def page(self, cursor: int, count: int = 100) -> tuple[int, list[tuple[bytes, str]]]:
        """(next cursor, [(prefix, name)]); cursor 0 begins and ends."""
        after, prefixes = await self._connection.command(
            "SSCAN", self._keys.allowed_clients(), cursor, "COUNT", count
        )
        if not prefixes:
            return int(after), []
        names = await self._connection.pipeline(
            *(("HGET", self._keys.allowed_client(p), "name") for p in prefixes)
        )
        return int(after), [
            (p, name.decode("utf-8", "replace") if name else "")
            for p, name in zip(prefixes, names, strict=True)
        ]

    async def allowed_prefixes(self, peer_id: PeerId) -> list[bytes]:
        """Those of the 20 prefixes of ``peer_id`` on the list. The hash alone counts, as a site may have written it."""
        prefixes = [peer_id[:length] for length in range(1, HASH_LENGTH + 1)]
        keys = [self._keys.allowed_client(prefix) for prefix in prefixes]
        if not await self._connection.command("EXISTS", *keys):  # an invented peer id costs no more than this
            return []
        there = await self._connection.pipeline(*(("EXISTS", key) for key in keys))
        return [prefix for prefix, exists in zip(prefixes, there, strict=True) if exists == 1]


def check_prefix(prefix: bytes) -> None:
    """Raises ClientError for what no peer id can begin with."""
    if not 1 <= len(prefix) <= HASH_LENGTH:
        raise ClientError("a peer id prefix is 1 to 20 characters")


@dataclass(frozen=True, slots=True)
class _Memory:
    """Prefixes that are on the list, their lengths, and peer ids none of whose prefixes is."""

    allowed: set[bytes] = field(default_factory=set)
    lengths: set[int] = field(default_factory=set)
    denied: set[bytes] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.allowed) + len(self.denied)


class AllowList:
    """The allow-list as one process remembers it: never longer than 4 s, or until somebody publishes a change.

    What it remembers of those who are let in is their prefix, so one peer's asking serves all with the same program.
    ``clock`` gives seconds and never goes back. At most about ``most_remembered`` prefixes and peer ids are known at a time.
    """

    def __init__(self, clients: Clients, clock: Callable[[], float], most_remembered: int = 10_000) -> None:
        self._clients = clients
        self._clock = clock
        self._most_remembered = most_remembered
        self._memory = _Memory()
        self._since = clock()

    @property
    def remembered(self) -> int:
        """How many prefixes and peer ids it knows about."""
        return len(self._memory)

    def clear(self) -> None:
        self._memory = _Memory()
        self._since = self._clock()

    def known(self, peer_id: PeerId) -> bool | None:
        """What it would say without asking; ``None`` when it has to ask."""
        if self._clock() - self._since >= STALE_SECONDS or len(self._memory) >= self._most_remembered:
            self.clear()
        memory = self._memory
        for length in memory.lengths:
            if peer_id[:length] in memory.allowed:
                return True
        return False if peer_id in memory.denied else None

    async def allows(self, peer_id: PeerId) -> bool:
        """Raises StoreAway when it does not know and cannot ask."""
        known = self.known(peer_id)
        if known is None:
            memory = self._memory  # into the one that was current when we asked: a change clears it
            prefixes = await self._clients.allowed_prefixes(peer_id)
            known = bool(prefixes)
            memory.allowed.update(prefixes)
            memory.lengths.update(map(len, prefixes))
            if not known:
                memory.denied.add(peer_id)
        return known
