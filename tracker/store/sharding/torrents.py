"""The torrents of all shards: calls for one torrent go to its shard, and lists are merged."""

import asyncio
import re
from collections.abc import Mapping, Sequence

from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, StoreUnavailable
from tracker.store.schema.multipliers import RuleChange
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import ScanCursors, Shard, Shards
from tracker.store.torrents.records import StoredTorrent
from tracker.store.torrents.search import NAMES_A_CALL, NAMES_A_PAGE, Search, first_byte
from tracker.store.torrents.torrents import (
    RANKINGS,
    SEARCHES_AT_ONCE,
    Denial,
    Peer,
    Point,
    Torrent,
    Torrents,
    denials_of,
    existing,
    listed_denials,
    with_scores,
)

NAMES_AT_ONCE = 4 * NAMES_A_CALL
"""Names that the script calls of one round look at, in all shards: announces wait for the calls on the same node."""
_CURSOR = re.compile(r"([0-9]{1,3})-([^-]*)", re.ASCII)


class ShardedTorrents(Torrents):
    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._cursors = ScanCursors(shards)
        self._searches = asyncio.Semaphore(SEARCHES_AT_ONCE)

    def _of(self, info_hash: InfoHash) -> Torrents:
        return self._shards.of(info_hash).torrents

    # One torrent

    async def add(
        self, info_hash: InfoHash, fields: Mapping[str, str] | None = None, *, reset_score: bool = False
    ) -> tuple[str, bool]:
        return await self._of(info_hash).add(info_hash, fields, reset_score=reset_score)

    async def edit(self, info_hash: InfoHash, fields: Mapping[str, str]) -> None:
        await self._of(info_hash).edit(info_hash, fields)

    async def change_rule(self, info_hash: InfoHash, change: RuleChange) -> bool:
        return await self._of(info_hash).change_rule(info_hash, change)

    async def remove(self, info_hash: InfoHash) -> bool:
        return await self._of(info_hash).remove(info_hash)

    async def deny(self, info_hash: InfoHash, reason: str) -> None:
        await self._of(info_hash).deny(info_hash, reason)

    async def allow(self, info_hash: InfoHash) -> bool:
        return await self._of(info_hash).allow(info_hash)

    async def history(self, torrent: Torrent) -> list[Point]:
        return await self._of(torrent.info_hash).history(torrent)

    async def completers(self, torrent: Torrent) -> list[tuple[str, int]]:
        return await self._of(torrent.info_hash).completers(torrent)

    async def peers(self, torrent: Torrent, cursor: int = 0, count: int = 100) -> tuple[int, list[Peer]]:
        return await self._of(torrent.info_hash).peers(torrent, cursor, count)

    # Several torrents

    async def add_many(
        self, torrents: Sequence[tuple[InfoHash, Mapping[str, str]]]
    ) -> list[tuple[str, bool] | ClientError]:
        return await self._shards.split(
            torrents, lambda each: each[0], lambda shard, part: shard.torrents.add_many(part)
        )

    async def get_all(self, info_hashes: Sequence[InfoHash]) -> list[Torrent]:
        found = [stored.read() for stored in await self.stored(info_hashes)]
        scores = [
            (shard, ("ZSCORE", shard.keys.index("score"), torrent.torrent_id))
            for torrent in found
            for shard in [self._shards.of(torrent.info_hash)]
        ]
        return with_scores(found, await self._shards.send(scores))

    async def stored(self, info_hashes: Sequence[InfoHash]) -> list[StoredTorrent]:
        rows: list[tuple[Shard, tuple[str, ...]]] = []
        for info_hash in info_hashes:
            shard = self._shards.of(info_hash)
            keys = shard.keys
            rows.append((shard, ("MGET", keys.info_hash(info_hash), keys.deny(info_hash))))
            rows.append((shard, ("HGETALL", keys.torrent(info_hash))))
        replies = await self._shards.send(rows, keep_errors=True)
        return existing(
            StoredTorrent(info_hash, torrent_id, denied, [] if isinstance(fields, Exception) else fields)
            for info_hash, (torrent_id, denied), fields in zip(
                info_hashes, replies[::2], replies[1::2], strict=True
            )
        )

    async def registered(self, info_hashes: Sequence[InfoHash]) -> set[InfoHash]:
        missing = await self.unregistered(info_hashes)
        return set(info_hashes) - set(missing)

    async def unregistered(self, info_hashes: Sequence[InfoHash]) -> list[InfoHash]:
        async def is_registered(shard: Shard, part: list[InfoHash]) -> list[bool]:
            found = await shard.torrents.registered(part)
            return [info_hash in found for info_hash in part]

        known = await self._shards.split(info_hashes, _itself, is_registered)
        return [info_hash for info_hash, found in zip(info_hashes, known, strict=True) if not found]

    async def history_entries(self, torrents: Sequence[Torrent]) -> list[list[bytes]]:
        return await self._shards.split(
            torrents,
            lambda torrent: torrent.info_hash,
            lambda shard, part: shard.torrents.history_entries(part),
        )

    async def by_ids(self, ids: Sequence[str]) -> list[Torrent]:
        found = await self._shards.find_torrents(ids)
        return await self.get_all([found[torrent_id][1] for torrent_id in ids if torrent_id in found])

    # Lists

    async def count(self) -> int:
        return sum((await self._shards.each(lambda shard: ("ZCARD", shard.keys.index("seeders")))).values())

    async def page(self, cursor: int, count: int = 100) -> tuple[int, list[Torrent]]:
        return await self._cursors.page(cursor, lambda shard, own: shard.torrents.page(own, count))

    async def top(
        self, ranking: str, count: int, offset: int = 0, *, ascending: bool = False
    ) -> list[Torrent]:
        if ranking not in RANKINGS:
            raise ClientError("unknown sort order")
        pairs = await top_of(
            self._shards, lambda shard: shard.keys.index(ranking), count, offset, ascending=ascending
        )
        return await self.by_ids([torrent_id for torrent_id, _ in pairs])

    async def denials(self, offset: int = 0, count: int = 100) -> list[Denial]:
        listed = listed_denials(await top_of(self._shards, lambda shard: shard.keys.denied(), count, offset))
        shards = [self._shards.of(info_hash) for info_hash, _ in listed]
        reasons = await self._shards.send(
            [(shard, ("GET", shard.keys.deny(each))) for shard, (each, _) in zip(shards, listed, strict=True)]
        )
        found, gone = denials_of(listed, reasons)
        for info_hash in gone:
            await self._of(info_hash)._unlist_denials([info_hash])
        return found

    async def denial_count(self) -> int:
        return sum((await self._shards.each(lambda shard: ("ZCARD", shard.keys.denied()))).values())

    async def search(self, text: str, count: int = 100, cursor: str = "") -> tuple[str, list[Torrent]]:
        """As with one shard, but the results of each shard follow those of the shard before. Small shards are searched
        at once."""
        number, own = self._search_cursor(cursor)
        async with self._searches:
            after, found = await self._search(text, count, number, own)
        return after, await self.get_all(found)

    async def _search(self, text: str, count: int, number: int, own: str) -> tuple[str, list[InfoHash]]:
        sizes = await self._shards.each(lambda shard: ("ZCARD", shard.keys.index("name")))
        shards, found, seen = list(self._shards)[number:], list[InfoHash](), 0
        while shards and seen < NAMES_A_PAGE and len(found) < count:
            some = _fitting(shards, sizes)
            seen += sum(sizes.get(shard, 0) for shard in some)
            cursors = [own, *[""] * (len(some) - 1)]
            pages = await asyncio.gather(
                *(
                    self._search_in(shard, text, count - len(found), cursor)
                    for shard, cursor in zip(some, cursors, strict=True)
                )
            )
            for shard, cursor, page in zip(some, cursors, pages, strict=True):
                left = count - len(found)
                if not left:
                    return f"{shard.number}-", found
                # Only now it is known how many of this shard the page has room for.
                fits = len(page[1]) <= left
                after, more = page if fits else await self._search_in(shard, text, left, cursor)
                found += more
                if after:
                    return f"{shard.number}-{after}", found
            shards, own = shards[len(some) :], ""
        return f"{shards[0].number}-" if shards else "", found

    async def _search_in(
        self, shard: Shard, text: str, count: int, cursor: str
    ) -> tuple[str, list[InfoHash]]:
        """The next cursor and the results of one shard; none while it is away."""
        of_another = (first := first_byte(text)) is not None and first % len(self._shards) != shard.number
        search = Search(shard.connection, shard.scripts, shard.keys, text, hashes=not of_another)
        try:
            return await search.page(count, cursor)
        except StoreUnavailable as error:
            self._shards.leave_out([shard.number], error)
            return "", []

    def _search_cursor(self, cursor: str) -> tuple[int, str]:
        match = _CURSOR.fullmatch(cursor or "0-")
        if match is None or int(match[1]) >= len(self._shards):
            raise ClientError("invalid cursor")
        return int(match[1]), match[2]


def _fitting(shards: Sequence[Shard], names: Mapping[Shard, int]) -> list[Shard]:
    """The first shards that have at most NAMES_AT_ONCE names, at least one shard."""
    found, left = [shards[0]], NAMES_AT_ONCE - names.get(shards[0], 0)
    for shard in shards[1:]:
        left -= names.get(shard, 0)
        if left < 0:
            break
        found.append(shard)
    return found


def _itself(info_hash: InfoHash) -> InfoHash:
    return info_hash
