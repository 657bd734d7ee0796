"""Torrents that take part in the DHT: their swarms, which of them to look up, and what lookups found.

A torrent takes part while it is registered, allowed, and its field ``private`` is 0. With ``all_torrents`` every
torrent takes part that is not known to be private, denied, disabled or pending, registered or not.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from redis.exceptions import RedisError

from tracker.bittorrent import Endpoint, InfoHash
from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import score
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import Shard, StorePart

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
NEARLY_NONE = 20
"""Fewer than one torrent in so many."""

_ANY_TIME = 2**53
"""Epoch seconds: before this time is always."""


class StoredSwarm(NamedTuple):
    """Endpoints of one address family."""

    seeds: tuple[Endpoint, ...]
    leechers: tuple[Endpoint, ...]


class ThinSwarm(NamedTuple):
    """A torrent to look up. The smallest comes first."""

    seeders: int
    looked_up: int  # epoch seconds; 0 for never
    info_hash: InfoHash


@dataclass(frozen=True, slots=True)
class Participation:
    """Counted in up to some thousand torrents, evenly spread over the register."""

    registered: int
    looked_at: int  # how many of the registered torrents were looked at
    part: int  # how many of those take part
    unknown: int = 0  # how many of those do not take part only because their privacy is unknown

    @property
    def estimate(self) -> int:
        """How many torrents take part; exact if all were looked at."""
        return round(self.part * self.registered / self.looked_at) if self.looked_at else 0

    @property
    def is_exact(self) -> bool:
        return self.looked_at >= self.registered

    @property
    def text(self) -> str:
        """One sentence without a full stop."""
        if self.is_exact:
            return f"{self.part:,} of {self.registered:,} registered torrents take part"
        sample = f"estimated from {self.looked_at:,}"
        return f"about {self.estimate:,} of {self.registered:,} registered torrents take part ({sample})"

    @property
    def sentence(self) -> str:
        """The text, and the advice if there is one."""
        return f"{self.text}: {self.advice}" if self.advice else self.text

    @property
    def advice(self) -> str:
        """What to set where nearly no torrent takes part; else empty."""
        if not self.unknown or self.part * NEARLY_NONE >= self.looked_at:
            return ""
        return "set TRACKER_DHT__TORRENTS=all to include torrents of unknown privacy"


class DhtTorrents(StorePart):
    """Raises StoreUnavailable."""

    async def swarm(
        self, info_hash: InfoHash, family: int, *, all_torrents: bool, any_hash: bool = False
    ) -> StoredSwarm | None:
        """``None`` if the torrent does not take part. ``family`` is 4 or 6. ``any_hash``: an empty swarm for one that
        takes part only with ``all_torrents``."""
        part = 2 if any_hash else int(all_torrents)
        found = await self._swarm(info_hash, family, part, MAX_ENDPOINTS, random.getrandbits(31))
        if not found:
            return None
        length = 6 if family == 4 else 18
        return StoredSwarm(_split(found[0], length), _split(found[1], length))

    async def _swarm(self, info_hash: InfoHash, family: int, part: int, endpoints: int, seed: int) -> list[bytes]:
        """Empty if the torrent does not take part."""
        argv: list[Argument] = [info_hash.hex(), family, part, endpoints, seed]
        found: list[bytes] = await self._shards.of(info_hash).scripts.dht_swarm(argv)
        return found

    async def no_longer_part(self, info_hashes: Sequence[InfoHash], *, all_torrents: bool) -> list[InfoHash]:
        """Returns the torrents among these that do not take part. Torrents of a shard that is unavailable count as
        such; raises StoreUnavailable if no shard of a torrent answers."""
        found: list[InfoHash] = []
        unknown: list[StoreUnavailable] = []
        for each in info_hashes:
            try:
                takes_part = bool(await self._swarm(each, 4, int(all_torrents), 0, 0))
            except StoreUnavailable as error:
                unknown.append(error)
                takes_part = False
            if not takes_part:
                found.append(each)
        if unknown and len(unknown) == len(info_hashes):
            raise unknown[0]
        return found

    async def thin_page(self, rank: int, now: int, *, all_torrents: bool) -> tuple[int, list[ThinSwarm]]:
        """Reads a page of the register, in the order of seeders, the fewest first, from ``rank`` on. Returns how many
        torrents it has, and those of them that are due for a lookup. The register of each shard follows that of the
        shard before. A shard that becomes unavailable meanwhile shifts the ranks of the others."""
        sizes = await self._shards.each(lambda shard: ("ZCARD", shard.keys.index("seeders")))
        for shard, size in sizes.items():
            if rank < size:
                return await _page(shard, "seeders", rank, all_torrents, _due_before(now))
            rank -= size
        return 0, []

    async def claim(self, info_hash: InfoHash, now: int, *, all_torrents: bool) -> bool:
        """Whether the caller is to look the torrent up: it takes part, and no tracker has begun to look it up in the
        last 6 hours."""
        return await self._note(info_hash, now, all_torrents, "claim", _due_before(now))

    async def save_result(
        self, info_hash: InfoHash, found: tuple[int, int] | None, now: int, *, all_torrents: bool
    ) -> bool:
        """``found``: seeders and peers; ``None`` if no node answered. Returns False, and stores nothing, if the torrent
        does not take part any longer."""
        seeders, peers = ("", "") if found is None else map(str, found)
        return await self._note(info_hash, now, all_torrents, "found", seeders, peers)

    async def give(
        self, info_hash: InfoHash, peers: Sequence[Endpoint], now: int, found_at: int, *, all_torrents: bool
    ) -> bool:
        """Stores peers of one family, found at ``found_at`` (epoch s), for announces. Returns False if the torrent does
        not take part any longer, or they are too old."""
        family = 4 if len(peers[0]) == 6 else 6
        packed, until = b"".join(peers), found_at + GIVE_SECONDS
        return await self._note(info_hash, now, all_torrents, "give", family, packed, until)

    async def _note(self, info_hash: InfoHash, now: int, all_torrents: bool, *what: Argument) -> bool:
        scripts = self._shards.of(info_hash).scripts
        return bool(await scripts.dht_note([info_hash.hex(), now, int(all_torrents), *what]))

    async def peers_found(self, info_hashes: Sequence[InfoHash], now: int) -> dict[InfoHash, int]:
        """The number of peers that the last lookup found, of torrents with a recent one."""
        of, fields = self._shards.of, ("private", "dht_peers", "dht_at")
        rows = await self._shards.send(
            [(shard := of(each), ("HMGET", shard.keys.torrent(each), *fields)) for each in info_hashes],
            keep_errors=True,
        )
        found = {}
        for info_hash, row in zip(info_hashes, rows, strict=True):
            if isinstance(row, RedisError) or not row or row[0] == b"1":
                continue
            peers, at = (int(text) if text and text.isdigit() and len(text) <= 15 else None for text in row[1:])
            if peers is not None and at is not None and now - at <= RESULT_SECONDS:
                found[info_hash] = peers
        return found

    async def some_peers(self, family: int, count: int, *, all_torrents: bool) -> list[Endpoint]:
        """Peers of some swarms that take part, of a random page of the register."""
        sizes = await self._sizes()
        if not any(sizes.values()):
            return []
        ((shard, size),) = random.choices(list(sizes.items()), list(sizes.values()))
        rank = random.randrange(max(size - PAGE, 0) + 1)
        _, page = await _page(shard, "info_hash", rank, all_torrents)
        found: list[Endpoint] = []
        for each in sorted(page, reverse=True)[:5]:
            swarm = await self.swarm(each.info_hash, family, all_torrents=all_torrents)
            found += (*swarm.seeds, *swarm.leechers) if swarm is not None else ()
        return random.sample(found, min(len(found), count))

    async def _sizes(self) -> dict[Shard, int]:
        return await self._shards.each(lambda shard: ("ZCARD", shard.keys.info_hashes()))

    async def participation(self, *, all_torrents: bool) -> Participation:
        """How many torrents take part. Reads at most COUNTED_PAGES pages of each register, twice unless
        ``all_torrents``."""
        sizes = await self._sizes()
        found = await self._shards.gather(lambda shard: _participation(shard, sizes[shard], all_torrents), list(sizes))
        return Participation(*map(sum, zip(*found.values(), strict=True)))

    async def last_lookups(self, offset: int, count: int) -> list[tuple[str, int]]:
        """The ids of the torrents that were looked up, and when (epoch s), latest first."""
        pairs = await top_of(self._shards, lambda shard: shard.keys.dht_lookups(), count, offset)
        return [(torrent_id, score(at)) for torrent_id, at in pairs]

    async def some_public(self, count: int, max_pages: int = MAX_SAMPLE_PAGES) -> tuple[list[InfoHash], int]:
        """Random torrents that are known to be public and take part, and how many there are. Reads at most so many
        pages of the registers; of a larger one, the number is an estimate."""
        sizes = await self._sizes()
        pages = max(1, max_pages // len(self._shards))
        found = await self._shards.gather(lambda shard: _some_public(shard, sizes[shard], count, pages), list(sizes))
        chosen = [info_hash for part, _ in found.values() for info_hash in part]
        return random.sample(chosen, min(len(chosen), count)), sum(total for _, total in found.values())

    async def looked_up_count(self) -> int:
        return sum((await self._shards.each(lambda shard: ("ZCARD", shard.keys.dht_lookups()))).values())


async def _participation(shard: Shard, registered: int, all_torrents: bool) -> tuple[int, int, int, int]:
    """The values of a Participation."""
    pages = min(COUNTED_PAGES, -(-registered // PAGE))
    ranks = [page * max(PAGE, registered // COUNTED_PAGES) for page in range(pages)]
    looked_at, part = await _pages(shard, ranks, all_torrents)
    possible = part if all_torrents else (await _pages(shard, ranks, True))[1]
    # Torrents that come and go meanwhile could make it more than there are.
    unknown = max(len(possible) - len(part), 0)
    return max(registered, looked_at), looked_at, len(part), unknown


async def _some_public(shard: Shard, total: int, count: int, max_pages: int) -> tuple[list[InfoHash], int]:
    ranks = range(0, total, PAGE)
    read, found = await _pages(shard, random.sample(ranks, min(len(ranks), max_pages)), False)
    return random.sample(found, min(len(found), count)), round(len(found) * max(total / (read or 1), 1))


async def _pages(shard: Shard, ranks: Iterable[int], all_torrents: bool) -> tuple[int, list[InfoHash]]:
    """Reads pages of a register in the order of info hashes. Returns how many torrents they have, and those that take
    part."""
    read, found = 0, dict[InfoHash, None]()
    for rank in ranks:
        size, page = await _page(shard, "info_hash", rank, all_torrents)
        read += size
        found |= {each.info_hash: None for each in page}
    return read, list(found)


async def _page(
    shard: Shard, order: str, rank: int, all_torrents: bool, before: int = _ANY_TIME
) -> tuple[int, list[ThinSwarm]]:
    """The size of a page, and its torrents that take part and were last looked up ``before`` (epoch s), or never. In
    the order of info hashes, every page is as good as a random one."""
    read, *rows = await shard.scripts.dht_page([order, rank, PAGE, int(all_torrents), before])
    return int(read), [
        ThinSwarm(int(seeders), int(looked_up), InfoHash(bytes.fromhex(info_hash.decode())))
        for info_hash, seeders, looked_up in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
    ]


def _due_before(now: int) -> int:
    return max(now - LOOK_UP_AGAIN_SECONDS, 1)


def _split(packed: bytes, length: int) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(packed[at : at + length]) for at in range(0, len(packed) - length + 1, length))
