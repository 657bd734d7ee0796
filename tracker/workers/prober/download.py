"""Downloads one piece from a peer: which blocks to request next, and the hash of what came. Pure: no socket."""

from hashlib import sha1

from tracker.errors import PeerProtocolError
from tracker.wire.handshake import BLOCK_LENGTH, Kind, Message
from tracker.wire.torrent_file import Piece

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
