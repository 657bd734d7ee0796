"""The torrents of all shards that take part in the DHT."""

import random
from collections.abc import Sequence

from tracker.bittorrent import Endpoint, InfoHash
from tracker.errors import StoreUnavailable
from tracker.store.dht.participation import Participation
from tracker.store.dht.torrents import MAX_SAMPLE_PAGES, DhtTorrents, StoredSwarm, ThinSwarm
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import Shards


class ShardedDhtTorrents(DhtTorrents):
    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def _of(self, info_hash: InfoHash) -> DhtTorrents:
        return self._shards.of(info_hash).dht_torrents

    async def swarm(self, info_hash: InfoHash, family: int, *, all_torrents: bool) -> StoredSwarm | None:
        return await self._of(info_hash).swarm(info_hash, family, all_torrents=all_torrents)

    async def no_longer_part(self, info_hashes: Sequence[InfoHash], *, all_torrents: bool) -> list[InfoHash]:
        """As with one shard. Of a shard that is away it is not known, so its torrents count as such; raises
        StoreUnavailable when it is known of none."""
        found: list[InfoHash] = []
        unknown: list[StoreUnavailable] = []
        for each in info_hashes:
            try:
                found += await self._of(each).no_longer_part([each], all_torrents=all_torrents)
            except StoreUnavailable as error:
                unknown.append(error)
                found.append(each)
        if unknown and len(unknown) == len(info_hashes):
            raise unknown[0]
        return found

    async def thin_page(self, rank: int, now: int, *, all_torrents: bool) -> tuple[int, list[ThinSwarm]]:
        """As with one shard, but the register of each shard follows that of the shard before. A page that ends a
        shard is followed by one of the next shard. One that goes away meanwhile shifts the ranks of the others."""
        sizes = await self._shards.each(lambda shard: ("ZCARD", shard.keys.index("seeders")))
        for shard, size in sizes.items():
            if rank < size:
                return await shard.dht_torrents.thin_page(rank, now, all_torrents=all_torrents)
            rank -= size
        return 0, []

    async def claim(self, info_hash: InfoHash, now: int, *, all_torrents: bool) -> bool:
        return await self._of(info_hash).claim(info_hash, now, all_torrents=all_torrents)

    async def save_result(
        self, info_hash: InfoHash, found: tuple[int, int] | None, now: int, *, all_torrents: bool
    ) -> bool:
        return await self._of(info_hash).save_result(info_hash, found, now, all_torrents=all_torrents)

    async def give(
        self,
        info_hash: InfoHash,
        peers: Sequence[Endpoint],
        now: int,
        found_at: int,
        *,
        all_torrents: bool,
    ) -> bool:
        return await self._of(info_hash).give(info_hash, peers, now, found_at, all_torrents=all_torrents)

    async def peers_found(self, info_hashes: Sequence[InfoHash], now: int) -> dict[InfoHash, int]:
        async def found(shard_torrents: DhtTorrents, part: list[InfoHash]) -> list[int | None]:
            peers = await shard_torrents.peers_found(part, now)
            return [peers.get(info_hash) for info_hash in part]

        numbers = await self._shards.split(
            info_hashes, lambda info_hash: info_hash, lambda shard, part: found(shard.dht_torrents, part)
        )
        return {each: peers for each, peers in zip(info_hashes, numbers, strict=True) if peers is not None}

    async def some_peers(self, family: int, count: int, *, all_torrents: bool) -> list[Endpoint]:
        sizes = await self._shards.each(lambda shard: ("ZCARD", shard.keys.info_hashes()))
        if not any(sizes.values()):
            return []
        (shard,) = random.choices(list(sizes), list(sizes.values()))
        return await shard.dht_torrents.some_peers(family, count, all_torrents=all_torrents)

    async def participation(self, *, all_torrents: bool) -> Participation:
        found = await self._shards.gather(
            lambda shard: shard.dht_torrents.participation(all_torrents=all_torrents)
        )
        parts = found.values()
        return Participation(
            sum(each.registered for each in parts),
            sum(each.looked_at for each in parts),
            sum(each.part for each in parts),
            sum(each.unknown for each in parts),
        )

    async def last_lookups(self, offset: int, count: int) -> list[tuple[str, int]]:
        pairs = await top_of(self._shards, lambda shard: shard.keys.dht_lookups(), count, offset)
        return [(torrent_id, int(at)) for torrent_id, at in pairs]

    async def some_public(self, count: int, max_pages: int = MAX_SAMPLE_PAGES) -> tuple[list[InfoHash], int]:
        pages = max(1, max_pages // len(self._shards))
        found = await self._shards.gather(lambda shard: shard.dht_torrents.some_public(count, pages))
        chosen = [info_hash for part, _ in found.values() for info_hash in part]
        return random.sample(chosen, min(len(chosen), count)), sum(total for _, total in found.values())

    async def looked_up_count(self) -> int:
        return sum((await self._shards.each(lambda shard: ("ZCARD", shard.keys.dht_lookups()))).values())
