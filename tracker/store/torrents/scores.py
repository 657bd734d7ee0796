"""The scoring queue: takes due torrents under leases, and stores their new scores.

`t:i:processed` orders torrents by the time of their last scoring. A worker takes due torrents with a lease, and only
the lease holder can store the new score. When a worker dies, its leases end and other workers take the torrents with
their old scores.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tracker.bittorrent import InfoHash
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys

LEASE_SECONDS = 120
COUNTED_ONCE_IN_SECONDS = 3600
HISTORY_POINTS = 72
MAX_AT_ONCE = 500

Argument = str | bytes | int | float


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

    count: int
    """Torrents in the ranking."""
    waiting: int
    """Due torrents without a lease."""
    late: int
    """Torrents due for more than one interval."""
    longest_seconds: float
    """Seconds since the oldest last scoring."""


@dataclass(frozen=True, slots=True)
class ScorePlace:
    """A torrent's place in the ranking and its scoring times, in epoch seconds."""

    rank: int
    """0 is the highest score."""
    of: int
    """Torrents in the ranking."""
    last_processed: int
    """When it was last scored, or entered the ranking."""
    next_turn: int
    """When it is due. A time in the past means that it is waiting."""
    being_scored: bool


class Scores:
    """The scores under one key prefix.

    ``clock`` returns epoch seconds. ``interval_seconds`` is the time between two scorings of a torrent,
    ``lease_seconds`` the length of a lease, and ``history`` the number of history points kept for each torrent.
    """

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
        self._extra_by_waiting = False

    async def take(self, count: int) -> list[Taken]:
        """Takes at most ``count`` due torrents: half by score times time waited, half by time waited alone."""
        count = min(count, MAX_AT_ONCE)
        by_waiting = count // 2
        if count % 2:  # an odd number: every other call takes one more by time waited
            self._extra_by_waiting = not self._extra_by_waiting
            by_waiting += self._extra_by_waiting
        return await self._take(count, by_waiting)

    async def take_one(self, torrent_id: str) -> Taken | None:
        """Takes this torrent, due or not. None if it is not in the ranking. Raises Leased if a lease is held."""
        answer = await self._call_take(1, 1, torrent_id)
        if isinstance(answer, int):
            raise Leased(answer)
        return _taken(answer[0]) if answer else None

    async def _take(self, count: int, by_waiting: int) -> list[Taken]:
        return [_taken(row) for row in await self._call_take(count, by_waiting, "")]

    async def _call_take(self, count: int, by_waiting: int, torrent_id: str) -> Any:
        seed = random.getrandbits(31)
        argv: list[Argument] = [self._now(), self._interval, self._lease, count, by_waiting, seed, torrent_id]
        return await self._scripts.take(argv)

    async def finish(self, results: Sequence[Scored]) -> Finished:
        """Stores results and ends their leases. Each result applies once, and only while its lease is held."""
        argv: list[Argument] = []
        for result in results:
            score = "drop" if result.score is None else repr(float(result.score))
            argv += _result(result.taken, score, result.elsewhere)
        return await self._end(argv)

    async def give_back(self, taken: Sequence[Taken]) -> None:
        """Ends leases without a result. The torrents keep their scores and stay due."""
        argv: list[Argument] = []
        for torrent in taken:
            argv += _result(torrent, "back")
        await self._end(argv)

    async def _end(self, argv: list[Argument]) -> Finished:
        if not argv:
            return Finished(0)
        counted, void = await self._scripts.score(
            [self._now(), COUNTED_ONCE_IN_SECONDS, self._history, *argv]
        )
        return Finished(counted, tuple(torrent_id.decode() for torrent_id in void))

    async def reset(self, torrent_ids: Sequence[str]) -> int:
        """Resets scores to 1, also of torrents outside the ranking. Returns how many of the torrents exist."""
        return int(await self._scripts.reset_score([self._now(), *torrent_ids]))

    async def count(self) -> int:
        """Returns the number of torrents in the ranking."""
        return int(await self._connection.command("ZCARD", self._keys.index("score")))

    async def top(self, count: int, offset: int = 0) -> list[tuple[str, float]]:
        """Returns ``count`` pairs (torrent id, score) from ``offset`` on, highest score first."""
        flat = await self._connection.command(
            "ZRANGE", self._keys.index("score"), offset, offset + count - 1, "REV", "WITHSCORES"
        )
        return [
            (torrent_id.decode(), float(score))
            for torrent_id, score in zip(flat[::2], flat[1::2], strict=True)
        ]

    async def of(self, torrent_ids: Sequence[str]) -> list[float | None]:
        """Returns the scores of these torrents, in order. None for a torrent outside the ranking."""
        found = await self._connection.command("ZMSCORE", self._keys.index("score"), *torrent_ids)
        return [None if score is None else float(score) for score in found]

    async def page_by_seeders(self, cursor: str, count: int) -> tuple[str, list[tuple[str, float]]]:
        """Returns (next cursor, about ``count`` torrent ids with seeders), unordered. Cursor "0" begins and ends."""
        after, flat = await self._connection.command(
            "ZSCAN", self._keys.index("seeders"), cursor, "COUNT", count
        )
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return after.decode(), [(member.decode(), float(seeders)) for member, seeders in pairs]

    async def place(self, torrent_id: str) -> ScorePlace | None:
        """Returns a torrent's place. None if it is not in the ranking."""
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
        return self._lag_of(await self._connection.pipeline(*self._lag_commands()))

    def _lag_commands(self) -> list[tuple[Argument, ...]]:
        """What ``lag`` sends."""
        now, times, leases = self._now(), self._keys.processed(), self._keys.leases("torrents")
        return [
            ("ZCARD", self._keys.index("score")),
            ("ZCOUNT", times, "-inf", now - self._interval),
            ("ZCOUNT", leases, f"({now}", "+inf"),
            ("ZCOUNT", times, "-inf", now - 2 * self._interval - 1),
            ("ZRANGE", times, 0, 0, "WITHSCORES"),
        ]

    def _lag_of(self, replies: Sequence[Any]) -> Lag:
        """The Lag of the replies to ``_lag_commands``."""
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        count, due, leased, late, first = replies
        max_seconds = self._now() - float(first[1]) if first else 0.0
        return Lag(count, max(0, due - leased), late, max(0.0, max_seconds))

    def _now(self) -> int:
        return int(self._clock())


def _time(score: Any) -> int:
    """Reads a time. A site may have written it, so it may be negative or infinite."""
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
    """Reads a whole number. A site may have written it: 0 if it is invalid or longer than 16 digits."""
    return int(text) if text.isdigit() and len(text) <= 16 else 0
