"""Connects to peers to check what they announce: that they accept connections, answer for a torrent, show all its
pieces, or send one.

Every peer may announce any port, so a probe must harm no third party: only routable addresses, no port below 1024, one
connection per endpoint and hour, three a day per address unless it is a claimant's, two per second in all, by turns of
addresses. An encryption-only client closes a plain connection exactly as
a client without the torrent does, so a missing handshake proves nothing. Only what the protocol proves is a lie.

All times and all bytes read are bounded. A connection lasts at most 70 s, so at most 140 are open, each with at most
0.5 MB.
"""

import asyncio
import errno
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from weakref import WeakValueDictionary

from tracker.bittorrent import Endpoint, InfoHash, PeerId, is_routable
from tracker.wire.endpoint import format_address
from tracker.wire.torrent_file import Pieces
from tracker.workers.prober.examination import READ_BYTES, Connection, Examination, Outcome, Status, Times

__all__ = ["Level", "Outcome", "Prober", "Status", "Times", "has_allowed_port", "is_target", "network_of"]

MIN_PORT = 1024
RETRY_SECONDS = 3600.0
CHECKS_A_DAY = 3
"""Of an address (IPv6: a /64), beside the limit of each endpoint."""
DAY_SECONDS = 86_400.0
CONNECTS_PER_SECOND = 2
MAX_QUEUED = 120
"""Probes that wait for their turn: a minute of them."""
MAX_PIECE_LENGTH = 4 * 1024 * 1024

_6TO4 = b"\x20\x02"
_UNREACHABLE = frozenset({errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT})
"""Errors of the peer. Others, such as too many open files or no IPv6 here, say nothing about it."""


class Level(StrEnum):
    HANDSHAKE = "handshake"
    """The peer answers a handshake for the torrent. Given its pieces, it must also show all of them."""
    PIECE = "piece"
    """It sends a random piece with the right SHA-1 hash."""


def is_target(endpoint: Endpoint) -> bool:
    """Whether this may be the endpoint of a peer: a routable address, and no port of another service."""
    address = endpoint[:-2]
    # A 6to4 address contains the IPv4 address of another host, its router.
    return has_allowed_port(endpoint) and is_routable(address) and not address.startswith(_6TO4)


def has_allowed_port(endpoint: Endpoint) -> bool:
    return len(endpoint) in (6, 18) and int.from_bytes(endpoint[-2:], "big") >= MIN_PORT


def network_of(endpoint: Endpoint) -> bytes:
    """The IPv4 address, or the /64 of an IPv6 address: what one host controls."""
    return endpoint[:-2][:8]


@dataclass(eq=False)
class Prober:
    """One for the whole process, as the limits apply to all its probes.

    ``is_enabled`` is asked before each probe, ``count`` counts a name, ``monotonic`` is in seconds, ``randbelow``
    chooses the piece. ``is_target`` says where a probe may connect; tests allow loopback and nothing else.
    """

    is_enabled: Callable[[], bool]
    count: Callable[[str], None]
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    randbelow: Callable[[int], int] = secrets.randbelow
    times: Times = field(default_factory=Times)
    is_target: Callable[[Endpoint], bool] = is_target

    def __post_init__(self) -> None:
        self._peer_id = PeerId(b"-SK0001-" + secrets.token_hex(6).encode())
        self._turns = asyncio.Lock()
        self._next_turn = 0.0
        self._queued: set[Endpoint] = set()
        self._tried: dict[Endpoint, float] = {}
        """The time of the last connection, oldest first. The pace bounds it: 7,200 in an hour."""
        self._checked: dict[bytes, tuple[float, int]] = {}
        """(time of the last check, number of checks) of an address, oldest first. The pace bounds it too."""
        self._waiting = WeakValueDictionary[bytes, asyncio.Lock]()
        """Of each address with waiting probes: one of them at a time waits for the next connection."""

    def has_checks_left(self, endpoint: Endpoint) -> bool:
        """Whether the address was checked fewer than three times, or not for a day."""
        oldest = self.monotonic() - DAY_SECONDS
        while self._checked and (first := next(iter(self._checked.items())))[1][0] <= oldest:
            del self._checked[first[0]]
        return self._checked.get(network_of(endpoint), (0.0, 0))[1] < CHECKS_A_DAY

    async def check(
        self,
        endpoint: Endpoint,
        info_hash: InfoHash,
        level: Level = Level.HANDSHAKE,
        pieces: Pieces | None = None,
        *,
        is_claimant: bool = False,
    ) -> Outcome:
        """Probes a peer. Never raises for what the peer does.

        ``is_claimant``: the endpoint is that of a claimant's announces; only these have no limit per address.
        ``pieces`` are for a peer that announced ``left=0``; without them any peer with the torrent is confirmed, and
        level ``piece`` cannot be checked. Of a v2 torrent ``info_hash`` is cut to 20 bytes.
        """
        outcome = self._skipped(endpoint)
        if outcome is None:
            outcome = await self._check(endpoint, info_hash, level, pieces, limited=not is_claimant)
        self.count(f"probes.{outcome.status}")
        return outcome

    async def connect(self, endpoint: Endpoint) -> Outcome:
        """Whether a peer accepts a connection, which is closed at once. The same limits apply."""
        outcome = self._skipped(endpoint) or await self._probe(endpoint, None, limited=True)
        self.count(f"probes.{outcome.status}")
        return outcome

    def _skipped(self, endpoint: Endpoint) -> Outcome | None:
        if not self.is_enabled():
            return Outcome(Status.SKIPPED, "probes are disabled")
        return None if self.is_target(endpoint) else Outcome(Status.SKIPPED, "address or port not allowed")

    async def _check(
        self, endpoint: Endpoint, info_hash: InfoHash, level: Level, pieces: Pieces | None, *, limited: bool
    ) -> Outcome:
        piece = None
        if level is Level.PIECE:
            if pieces is None:
                return Outcome(Status.UNKNOWN, "no SHA-1 hashes of its pieces")
            piece = pieces.piece(self.randbelow(pieces.count))
            if piece.length > MAX_PIECE_LENGTH:
                return Outcome(Status.UNKNOWN, "piece longer than 4 MiB")
        examination = Examination(info_hash, self._peer_id, pieces, piece)
        return await self._probe(endpoint, examination, limited=limited)

    async def _probe(self, endpoint: Endpoint, examination: Examination | None, *, limited: bool) -> Outcome:
        if endpoint in self._queued or self._was_tried(endpoint):
            return Outcome(Status.DEFERRED, "probed within the last hour")
        if len(self._queued) >= MAX_QUEUED:
            return Outcome(Status.DEFERRED, "too many probes are waiting")
        if not await self._take_turn(endpoint, limited=limited):
            return Outcome(Status.DEFERRED, "address checked three times within a day")
        return await self._connect(endpoint, examination)

    def _was_tried(self, endpoint: Endpoint) -> bool:
        oldest = self.monotonic() - RETRY_SECONDS
        while self._tried and next(iter(self._tried.values())) <= oldest:
            del self._tried[next(iter(self._tried))]
        return endpoint in self._tried

    async def _take_turn(self, endpoint: Endpoint, *, limited: bool) -> bool:
        """Waits until the next connection may start. False if the address has no check left."""
        self._queued.add(endpoint)
        try:
            async with self._waiting.setdefault(network_of(endpoint), asyncio.Lock()):
                if limited and not self.has_checks_left(endpoint):
                    return False
                async with self._turns:
                    await self.sleep(max(0.0, self._next_turn - self.monotonic()))
                    self._note(endpoint, limited=limited)
                return True
        finally:
            self._queued.discard(endpoint)

    def _note(self, endpoint: Endpoint, *, limited: bool) -> None:
        """Notes a connection that starts now."""
        now = self.monotonic()
        self._next_turn = now + 1 / CONNECTS_PER_SECOND
        self._tried[endpoint] = now
        if limited:
            network = network_of(endpoint)
            self._checked[network] = now, self._checked.pop(network, (0.0, 0))[1] + 1

    async def _connect(self, endpoint: Endpoint, examination: Examination | None) -> Outcome:
        host, port = format_address(endpoint[:-2]), int.from_bytes(endpoint[-2:], "big")
        try:
            async with asyncio.timeout(self.times.connect):
                reader, writer = await asyncio.open_connection(host, port, limit=READ_BYTES)
        except TimeoutError:
            return Outcome(Status.UNREACHABLE, "connection timed out")
        except OSError as error:
            if error.errno in _UNREACHABLE:
                return Outcome(Status.UNREACHABLE, "connection refused or no route")
            return Outcome(Status.UNKNOWN, "no connection possible from here")
        try:
            if examination is None:
                return Outcome(Status.CONFIRMED, "connection accepted")
            limit = asyncio.timeout(self.times.handshake)
            return await examination.run(Connection(reader, writer), limit, self.times.piece)
        finally:
            writer.transport.abort()
