"""Connects to peers to check what they announce: that they accept connections, answer for a torrent, show all its
pieces, or send one.

Every peer may announce any port, so a probe must harm no third party: only routable addresses, no port below 1024, one
connection per endpoint and hour, three a day per address unless it is a claimant's, two per second in all, by turns of
addresses. An encryption-only client closes a plain connection exactly as a client without the torrent does, so a
missing handshake proves nothing. Only what the protocol proves is a lie.

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
from hashlib import sha1
from weakref import WeakValueDictionary

from tracker.bittorrent import Endpoint, InfoHash, PeerId, is_routable
from tracker.errors import PeerProtocolError
from tracker.wire.endpoint import format_address
from tracker.wire.handshake import (
    BLOCK_LENGTH,
    Handshake,
    Kind,
    Message,
    PeerStream,
    ShownPieces,
    encode_handshake,
    encode_message,
)
from tracker.wire.torrent_file import Piece, Pieces

MAX_UNCHOKES = 10

_WINDOW = 8 * BLOCK_LENGTH
"""Bytes requested and not hashed yet. 8 blocks of 16 KiB fetch 4 MiB in 60 s over 1.8 s of round trip."""


class Download:
    """The blocks of one piece, requested and hashed in order. Holds at most 8 blocks."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.choked = True
        self._unchokes = 0
        self._hash = sha1(usedforsecurity=False)
        self._hashed = 0
        self._requested = 0
        """All blocks before this byte were requested."""
        self._blocks: dict[int, bytes] = {}

    @property
    def is_complete(self) -> bool:
        return self._hashed == self.piece.length

    @property
    def is_correct(self) -> bool:
        return self._hash.digest() == self.piece.sha1

    def receive(self, message: Message) -> None:
        """Messages of other kinds change nothing. Raises PeerProtocolError."""
        if message.kind is Kind.CHOKE:
            self.choked = True
            self._requested = self._hashed  # requests made before are void
        elif message.kind is Kind.UNCHOKE and self.choked:
            self.choked = False
            self._unchokes += 1
            if self._unchokes > MAX_UNCHOKES:
                raise PeerProtocolError("chokes too often")
        elif message.kind is Kind.REJECT and message.index == self.piece.index and not self.choked:
            raise PeerProtocolError("request rejected")
        elif message.kind is Kind.PIECE and message.index == self.piece.index:
            self._add(message.begin, message.data)

    def requests(self) -> list[Message]:
        """The next requests; none while choked."""
        found: list[Message] = []
        end = 0 if self.choked else min(self.piece.length, self._hashed + _WINDOW)
        while self._requested < end:
            begin, self._requested = self._requested, self._requested + BLOCK_LENGTH
            if begin not in self._blocks:
                found.append(Message(Kind.REQUEST, self.piece.index, begin, self._length(begin)))
        return found

    def _length(self, begin: int) -> int:
        return min(BLOCK_LENGTH, self.piece.length - begin)

    def _add(self, begin: int, block: bytes) -> None:
        """A block that was not requested, or came before, changes nothing."""
        if begin % BLOCK_LENGTH or not self._hashed <= begin < self._requested or begin in self._blocks:
            return
        if len(block) != self._length(begin):
            raise PeerProtocolError("block of a wrong length")
        self._blocks[begin] = block
        while (ready := self._blocks.pop(self._hashed, None)) is not None:
            self._hash.update(ready)
            self._hashed += len(ready)


MAX_HIDDEN_PIECES = 50
"""A seeder with a lazy bitfield (old libtorrent, Transmission and Azureus) leaves out up to 50 pieces, and shows them a
moment later."""
READ_BYTES = 32 * 1024

_MAX_OTHER_BYTES = 192 * 1024
"""Bytes read beside the blocks that were requested: a bitfield, extended messages, some thousand HAVE. The shortest
messages are the dearest: parsing so many bytes of them takes 0.1 s."""
_BLOCK_OVERHEAD = 13
"""Bytes of a block's message before the block."""


class Status(StrEnum):
    """What a probe has shown. The counter ``probes.<status>`` counts each."""

    CONFIRMED = "confirmed"
    UNKNOWN = "unknown"
    """It cannot be checked: honest peers behave like this too."""
    UNREACHABLE = "unreachable"
    """No connection to the endpoint: refused, timed out, or no route to the host."""
    LIED = "lied"
    """The protocol proves that the peer does not have what it announced."""
    SKIPPED = "skipped"
    """No connection was attempted, and none will be: probes are disabled, or the endpoint is not allowed."""
    DEFERRED = "deferred"
    """No connection was attempted now: try again later."""


@dataclass(frozen=True, slots=True)
class Times:
    """Time limits in seconds. The handshake's includes the pieces that the peer shows, at level ``handshake``."""

    connect: float = 5.0
    handshake: float = 5.0
    piece: float = 60.0


class Connection:
    """Reads and writes to one peer. Raises ConnectionError when it is closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._stream = PeerStream()
        self._bytes_left = _MAX_OTHER_BYTES

    def allow(self, number: int) -> None:
        """Allows the peer to send so many more bytes."""
        self._bytes_left += number

    async def handshake(self) -> Handshake:
        while (handshake := self._stream.handshake()) is None:
            await self._read()
        return handshake

    async def messages(self) -> list[Message]:
        """The next messages, at least one."""
        while not (messages := self._stream.messages()):
            await self._read()
        return messages

    async def send(self, data: bytes) -> None:
        """Waits while the peer does not read."""
        if self._writer.is_closing():  # uvloop would raise RuntimeError
            raise ConnectionResetError
        self._writer.write(data)
        await self._writer.drain()

    async def _read(self) -> None:
        data = await self._reader.read(READ_BYTES)
        if not data:
            raise ConnectionResetError
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise PeerProtocolError("peer sends too much")
        self._stream.feed(data)


class Examination:
    """What one probe asks a peer, and what its answers show. ``piece`` is set at level ``piece``."""

    def __init__(self, info_hash: InfoHash, peer_id: PeerId, pieces: Pieces | None, piece: Piece | None) -> None:
        self._handshake = Handshake(info_hash, peer_id, fast=True)
        self._shown = ShownPieces(pieces.count) if pieces else None
        self._download = Download(piece) if piece else None

    async def run(self, peer: Connection, limit: asyncio.Timeout, piece_seconds: float) -> Status:
        """``limit`` is that of the handshake and the pieces shown. A download has ``piece_seconds`` from then on."""
        try:
            async with limit:
                await peer.send(encode_handshake(self._handshake))
                answer = await peer.handshake()
                if answer.info_hash != self._handshake.info_hash or answer.peer_id == self._handshake.peer_id:
                    return Status.UNKNOWN  # for another torrent, or our own came back
                if self._shown is None:
                    return Status.CONFIRMED
                if answer.fast:  # both sides then have to say which pieces they have
                    await peer.send(encode_message(Message(Kind.HAVE_NONE)))
                if self._download is not None:
                    limit.reschedule(asyncio.get_running_loop().time() + piece_seconds)
                    await peer.send(encode_message(Message(Kind.INTERESTED)))
                return await self._watch(peer, self._shown, self._download)
        except (OSError, PeerProtocolError):  # TimeoutError is an OSError
            return Status.UNKNOWN

    async def _watch(self, peer: Connection, shown: ShownPieces, download: Download | None) -> Status:
        """Until the peer has shown all pieces or sent the one to download, or has shown too few."""
        while True:
            for message in await peer.messages():
                shown.add(message)
                # A super-seeder shows none at first, and single ones later (BEP 16), with no bitfield or an empty one.
                if message.kind is Kind.BITFIELD and 0 < shown.number < shown.count - MAX_HIDDEN_PIECES:
                    return Status.LIED
                if download is not None:
                    download.receive(message)
                    if download.is_complete:
                        return Status.CONFIRMED if download.is_correct else Status.LIED
                elif shown.number == shown.count:
                    return Status.CONFIRMED
            if download is not None and download.piece.index in shown:
                requests = download.requests()
                peer.allow(sum(each.length + _BLOCK_OVERHEAD for each in requests))
                await peer.send(b"".join(map(encode_message, requests)))


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
    """One for the whole process, as the limits apply to all its probes. ``is_enabled`` is asked before each probe,
    ``count`` counts a name, ``monotonic`` is in seconds, ``randbelow`` chooses the piece. ``is_target`` says where a
    probe may connect; tests allow loopback and nothing else."""

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
    ) -> Status:
        """Probes a peer. Never raises for what the peer does.

        ``is_claimant``: the endpoint is that of a claimant's announces; only these have no limit per address.
        ``pieces`` are for a peer that announced ``left=0``; without them any peer with the torrent is confirmed, and
        level ``piece`` cannot be checked. Of a v2 torrent ``info_hash`` is cut to 20 bytes.
        """
        status = Status.SKIPPED
        if self._may_probe(endpoint):
            asks, piece = level is Level.PIECE, None
            if asks and pieces is not None:
                piece = pieces.piece(self.randbelow(pieces.count))
            if asks and (piece is None or piece.length > MAX_PIECE_LENGTH):
                status = Status.UNKNOWN
            else:
                examination = Examination(info_hash, self._peer_id, pieces, piece)
                status = await self._probe(endpoint, examination, limited=not is_claimant)
        self.count(f"probes.{status}")
        return status

    async def connect(self, endpoint: Endpoint) -> Status:
        """Whether a peer accepts a connection, which is closed at once. The same limits apply."""
        may_probe = self._may_probe(endpoint)
        status = await self._probe(endpoint, None, limited=True) if may_probe else Status.SKIPPED
        self.count(f"probes.{status}")
        return status

    def _may_probe(self, endpoint: Endpoint) -> bool:
        return self.is_enabled() and self.is_target(endpoint)

    async def _probe(self, endpoint: Endpoint, examination: Examination | None, *, limited: bool) -> Status:
        oldest = self.monotonic() - RETRY_SECONDS
        while self._tried and next(iter(self._tried.values())) <= oldest:
            del self._tried[next(iter(self._tried))]
        is_queued = endpoint in self._queued or len(self._queued) >= MAX_QUEUED
        if is_queued or endpoint in self._tried or not await self._take_turn(endpoint, limited=limited):
            return Status.DEFERRED
        return await self._connect(endpoint, examination)

    async def _take_turn(self, endpoint: Endpoint, *, limited: bool) -> bool:
        """Waits until the next connection may start. False if the address has no check left."""
        self._queued.add(endpoint)
        try:
            network = network_of(endpoint)
            async with self._waiting.setdefault(network, asyncio.Lock()):
                if limited and not self.has_checks_left(endpoint):
                    return False
                async with self._turns:
                    await self.sleep(max(0.0, self._next_turn - self.monotonic()))
                    now = self.monotonic()  # the connection starts now
                    self._next_turn, self._tried[endpoint] = now + 1 / CONNECTS_PER_SECOND, now
                    if limited:
                        self._checked[network] = now, self._checked.pop(network, (0.0, 0))[1] + 1
                return True
        finally:
            self._queued.discard(endpoint)

    async def _connect(self, endpoint: Endpoint, examination: Examination | None) -> Status:
        host, port = format_address(endpoint[:-2]), int.from_bytes(endpoint[-2:], "big")
        try:
            async with asyncio.timeout(self.times.connect):
                reader, writer = await asyncio.open_connection(host, port, limit=READ_BYTES)
        except TimeoutError:
            return Status.UNREACHABLE
        except OSError as error:
            return Status.UNREACHABLE if error.errno in _UNREACHABLE else Status.UNKNOWN
        try:
            if examination is None:
                return Status.CONFIRMED
            limit = asyncio.timeout(self.times.handshake)
            return await examination.run(Connection(reader, writer), limit, self.times.piece)
        finally:
            writer.transport.abort()
