"""Clients that announce all the time, come, go and fall silent, and remember what they were promised.

Each has an address of its own in 127/8. An announce counts as promised when its answer has come; nothing that is promised may be
missing from the store afterwards, and nothing may be there that nobody announces any more.
"""

import asyncio
import hashlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import quote_from_bytes

from drills.talk import PATIENCE_SECONDS, Answer, How, Line

TORRENT_BYTES = 1 << 30
LEDGER_SECONDS = 0.5
_PULSE_SECONDS = 0.25
_STALL_SECONDS = 3.0


@dataclass(slots=True, eq=False)
class Peer:
    """One peer id in one torrent. Times are of time.monotonic, unless they are named epoch."""

    info_hash: bytes
    peer_id: bytes
    port: int
    bytes_left: int
    key: str
    joined_epoch: float = 0.0
    """When its first announce was answered."""
    answered: int = 0
    last_sent: float = 0.0
    """When the last announce was sent that was answered."""
    last_answer: float = 0.0
    longest_gap: float = 0.0
    """The longest that it can have been without an announce that was applied."""
    leaves: str = ""
    """How it went: ``stopped``, ``silent``, or empty while it announces."""

    def target(self, event: str) -> str:
        moved = TORRENT_BYTES - self.bytes_left
        told = f"&event={event}" if event else ""
        return (
            f"/announce?info_hash={quote_from_bytes(self.info_hash, safe='')}"
            f"&peer_id={quote_from_bytes(self.peer_id, safe='')}&port={self.port}&uploaded=0&downloaded={moved}"
            f"&left={self.bytes_left}&compact=1&key={self.key}&numwant=20{told}"
        )


@dataclass(frozen=True, slots=True)
class Heard:
    """How one announce ended; ``at`` is of time.monotonic."""

    at: float
    sent: float
    how: How
    what: str
    event: str
    info_hash: bytes


@dataclass(frozen=True, slots=True)
class Pace:
    """How many announce how often; seconds."""

    peers: int = 160
    torrents: int = 8
    interval: float = 2.0
    churning: float = 0.4
    """The share of the clients that leave after some announces and come back as somebody else."""


@dataclass(slots=True)
class Fleet:
    """``ports`` are those of the trackers; each client stays with one as long as that can be reached."""

    pace: Pace
    ports: list[int]
    seed: int = 1
    heard: list[Heard] = field(default_factory=list)
    aboard: dict[int, Peer] = field(default_factory=dict)
    """Who announces just now, by client."""
    gone: list[Peer] = field(default_factory=list)
    remember: bool = True
    """Off for a long run, which looks at figures only."""
    ledger: list[bytes] = field(default_factory=list)
    """Torrents in which there was one announce each, answered or not."""
    answers: Counter[How] = field(default_factory=Counter)
    promised: Counter[bytes] = field(default_factory=Counter)
    """Announces answered, by torrent."""
    stalls: list[tuple[float, float]] = field(default_factory=list)
    """When all of this stood still, because somebody stopped the process or the machine: then nobody was heard."""
    _churns: bool = True
    _going: asyncio.Event = field(default_factory=asyncio.Event)
    _under_way: int = 0

    @asynccontextmanager
    async def sailing(self) -> AsyncIterator["Fleet"]:
        """Announces until the block is left."""
        self._going.set()
        async with asyncio.TaskGroup() as clients:
            tasks = [clients.create_task(self._client(number)) for number in range(self.pace.peers)]
            tasks.append(clients.create_task(self._feel_pulse()))
            if self.remember:
                tasks.append(clients.create_task(self._keep_ledger()))
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()

    def settle(self) -> None:
        """From now on nobody comes and nobody goes."""
        self._churns = False

    async def hold(self) -> None:
        """Nobody announces until ``resume``; returns when all answers have come."""
        self._going.clear()
        while self._under_way:
            await asyncio.sleep(0.02)

    def resume(self) -> None:
        self._going.set()

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether ``condition`` came true in time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.02)
        return True

    def all_answered_since(self, moment: float) -> bool:
        """Has everybody aboard sent an announce after ``moment`` that was answered?"""
        return len(self.aboard) == self.pace.peers and all(
            peer.last_sent > moment for peer in self.aboard.values()
        )

    async def _client(self, number: int) -> None:
        chance = random.Random(f"{self.seed}/{number}")
        host = 1 + number % 250
        line = Line(f"127.{20 + number // 250 % 200}.0.{host}", keep=number % 2 == 0)
        restless = number < self.pace.churning * self.pace.peers
        life = 0
        await asyncio.sleep(chance.random() * self.pace.interval)
        try:
            while True:
                peer = self._new_peer(number, life, chance)
                life += 1
                await self._live(peer, line, chance, chance.randrange(2, 7) if restless else 0)
                if self.remember:
                    self.gone.append(peer)
        finally:
            line.close()

    async def _live(self, peer: Peer, line: Line, chance: random.Random, announces: int) -> None:
        """Until it has left; without ``announces`` it stays."""
        number = int(peer.key, 16)
        self.aboard[number] = peer
        event = "started"
        while not (announces and peer.answered >= announces and self._churns):
            if await self._announce(peer, line, number, event):
                event = ""
            await asyncio.sleep(self.pace.interval * chance.uniform(0.8, 1.0))
        del self.aboard[number]
        peer.leaves = "silent"
        if chance.random() < 0.6 and await self._announce(peer, line, number, "stopped"):
            peer.leaves = "stopped"

    async def _keep_ledger(self) -> None:
        """One announce in each of many torrents, which nothing that is counted in its place can make up for when it is lost:
        of those that were not answered some are applied, and in the other torrents they would hide as many that are missing."""
        line = Line("127.19.0.1", keep=False)
        while True:
            if self._churns:
                number = len(self.ledger)
                named = info_hash_of(self.seed, -1 - number)
                self.ledger.append(named)
                peer = Peer(named, b"-DR0001-" + named[:12], 1024 + number % 60_000, 0, f"{number:08X}")
                await self._announce(peer, line, number, "started")
            await asyncio.sleep(LEDGER_SECONDS)

    async def _announce(self, peer: Peer, line: Line, number: int, event: str) -> bool:
        await self._going.wait()
        self._under_way += 1
        try:
            sent = time.monotonic()
            port = self.ports[number % len(self.ports)]
            answer = await line.ask(port, peer.target(event))
            now = time.monotonic()
        finally:
            self._under_way -= 1
        if answer.how == "hung" and self._stood_still(sent):
            answer = Answer("missed", "we stood still ourselves")
        self.answers[answer.how] += 1
        if self.remember:
            self.heard.append(Heard(now, sent, answer.how, answer.what, event, peer.info_hash))
        if answer.how != "answered":
            return False
        self.promised[peer.info_hash] += 1
        if not peer.answered:
            peer.joined_epoch = time.time()
        else:
            peer.longest_gap = max(peer.longest_gap, now - peer.last_sent)
        peer.answered += 1
        peer.last_sent, peer.last_answer = sent, now
        return True

    async def _feel_pulse(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(_PULSE_SECONDS)
            now = time.monotonic()
            if now - before > _STALL_SECONDS:
                self.stalls.append((before, now))
            before = now

    def _stood_still(self, since: float) -> bool:
        return any(end > since for _, end in self.stalls) or time.monotonic() - since > 2 * PATIENCE_SECONDS

    def _new_peer(self, number: int, life: int, chance: random.Random) -> Peer:
        torrent = number % self.pace.torrents
        named = hashlib.sha1(f"{self.seed}/{number}/{life}".encode(), usedforsecurity=False).digest()
        return Peer(
            info_hash=info_hash_of(self.seed, torrent),
            peer_id=b"-DR0001-" + named[:12],
            port=1024 + number % 60_000,
            bytes_left=0 if chance.random() < 0.5 else chance.randrange(1, TORRENT_BYTES),
            key=f"{number:08X}",
        )


def info_hash_of(seed: int, torrent: int) -> bytes:
    return hashlib.sha1(f"drill {seed}/{torrent}".encode(), usedforsecurity=False).digest()
