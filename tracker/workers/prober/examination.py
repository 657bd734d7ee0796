"""What a probe asks a peer over one connection, and what its answers show, also the download of a piece. Pure."""

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha1
from typing import Final, NamedTuple

from tracker.bittorrent import InfoHash, PeerId
from tracker.errors import PeerProtocolError
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


class Outcome(NamedTuple):
    status: Status
    reason: str
    """A fixed text for operators, without addresses."""


@dataclass(frozen=True, slots=True)
class Times:
    """Time limits in seconds. The handshake's includes the pieces that the peer shows, at level ``handshake``."""

    connect: float = 5.0
    handshake: float = 5.0
    piece: float = 60.0


_INCOMPLETE: Final = Outcome(Status.LIED, "incomplete bitfield")
_COMPLETE: Final = Outcome(Status.CONFIRMED, "handshake, and all pieces shown")
_SENT: Final = Outcome(Status.CONFIRMED, "piece with the right hash")
_WRONG_PIECE: Final = Outcome(Status.LIED, "piece with a wrong hash")


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
        self._missing = "no handshake"
        """What the peer has not done yet: the reason if it closes the connection or lets the time pass."""

    async def run(self, peer: Connection, limit: asyncio.Timeout, piece_seconds: float) -> Outcome:
        """``limit`` is that of the handshake and the pieces shown. A download has ``piece_seconds`` from then on."""
        try:
            async with limit:
                await peer.send(encode_handshake(self._handshake))
                answer = self._checked(await peer.handshake())
                if self._shown is None:
                    return Outcome(Status.CONFIRMED, "handshake")
                self._missing = "no pieces shown"
                if answer.fast:  # both sides then have to say which pieces they have
                    await peer.send(encode_message(Message(Kind.HAVE_NONE)))
                if self._download is None:
                    return await self._watch(peer, self._shown)
                limit.reschedule(asyncio.get_running_loop().time() + piece_seconds)
                return await self._fetch(peer, self._shown, self._download)
        except TimeoutError:
            return Outcome(Status.UNKNOWN, f"{self._missing}: timed out")
        except OSError:
            return Outcome(Status.UNKNOWN, f"{self._missing}: connection closed")
        except PeerProtocolError as error:
            return Outcome(Status.UNKNOWN, str(error))

    def _checked(self, answer: Handshake) -> Handshake:
        if answer.info_hash != self._handshake.info_hash:
            raise PeerProtocolError("handshake for another torrent")
        if answer.peer_id == self._handshake.peer_id:
            raise PeerProtocolError("our own handshake came back")
        return answer

    async def _watch(self, peer: Connection, shown: ShownPieces) -> Outcome:
        """Until the peer has shown all pieces, or too few."""
        while True:
            for message in await peer.messages():
                self._look(shown, message)
                if _disproves(shown, message):
                    return _INCOMPLETE
                if shown.number == shown.count:
                    return _COMPLETE

    async def _fetch(self, peer: Connection, shown: ShownPieces, download: Download) -> Outcome:
        """Until the peer has sent the piece, or shown too few."""
        await peer.send(encode_message(Message(Kind.INTERESTED)))
        while True:
            for message in await peer.messages():
                self._look(shown, message)
                if _disproves(shown, message):
                    return _INCOMPLETE
                download.receive(message)
                if download.is_complete:
                    return _SENT if download.is_correct else _WRONG_PIECE
            if download.piece.index in shown:
                self._missing = "choked" if download.choked else "piece incomplete"
                requests = download.requests()
                peer.allow(sum(each.length + _BLOCK_OVERHEAD for each in requests))
                await peer.send(b"".join(map(encode_message, requests)))

    def _look(self, shown: ShownPieces, message: Message) -> None:
        shown.add(message)
        if shown.number:
            self._missing = "not all pieces shown"


def _disproves(shown: ShownPieces, message: Message) -> bool:
    """Whether a bitfield shows that the peer does not have all pieces.

    A super-seeder shows none at first, and single ones later (BEP 16). It sends no bitfield, or an empty one.
    """
    return message.kind is Kind.BITFIELD and 0 < shown.number < shown.count - MAX_HIDDEN_PIECES
