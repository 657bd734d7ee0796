"""The scoring queue: takes due torrents under leases, and stores their new scores.

Each shard has a queue: `t:i:processed` orders torrents by the time of their last scoring. A worker takes due torrents
with a lease, and only the lease holder can store the new score. When a worker dies, its leases end and other workers
take the torrents with their old scores.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from typing import Annotated, Any

from tracker.bittorrent import InfoHash
from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import whole
from tracker.store.schema.record import Field
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.torrents.name_index import page_of_torrents

LEASE_SECONDS = 120
COUNTED_ONCE_IN_SECONDS = 3600
HISTORY_POINTS = 72
MAX_AT_ONCE = 500
SHARDS_A_CALL = 4
"""Shards that one call of ``take`` asks until one has due torrents. An idle tracker asks so many a second."""


class Leased(Exception):
    """A worker holds the torrent's lease, or died holding it. The lease ends in ``seconds``."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Taken:
    """A torrent that this worker may score until the lease ends."""

    torrent_id: str
    token: str
    info_hash: InfoHash
    score: float
    seeders: int
    leechers: int
    new: int
    """Addresses first seen on the torrent since the last scoring."""
    waited_seconds: float
    elsewhere: int = 0
    """Peers at the last scoring on the other tracker that knew the most of them."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The result of a scoring. ``score`` None removes the torrent from the ranking; ``elsewhere`` is None if no other
    tracker answered."""

    taken: Taken
    score: float | None
    elsewhere: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """``counted``: torrents scored for the first time in an hour. ``void``: ids that lost their lease before."""

    counted: int
    void: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lag:
    """The backlog of the scoring queue."""

    count: Annotated[int, Field("Torrents in the ranking.")]
    waiting: Annotated[int, Field("Torrents due for scoring, not being scored.")]
    late: Annotated[int, Field("Torrents overdue by more than one interval.")]
    longest_seconds: Annotated[float, Field("Seconds since the oldest scoring.")]


@dataclass(frozen=True, slots=True)
class ScorePlace:
    """A torrent's place in the ranking and its scoring times, in epoch seconds."""

    rank: int
    """0 is the highest score."""
    of: Annotated[int, Field("Torrents in the ranking.")]
    last_processed: int
    """When it was last scored, or entered the ranking."""
    next_turn: int
    """When it is due. A time in the past means that it is waiting."""
    being_scored: bool


@dataclass(eq=False)
class Scores:
    """``clock`` returns epoch seconds. ``interval_seconds`` is the time between two scorings of a torrent, and
    ``history`` the number of history points kept for each torrent."""

    _shards: Shards
    _clock: Callable[[], float]
    _: KW_ONLY
    interval_seconds: int
    history: int = HISTORY_POINTS

    def __post_init__(self) -> None:
        self._next = 0
        self._extra_by_waiting = dict.fromkeys(self._shards, False)

    async def take(self, count: int) -> list[Taken]:
        """Takes at most ``count`` due torrents of one shard: half by score times time waited, half by time waited
        alone. The next call begins with the next shard. Shards that are unavailable are passed over."""
        for _ in range(min(SHARDS_A_CALL, len(self._shards))):
            shard = self._shards[self._next]
            self._next = (self._next + 1) % len(self._shards)
            try:
                taken = await self._take_due(shard, min(count, MAX_AT_ONCE))
            except StoreUnavailable as error:
                self._shards.leave_out([shard.number], error)
                continue
            if taken:
                return taken
        return []

    async def _take_due(self, shard: Shard, count: int) -> list[Taken]:
        by_waiting = count // 2
        if count % 2:  # an odd number: every other call takes one more by time waited
            self._extra_by_waiting[shard] = not self._extra_by_waiting[shard]
            by_waiting += self._extra_by_waiting[shard]
        return [_taken(row) for row in await self._take(shard, count, by_waiting, "")]

    async def take_one(self, torrent_id: str) -> Taken | None:
        """Takes this torrent, due or not. None if it is not in the ranking. Raises Leased if a lease is held."""
        found = await self._shards.find_torrent(torrent_id)
        answer = await self._take(found[0], 1, 1, torrent_id) if found else None
        if isinstance(answer, int):
            raise Leased(answer)
        return _taken(answer[0]) if answer else None

    async def _take(self, shard: Shard, count: int, by_waiting: int, torrent_id: str) -> Any:
        seed = random.getrandbits(31)
        argv: list[Argument] = [self._now(), self.interval_seconds, LEASE_SECONDS, count, by_waiting, seed, torrent_id]
        return await shard.scripts.take(argv)

    async def finish(self, results: Sequence[Scored]) -> Finished:
        """Stores results and ends their leases. Each result applies once, and only while its lease is held."""
        scores = ("drop" if each.score is None else repr(float(each.score)) for each in results)
        return await self._end(
            [(each.taken, score, each.elsewhere) for each, score in zip(results, scores, strict=True)]
        )

    async def give_back(self, taken: Sequence[Taken]) -> None:
        """Ends leases without a result. The torrents keep their scores and stay due."""
        await self._end([(torrent, "back", None) for torrent in taken])

    async def _end(self, results: Sequence[tuple[Taken, str, int | None]]) -> Finished:
        head = (self._now(), COUNTED_ONCE_IN_SECONDS, self.history)
        parts = self._shards.by_shard(results, lambda result: result[0].info_hash)
        found = await asyncio.gather(
            *(
                shard.scripts.score([*head, *(part for each in some for part in _result(*each))])
                for shard, some in parts.items()
            )
        )
        void = tuple(torrent_id.decode() for _, ids in found for torrent_id in ids)
        return Finished(sum(counted for counted, _ in found), void)

    async def count(self) -> int:
        return sum((await self._shards.each(lambda shard: ("ZCARD", shard.keys.index("score")))).values())

    async def of(self, torrent_ids: Sequence[str]) -> list[float | None]:
        """Returns the scores of these torrents, in order. None for a torrent outside the ranking."""
        parts = await self._shards.parts_of_torrents(torrent_ids)
        found = await self._shards.send(
            [(shard, ("ZMSCORE", shard.keys.index("score"), *ids)) for shard, ids in parts.items()]
        )
        by_id = {
            torrent_id: float(score)
            for ids, scores in zip(parts.values(), found, strict=True)
            for torrent_id, score in zip(ids, scores, strict=True)
            if score is not None
        }
        return list(map(by_id.get, torrent_ids))

    async def page_by_seeders(self, cursor: str, count: int) -> tuple[str, list[tuple[str, float]]]:
        """Returns (next cursor, about ``count`` torrent ids with seeders), unordered. Cursor "0" begins and ends."""
        after, found = await self._shards.page(int(cursor), lambda shard, own: page_of_torrents(shard, own, count))
        return str(after), found

    async def place(self, torrent_id: str) -> ScorePlace | None:
        """Returns a torrent's place. None if it is not in the ranking."""
        found, now = await self._shards.find_torrent(torrent_id), self._now()
        if found is None:
            return None
        own, keys = found[0], found[0].keys
        rank, score, processed, lease = await self._shards.send(
            [
                (own, ("ZREVRANK", keys.index("score"), torrent_id)),
                (own, ("ZSCORE", keys.index("score"), torrent_id)),
                (own, ("ZSCORE", keys.processed(), torrent_id)),
                (own, ("ZSCORE", keys.leases("torrents"), torrent_id)),
            ]
        )
        if rank is None:
            return None
        sizes = await self._shards.several(
            lambda shard: [
                ("ZCARD", shard.keys.index("score")),
                ("ZCOUNT", shard.keys.index("score"), f"({float(score)!r}", "+inf"),
            ]
        )
        others = sum(higher for shard, (_, higher) in sizes.items() if shard is not own)
        # A site may have written the time, so it may be negative or infinite.
        last = now if processed is None else int(max(0.0, min(float(processed), 2.0**53)))
        being_scored = lease is not None and float(lease) > now
        total = sum(size for size, _ in sizes.values())
        return ScorePlace(int(rank) + others, total, last, last + self.interval_seconds, being_scored)

    async def lag(self) -> Lag:
        now = self._now()

        def commands(shard: Shard) -> list[tuple[Argument, ...]]:
            times, leases = shard.keys.processed(), shard.keys.leases("torrents")
            return [
                ("ZCARD", shard.keys.index("score")),
                ("ZCOUNT", times, "-inf", now - self.interval_seconds),
                ("ZCOUNT", leases, f"({now}", "+inf"),
                ("ZCOUNT", times, "-inf", now - 2 * self.interval_seconds - 1),
                ("ZRANGE", times, 0, 0, "WITHSCORES"),
            ]

        rows = (await self._shards.several(commands)).values()
        for reply in chain.from_iterable(rows):
            if isinstance(reply, Exception):
                raise reply
        counts, due, leased, late, first = zip(*rows, strict=True)
        waiting = sum(max(0, number - taken) for number, taken in zip(due, leased, strict=True))
        longest = max((now - float(row[1]) for row in first if row), default=0.0)
        return Lag(sum(counts), waiting, sum(late), max(0.0, longest))

    def _now(self) -> int:
        return int(self._clock())


def _result(taken: Taken, score: str, elsewhere: int | None) -> list[Argument]:
    head: list[Argument] = [taken.torrent_id, taken.info_hash.hex(), taken.token, score, taken.new]
    return [*head, taken.seeders + taken.leechers, "" if elsewhere is None else elsewhere]


def _taken(row: list[Any]) -> Taken:
    torrent_id, token, info_hash, score, seeders, leechers, new, waited, elsewhere = row
    return Taken(
        torrent_id=torrent_id.decode(),
        token=token.decode(),
        info_hash=InfoHash(bytes.fromhex(info_hash.decode())),
        score=float(score),
        seeders=whole(seeders),
        leechers=whole(leechers),
        new=whole(new),
        waited_seconds=float(waited),
        elsewhere=whole(elsewhere),
    )
