"""Which torrents are scored next, and what came of it.

A torrent waits in `t:i:processed` for its turn, is taken with a lease, and is given its new score by whoever still holds
that lease. A worker that dies leaves everything as it was: the lease lapses, and the torrent is taken again with its old score.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tracker.bittorrent import InfoHash
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts

LEASE_SECONDS = 120
COUNTED_ONCE_IN_SECONDS = 3600
HISTORY_POINTS = 72
MOST_AT_ONCE = 500

Argument = str | bytes | int | float


@dataclass(frozen=True, slots=True)
class Taken:
    """A torrent that is ours to score until the lease ends."""

    torrent_id: str
    token: str
    info_hash: InfoHash
    score: float
    seeders: int
    leechers: int
    new: int
    """Addresses first seen there since the last scoring."""
    waited_seconds: float
    elsewhere: int = 0
    """Peers that another tracker knew at the last scoring, the most of them."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The result of a scoring; ``score`` None takes the torrent out of the ranking. ``elsewhere`` is None when no other
    tracker answered."""

    taken: Taken
    score: float | None
    elsewhere: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """``counted`` torrents were scored for the first time in an hour. ``void``: ids of results that came too late."""

    counted: int
    void: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lag:
    """How far scoring is behind."""

    count: int
    """Torrents in the ranking."""
    waiting: int
    """Those whose turn has come, and that nobody works on."""
    late: int
    """Those whose turn came more than an interval ago."""
    longest_seconds: float
    """Since the scoring that is longest ago."""


@dataclass(frozen=True, slots=True)
class ScorePlace:
    """Where a torrent stands in the ranking, and when it is scored; times are epoch seconds."""

    rank: int
    """0 is the highest score."""
    of: int
    """Torrents in the ranking."""
    last_processed: int
    """When it was last scored, or came into the ranking."""
    next_turn: int
    """From then on it is its turn; what lies in the past is by how long it has waited."""
    being_scored: bool


class Scores:
    """The scores of one prefix. ``interval_seconds`` is the time between two scorings of a torrent, ``history`` how many
    points of each torrent's past are kept, ``clock`` gives epoch seconds."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        clock: Callable[[], float],
        *,
        interval_seconds: int,
        lease_seconds: int = LEASE_SECONDS,
        history: int = HISTORY_POINTS,
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock
        self._interval = interval_seconds
        self._lease = lease_seconds
        self._history = history
        self._odd_turn_by_waiting = False

    async def take(self, count: int) -> list[Taken]:
        """At most ``count`` torrents whose turn it is: half by score and time waited, half those that wait longest."""
        count = min(count, MOST_AT_ONCE)
        by_waiting = count // 2
        if count % 2:  # of an odd number the waiting get the larger half every other time
            self._odd_turn_by_waiting = not self._odd_turn_by_waiting
            by_waiting += self._odd_turn_by_waiting
        return await self._take(count, by_waiting, "")

    async def take_one(self, torrent_id: str) -> Taken | None:
        """This torrent, whether it is its turn or not; None when it is not in the ranking, or being scored just now."""
        found = await self._take(1, 1, torrent_id)
        return found[0] if found else None

    async def _take(self, count: int, by_waiting: int, torrent_id: str) -> list[Taken]:
        luck = random.getrandbits(31)
        argv: list[Argument] = [self._now(), self._interval, self._lease, count, by_waiting, luck, torrent_id]
        return [_taken(row) for row in await self._scripts.take(argv)]

    async def finish(self, results: Sequence[Scored]) -> Finished:
        """Ends scorings: each applies once, and only when whoever began it still holds the torrent."""
        argv: list[Argument] = []
        for result in results:
            score = "drop" if result.score is None else repr(float(result.score))
            argv += _result(result.taken, score, result.elsewhere)
        return await self._end(argv)

    async def give_back(self, taken: Sequence[Taken]) -> None:
        """Ends leases without a result: the torrents keep their scores and their turn."""
        argv: list[Argument] = []
        for one in taken:
            argv += _result(one, "back")
        await self._end(argv)

    async def _end(self, argv: list[Argument]) -> Finished:
        if not argv:
            return Finished(0)
        counted, void = await self._scripts.score(
            [self._now(), COUNTED_ONCE_IN_SECONDS, self._history, *argv]
        )
        return Finished(counted, tuple(torrent_id.decode() for torrent_id in void))

    async def reset(self, torrent_ids: Sequence[str]) -> int:
        """Scores begin anew, also of torrents that had left the ranking; the answer is how many of them there are."""
        return int(await self._scripts.reset_score([self._now(), *torrent_ids]))

    async def count(self) -> int:
        """How many torrents are in the ranking."""
        return int(await self._connection.command("ZCARD", self._keys.index("score")))

    async def top(self, count: int, offset: int = 0) -> list[tuple[str, float]]:
        """(torrent id, score), the highest first."""
        flat = await self._connection.command(
            "ZRANGE", self._keys.index("score"), offset, offset + count - 1, "REV", "WITHSCORES"
        )
        pairs = (
            flat if flat and isinstance(flat[0], tuple | list) else zip(flat[::2], flat[1::2], strict=True)
        )
        return [(torrent_id.decode(), float(score)) for torrent_id, score in pairs]

    async def place(self, torrent_id: str) -> ScorePlace | None:
        """Where a torrent stands; None when it is not in the ranking."""
        keys, now = self._keys, self._now()
        answers = await self._connection.pipeline(
            ("ZREVRANK", keys.index("score"), torrent_id),
            ("ZCARD", keys.index("score")),
            ("ZSCORE", keys.processed(), torrent_id),
            ("ZSCORE", keys.leases("torrents"), torrent_id),
        )
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        rank, of, processed, lease = answers
        if rank is None:
            return None
        last = now if processed is None else _time(processed)
        being_scored = lease is not None and float(lease) > now
        return ScorePlace(int(rank), int(of), last, last + self._interval, being_scored)

    async def lag(self) -> Lag:
        now, times, leases = self._now(), self._keys.processed(), self._keys.leases("torrents")
        answers = await self._connection.pipeline(
            ("ZCARD", self._keys.index("score")),
            ("ZCOUNT", times, "-inf", now - self._interval),
            ("ZCOUNT", leases, f"({now}", "+inf"),
            ("ZCOUNT", times, "-inf", now - 2 * self._interval - 1),
            ("ZRANGE", times, 0, 0, "WITHSCORES"),
        )
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        count, due, leased, late, first = answers
        longest = now - float(_last(first)) if first else 0.0
        return Lag(count, max(0, due - leased), late, max(0.0, longest))

    def _now(self) -> int:
        return int(self._clock())


def _last(first: Any) -> Any:
    """The score of the one member in a ZRANGE answer, flat or in pairs."""
    return first[0][1] if isinstance(first[0], tuple | list) else first[1]


def _time(score: Any) -> int:
    """A time that a site may have written: endless ones too."""
    return int(max(0.0, min(float(score), 2.0**53)))


def _result(taken: Taken, score: str, elsewhere: int | None = None) -> list[Argument]:
    head: list[Argument] = [taken.torrent_id, taken.info_hash.hex(), taken.token, score, taken.new]
    return [*head, taken.seeders + taken.leechers, "" if elsewhere is None else elsewhere]


def _taken(row: list[Any]) -> Taken:
    torrent_id, token, info_hash, score, seeders, leechers, new, waited, elsewhere = row
    return Taken(
        torrent_id=torrent_id.decode(),
        token=token.decode(),
        info_hash=InfoHash(bytes.fromhex(info_hash.decode())),
        score=float(score),
        seeders=_number(seeders),
        leechers=_number(leechers),
        new=_number(new),
        waited_seconds=float(waited),
        elsewhere=_number(elsewhere),
    )


def _number(text: bytes) -> int:
    """Of what a site may have written by itself; Python refuses numbers of thousands of digits."""
    return int(text) if text.isdigit() and len(text) <= 16 else 0
