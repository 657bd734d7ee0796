"""Clients of a private site's users, and what they must have in the end: totals, and a row for each torrent.

Each announces at its turn, and again until it is answered, as clients do. Only what cannot be known from outside is a
range: the store's second of an announce lies between its first attempt and its answer.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote_from_bytes

from loadtest.clients.raw_http import Connection

_AT_ONCE = 50
_RETRY_SECONDS = 0.1
_MAX_BYTES = 100_000
"""Of one announce; the credit limit allows more in a millisecond."""


@dataclass(slots=True)
class OnTorrent:
    """What a user has on a torrent. ``free`` and ``double``: rules of the torrent."""

    uploaded: int = 0
    downloaded: int = 0
    free: bool = False
    double: bool = False
    completed: bool = False
    seconds: tuple[float, float] = (0.0, 0.0)
    """Least and most time as a seeder, until the last stop."""

    @property
    def credited(self) -> tuple[int, int]:
        return self.uploaded * (2 if self.double else 1), 0 if self.free else self.downloaded


@dataclass(slots=True, eq=False)
class Member:
    """A client of one user on one torrent."""

    passkey: str
    info_hash: bytes
    peer_id: bytes
    address: str
    """In 127/8."""
    port: int
    left: int
    history: OnTorrent
    uploaded: int = 0
    downloaded: int = 0
    running: bool = False
    completions: int = 0
    seeding: tuple[float, float, float, float] | None = None
    """The first and the last announce as a seeder since the start: attempt and answer of each."""

    def target(self, event: str) -> str:
        return (
            f"/announce/{self.passkey}?info_hash={quote_from_bytes(self.info_hash, safe='')}"
            f"&peer_id={quote_from_bytes(self.peer_id, safe='')}&port={self.port}&uploaded={self.uploaded}"
            f"&downloaded={self.downloaded}&left={self.left}&compact=1&numwant=5&event={event}"
        )

    @property
    def seeds(self) -> bool:
        return self.running and not self.left

    def turn(self, chance: random.Random) -> str:
        """Moves bytes, and returns the event of the next announce."""
        if not self.running:
            self.uploaded = self.downloaded = 0
            return "started"
        up, was_leeching = chance.randrange(_MAX_BYTES), self.left > 0
        down = min(self.left, chance.randrange(_MAX_BYTES))
        self.uploaded, self.downloaded, self.left = (self.uploaded + up, self.downloaded + down, self.left - down)
        self.history.uploaded += up
        self.history.downloaded += down
        if was_leeching and not self.left:
            return "completed"
        return "stopped" if chance.random() < 0.08 else ""

    def answer(self, event: str, first_attempt: float, answer: float) -> None:
        self.running = event != "stopped"
        if event == "completed" and not self.history.completed:
            self.history.completed, self.completions = True, self.completions + 1
        if self.left or event in ("started", "completed"):
            self._end_seeding()
        if not self.left and self.running:
            start = self.seeding or (first_attempt, answer)
            self.seeding = start[0], start[1], first_attempt, answer
        elif not self.left and self.seeding:
            self.seeding = *self.seeding[:2], first_attempt, answer
            self._end_seeding()

    def seed_time(self) -> tuple[float, float]:
        """The least and the most seconds as a seeder, those since the last start among them."""
        least, most = self.history.seconds
        if self.seeding:
            began, began_by, ended, ended_by = self.seeding
            return least + max(0.0, ended - began_by - 1), most + ended_by - began + 1
        return least, most

    def _end_seeding(self) -> None:
        self.history.seconds, self.seeding = self.seed_time(), None


class Members:
    """All of them. ``port`` returns that of the tracker, which may change."""

    def __init__(self, members: Sequence[Member], port: Callable[[], int], seed: int = 1) -> None:
        self.members = members
        self.answered = 0
        self._port = port
        self._chance = random.Random(seed)
        self._waiting = deque(members)

    async def run(self, announces: int, rate: float) -> None:
        """So many announces, at most ``rate`` a second, by members in turn."""
        began = time.monotonic()
        due = iter([began + number / rate for number in range(announces)])
        await asyncio.gather(*(self._work(due) for _ in range(_AT_ONCE)))

    async def stop(self, members: Sequence[Member]) -> None:
        self._waiting = deque(each for each in members if each.running)
        due = iter([0.0] * len(self._waiting))
        await asyncio.gather(*(self._work(due, "stopped") for _ in range(_AT_ONCE)))

    async def _work(self, due: Iterator[float], event: str = "") -> None:
        for moment in due:
            await asyncio.sleep(moment - time.monotonic())
            member = self._waiting.popleft()
            await self._announce(member, event or member.turn(self._chance))
            self._waiting.append(member)

    async def _announce(self, member: Member, event: str) -> None:
        first_attempt, target = time.time(), member.target(event)
        connection = Connection(member.address, keep=False)
        while (answer := await connection.get(self._port(), target)).kind != "answered":
            if answer.kind == "invalid":
                raise ValueError(answer.detail)
            await asyncio.sleep(_RETRY_SECONDS)
        member.answer(event, first_attempt, time.time())
        self.answered += 1
