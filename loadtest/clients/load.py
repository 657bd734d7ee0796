"""Clients that announce continuously, join, leave or stop silently, and record acknowledged announces.

Each has its own address in 127/8. An announce is acknowledged when its answer has arrived. Afterwards the store must
contain everything acknowledged, and no peer that no longer announces.
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

from loadtest.clients.raw_http import TIMEOUT_SECONDS, Answer, Connection, ResultKind

TORRENT_BYTES = 1 << 30
SINGLE_ANNOUNCE_SECONDS = 0.5
_PULSE_SECONDS = 0.25
_STALL_SECONDS = 3.0


@dataclass(slots=True, eq=False)
class Peer:
    """One peer id in one torrent. Times are time.monotonic, except those named epoch."""

    info_hash: bytes
    peer_id: bytes
    port: int
    bytes_left: int
    key: str
    joined_epoch: float = 0.0
    """When its first announce was answered."""
    answered: int = 0
    """Answered announces; the number is reported as uploaded bytes, so that the store shows the last one applied."""
    last_sent: float = 0.0
    """When the last answered announce was sent."""
    last_answer: float = 0.0
    max_pause: float = 0.0
    """Upper bound of the longest time between two applied announces."""
    leaves: str = ""
    """``stopped`` or ``silent`` after it left, empty before."""

    def target(self, event: str) -> str:
        moved = TORRENT_BYTES - self.bytes_left
        suffix = f"&event={event}" if event else ""
        return (
            f"/announce?info_hash={quote_from_bytes(self.info_hash, safe='')}"
            f"&peer_id={quote_from_bytes(self.peer_id, safe='')}&port={self.port}&uploaded={self.answered}"
            f"&downloaded={moved}&left={self.bytes_left}&compact=1&key={self.key}&numwant=20{suffix}"
        )


@dataclass(frozen=True, slots=True)
class AnnounceResult:
    """The result of one announce; ``sent`` and ``at``, its end, are time.monotonic."""

    at: float
    sent: float
    kind: ResultKind
    detail: str
    event: str
    info_hash: bytes


@dataclass(frozen=True, slots=True)
class Pace:
    """Size and rate of the load; ``interval`` in seconds."""

    peers: int = 160
    torrents: int = 8
    interval: float = 2.0
    churning: float = 0.4
    """The share of the clients that leave after some announces and return as a new peer."""


@dataclass(slots=True)
class Load:
    """``ports`` are the trackers'; each client uses one of them while it is reachable."""

    pace: Pace
    ports: list[int]
    seed: int = 1
    results: list[AnnounceResult] = field(default_factory=list)
    active: dict[int, Peer] = field(default_factory=dict)
    """The announcing peers, by client."""
    departed: list[Peer] = field(default_factory=list)
    remember: bool = True
    """Whether to keep results and peers; off for a long run, which needs only counts."""
    single_announces: list[bytes] = field(default_factory=list)
    """Torrents with one announce each, answered or not."""
    answers: Counter[ResultKind] = field(default_factory=Counter)
    acknowledged: Counter[bytes] = field(default_factory=Counter)
    """Answered joins and stops, by torrent. The store counts them when it applies them."""
    stalls: list[tuple[float, float]] = field(default_factory=list)
    """When this process was stalled or suspended, and read no answers: (start, end)."""
    _churns: bool = True
    _running: asyncio.Event = field(default_factory=asyncio.Event)
    _in_progress: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Load"]:
        """Announces inside the block."""
        self._running.set()
        async with asyncio.TaskGroup() as clients:
            tasks = [clients.create_task(self._client(number)) for number in range(self.pace.peers)]
            tasks.append(clients.create_task(self._detect_stalls()))
            if self.remember:
                tasks.append(clients.create_task(self._keep_single_announces()))
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()

    def settle(self) -> None:
        """From now on no client joins or leaves."""
        self._churns = False

    async def pause(self) -> None:
        """Stops announcing until ``resume``; returns when no request is in progress."""
        self._running.clear()
        while self._in_progress:
            await asyncio.sleep(0.02)

    def resume(self) -> None:
        self._running.set()

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether ``condition`` became true within ``seconds``."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.02)
        return True

    def all_answered_since(self, moment: float) -> bool:
        """Whether every client sent an announce after ``moment`` that was answered."""
        return len(self.active) == self.pace.peers and all(peer.last_sent > moment for peer in self.active.values())

    async def _client(self, number: int) -> None:
        rng = random.Random(f"{self.seed}/{number}")
        host = 1 + number % 250
        connection = Connection(f"127.{20 + number // 250 % 200}.0.{host}", keep=number % 2 == 0)
        churns = number < self.pace.churning * self.pace.peers
        life = 0
        await asyncio.sleep(rng.random() * self.pace.interval)
        try:
            while True:
                peer = self._new_peer(number, life, rng)
                life += 1
                await self._live(peer, connection, rng, rng.randrange(2, 7) if churns else 0)
                if self.remember:
                    self.departed.append(peer)
        finally:
            connection.close()

    async def _live(self, peer: Peer, connection: Connection, rng: random.Random, announces: int) -> None:
        """Announces until the peer leaves, after ``announces``; 0: it stays."""
        number = int(peer.key, 16)
        self.active[number] = peer
        event = "started"
        while not (announces and peer.answered >= announces and self._churns):
            if await self._announce(peer, connection, number, event):
                event = ""
            await asyncio.sleep(self.pace.interval * rng.uniform(0.8, 1.0))
        del self.active[number]
        peer.leaves = "silent"
        if rng.random() < 0.6 and await self._announce(peer, connection, number, "stopped"):
            peer.leaves = "stopped"

    async def _keep_single_announces(self) -> None:
        """Announces once in each of many torrents, so that every lost announce is visible.

        In the other torrents unanswered announces that were applied would hide as many lost ones.
        """
        connection = Connection("127.19.0.1", keep=False)
        while True:
            if self._churns:
                number = len(self.single_announces)
                named = info_hash_of(self.seed, -1 - number)
                self.single_announces.append(named)
                peer = Peer(named, b"-DR0001-" + named[:12], 1024 + number % 60_000, 0, f"{number:08X}")
                await self._announce(peer, connection, number, "started")
            await asyncio.sleep(SINGLE_ANNOUNCE_SECONDS)

    async def _announce(self, peer: Peer, connection: Connection, number: int, event: str) -> bool:
        await self._running.wait()
        self._in_progress += 1
        try:
            sent = time.monotonic()
            port = self.ports[number % len(self.ports)]
            answer = await connection.get(port, peer.target(event))
            now = time.monotonic()
        finally:
            self._in_progress -= 1
        if answer.kind == "timed out" and self._was_stalled(sent):
            answer = Answer("missed", "the load generator was stalled")
        self.answers[answer.kind] += 1
        if self.remember:
            self.results.append(AnnounceResult(now, sent, answer.kind, answer.detail, event, peer.info_hash))
        if answer.kind != "answered":
            return False
        self.acknowledged[peer.info_hash] += bool(event)
        if not peer.answered:
            peer.joined_epoch = time.time()
        else:
            peer.max_pause = max(peer.max_pause, now - peer.last_sent)
        peer.answered += 1
        peer.last_sent, peer.last_answer = sent, now
        return True

    async def _detect_stalls(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(_PULSE_SECONDS)
            now = time.monotonic()
            if now - before > _STALL_SECONDS:
                self.stalls.append((before, now))
            before = now

    def _was_stalled(self, since: float) -> bool:
        return any(end > since for _, end in self.stalls) or time.monotonic() - since > 2 * TIMEOUT_SECONDS

    def _new_peer(self, number: int, life: int, rng: random.Random) -> Peer:
        torrent = number % self.pace.torrents
        named = hashlib.sha1(f"{self.seed}/{number}/{life}".encode(), usedforsecurity=False).digest()
        return Peer(
            info_hash=info_hash_of(self.seed, torrent),
            peer_id=b"-DR0001-" + named[:12],
            port=1024 + number % 60_000,
            bytes_left=0 if rng.random() < 0.5 else rng.randrange(1, TORRENT_BYTES),
            key=f"{number:08X}",
        )


def info_hash_of(seed: int, torrent: int) -> bytes:
    return hashlib.sha1(f"experiment {seed}/{torrent}".encode(), usedforsecurity=False).digest()
