"""Torrents that take part in the DHT: their swarms, which of them to look up, and what lookups found.

A torrent takes part while it is registered, allowed, and its field ``private`` is 0. With ``all_torrents`` every
torrent takes part that is not known to be private, denied, disabled or pending, registered or not.
"""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from redis.exceptions import RedisError

from tracker.bittorrent import Endpoint, InfoHash
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.dht.participation import Participation
from tracker.store.schema.keys import Keys
from tracker.store.schema.lenient_numbers import ranked

MAX_ENDPOINTS = 250
"""Seeders and leechers each, from a random place of the swarm on."""
LOOK_UP_AGAIN_SECONDS = 6 * 3600
RESULT_SECONDS = 2 * LOOK_UP_AGAIN_SECONDS
"""How long a result counts in the score."""
GIVE_SECONDS = 1800
"""How long peers are handed out."""
PAGE = 200
"""Torrents read in one call: it takes less than a millisecond of the store."""
COUNTED_PAGES = 20
"""Pages that are read to count the torrents that take part."""
MAX_SAMPLE_PAGES = 50
"""Torrents read: all, if there are up to 10,000."""

_ANY_TIME = 2**53
"""Epoch seconds: before this time is always."""


class StoredSwarm(NamedTuple):
    """Endpoints of one address family."""

    seeds: tuple[Endpoint, ...]
    leechers: tuple[Endpoint, ...]


class ThinSwarm(NamedTuple):
    """A torrent to look up. The smallest comes first."""

    seeders: int
    looked_up: int
    """Epoch seconds; 0 for never."""
    info_hash: InfoHash


class DhtTorrents:
    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys

    async def swarm(self, info_hash: InfoHash, family: int, *, all_torrents: bool) -> StoredSwarm | None:
        """``None`` if the torrent does not take part. ``family`` is 4 or 6. Raises StoreUnavailable."""
        seed = random.getrandbits(31)
        found = await self._scripts.dht_swarm(
            [info_hash.hex(), family, int(all_torrents), MAX_ENDPOINTS, seed]
        )
        if not found:
            return None
        length = 6 if family == 4 else 18
        return StoredSwarm(_split(found[0], length), _split(found[1], length))

    async def no_longer_part(self, info_hashes: Sequence[InfoHash], *, all_torrents: bool) -> list[InfoHash]:
        """Returns the torrents among these that do not take part. Raises StoreUnavailable."""
        return [
            each
            for each in info_hashes
            if not await self._scripts.dht_swarm([each.hex(), 4, int(all_torrents), 0, 0])
        ]

    async def thin_page(self, rank: int, now: int, *, all_torrents: bool) -> tuple[int, list[ThinSwarm]]:
        """Reads a page of the register, in the order of seeders, the fewest first, from ``rank`` on. Returns how many
        torrents it has, and those of them that are due for a lookup. Raises StoreUnavailable."""
        return await self._page("seeders", rank, all_torrents=all_torrents, before=_due_before(now))

    async def claim(self, info_hash: InfoHash, now: int, *, all_torrents: bool) -> bool:
        """Whether the caller is to look the torrent up: it takes part, and no tracker has begun to look it up in the
        last 6 hours. Raises StoreUnavailable."""
        return bool(
            await self._scripts.dht_claim([info_hash.hex(), now, int(all_torrents), _due_before(now)])
        )

    async def save_result(
        self, info_hash: InfoHash, found: tuple[int, int] | None, now: int, *, all_torrents: bool
    ) -> bool:
        """``found``: seeders and peers; ``None`` if no node answered. Returns False, and stores nothing, where the
        torrent no longer takes part. Raises StoreUnavailable."""
        seeders, peers = ("", "") if found is None else map(str, found)
        argv: list[str | bytes | int | float] = [info_hash.hex(), now, int(all_torrents), seeders, peers]
        return bool(await self._scripts.dht_found(argv))

    async def give(
        self,
        info_hash: InfoHash,
        peers: Sequence[Endpoint],
        now: int,
        found_at: int,
        *,
        all_torrents: bool,
    ) -> bool:
        """Stores peers of one family, found at ``found_at`` (epoch s), for announces. Returns False where the torrent
        no longer takes part, or they are too old. Raises StoreUnavailable."""
        family = 4 if len(peers[0]) == 6 else 6
        packed, until = b"".join(peers), found_at + GIVE_SECONDS
        argv: list[str | bytes | int | float] = [
            info_hash.hex(),
            now,
            int(all_torrents),
            family,
            packed,
            until,
        ]
        return bool(await self._scripts.dht_give(argv))

    async def peers_found(self, info_hashes: Sequence[InfoHash], now: int) -> dict[InfoHash, int]:
        """The number of peers that the last lookup found, of torrents with a recent one. Raises StoreUnavailable."""
        fields = ("private", "dht_peers", "dht_at")
        rows = await self._connection.pipeline(
            *(("HMGET", self._keys.torrent(each), *fields) for each in info_hashes)
        )
        found = {}
        for info_hash, row in zip(info_hashes, rows, strict=True):
            if isinstance(row, RedisError) or not row or row[0] == b"1":
                continue
            peers, at = (
                int(text) if text and text.isdigit() and len(text) <= 15 else None for text in row[1:]
            )
            if peers is not None and at is not None and now - at <= RESULT_SECONDS:
                found[info_hash] = peers
        return found

    async def some_peers(self, family: int, count: int, *, all_torrents: bool) -> list[Endpoint]:
        """Peers of some swarms that take part, of a random page of the register. Raises StoreUnavailable."""
        total = int(await self._connection.command("ZCARD", self._keys.info_hashes()))
        rank = random.randrange(max(total - PAGE, 0) + 1)
        _, page = await self._page("info_hash", rank, all_torrents=all_torrents)
        found: list[Endpoint] = []
        for each in sorted(page, reverse=True)[:5]:
            swarm = await self.swarm(each.info_hash, family, all_torrents=all_torrents)
            found += (*swarm.seeds, *swarm.leechers) if swarm is not None else ()
        return random.sample(found, min(len(found), count))

    async def participation(self, *, all_torrents: bool) -> Participation:
        """How many torrents take part. Reads at most COUNTED_PAGES pages of the register, twice unless
        ``all_torrents``. Raises StoreUnavailable."""
        registered = int(await self._connection.command("ZCARD", self._keys.info_hashes()))
        pages = min(COUNTED_PAGES, -(-registered // PAGE))
        ranks = [page * max(PAGE, registered // COUNTED_PAGES) for page in range(pages)]
        looked_at, part = await self._pages(ranks, all_torrents=all_torrents)
        possible = part if all_torrents else (await self._pages(ranks, all_torrents=True))[1]
        # Torrents that come and go meanwhile could make it more than there are.
        unknown = max(len(possible) - len(part), 0)
        return Participation(max(registered, looked_at), looked_at, len(part), unknown)

    async def last_lookups(self, offset: int, count: int) -> list[tuple[str, int]]:
        """The ids of the torrents that were looked up, and when (epoch s), latest first. Raises StoreUnavailable."""
        key = self._keys.dht_lookups()
        return ranked(
            await self._connection.command("ZRANGE", key, offset, offset + count - 1, "REV", "WITHSCORES")
        )

    async def some_public(self, count: int, max_pages: int = MAX_SAMPLE_PAGES) -> tuple[list[InfoHash], int]:
        """Random torrents that are known to be public and take part, and how many there are. Reads at most so many
        pages of the register; of a larger one, the number is an estimate. Raises StoreUnavailable."""
        total = int(await self._connection.command("ZCARD", self._keys.info_hashes()))
        ranks = range(0, total, PAGE)
        read, found = await self._pages(random.sample(ranks, min(len(ranks), max_pages)), all_torrents=False)
        chosen = random.sample(found, min(len(found), count))
        return chosen, round(len(found) * max(total / (read or 1), 1))

    async def looked_up_count(self) -> int:
        """Torrents that were looked up. Raises StoreUnavailable."""
        return int(await self._connection.command("ZCARD", self._keys.dht_lookups()))

    async def _pages(self, ranks: Iterable[int], *, all_torrents: bool) -> tuple[int, list[InfoHash]]:
        """Reads pages of the register in the order of info hashes. Returns how many torrents they have, and those that
        take part."""
        read, found = 0, dict[InfoHash, None]()
        for rank in ranks:
            size, page = await self._page("info_hash", rank, all_torrents=all_torrents)
            read += size
            found |= {each.info_hash: None for each in page}
        return read, list(found)

    async def _page(
        self, order: str, rank: int, *, all_torrents: bool, before: int = _ANY_TIME
    ) -> tuple[int, list[ThinSwarm]]:
        """The size of a page, and its torrents that take part and were last looked up ``before`` (epoch s), or never.
        In the order of info hashes, every page is as good as a random one."""
        read, *rows = await self._scripts.dht_page([order, rank, PAGE, int(all_torrents), before])
        return int(read), [
            ThinSwarm(int(seeders), int(looked_up), InfoHash(bytes.fromhex(info_hash.decode())))
            for info_hash, seeders, looked_up in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
        ]


def _due_before(now: int) -> int:
    return max(now - LOOK_UP_AGAIN_SECONDS, 1)


def _split(packed: bytes, length: int) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(packed[at : at + length]) for at in range(0, len(packed) - length + 1, length))
