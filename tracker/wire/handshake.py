"""The peer wire protocol: handshake and messages (BEP 3), with the fast extension (BEP 6). Messages of other extensions
are skipped. All input is hostile: whatever breaks the protocol raises PeerProtocolError."""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from tracker.bittorrent import InfoHash, PeerId
from tracker.errors import PeerProtocolError

HANDSHAKE_LENGTH = 68
BLOCK_LENGTH = 16 * 1024
"""Bytes in one request. Clients refuse longer ones."""
MAX_MESSAGE_LENGTH = 128 * 1024
"""A bitfield of 1,048,568 pieces; twice as many as a .torrent file of 10 MiB can have."""

_PROTOCOL = b"\x13BitTorrent protocol"
_RESERVED: Final = slice(20, 28)
_HASH: Final = slice(28, 48)
_FAST_BYTE, _FAST_BIT = 7, 0x04
_LENGTH = struct.Struct(">I")
_NUMBERS = {1: struct.Struct(">I"), 2: struct.Struct(">II"), 3: struct.Struct(">III")}
_BLOCK_HEAD = struct.Struct(">II")


class Handshake(NamedTuple):
    info_hash: InfoHash
    """Of a v2 torrent the first 20 bytes of its hash (BEP 52)."""
    peer_id: PeerId
    fast: bool = False
    """Whether the sender supports the fast extension (BEP 6). It is used if both do."""


class Kind(IntEnum):
    """The kind of a message. Messages of other kinds are skipped."""

    CHOKE = 0
    UNCHOKE = 1
    INTERESTED = 2
    NOT_INTERESTED = 3
    HAVE = 4
    BITFIELD = 5
    REQUEST = 6
    PIECE = 7
    CANCEL = 8
    HAVE_ALL = 14
    HAVE_NONE = 15
    REJECT = 16


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Only the fields of its kind are set."""

    kind: Kind
    index: int = 0
    """The piece: of HAVE, REQUEST, PIECE, CANCEL and REJECT."""
    begin: int = 0
    """The block's first byte in the piece: of REQUEST, PIECE, CANCEL and REJECT."""
    length: int = 0
    """The block's length in bytes: of REQUEST, CANCEL and REJECT."""
    data: bytes = b""
    """Of BITFIELD: one bit for each piece, the first one highest. Of PIECE: the block."""


_KINDS = {int(kind): kind for kind in Kind}
_FIELDS = {Kind.HAVE: 1, Kind.REQUEST: 3, Kind.CANCEL: 3, Kind.REJECT: 3}
"""How many numbers a message has."""
_STATES = frozenset({Kind.BITFIELD, Kind.HAVE_ALL, Kind.HAVE_NONE})


def encode_handshake(handshake: Handshake) -> bytes:
    reserved = bytearray(8)
    if handshake.fast:
        reserved[_FAST_BYTE] |= _FAST_BIT
    return _PROTOCOL + bytes(reserved) + handshake.info_hash + handshake.peer_id


def encode_message(message: Message) -> bytes:
    """Raises struct.error for a number outside 0 to 2^32 - 1."""
    if message.kind is Kind.PIECE:
        body = _BLOCK_HEAD.pack(message.index, message.begin) + message.data
    elif message.kind is Kind.BITFIELD:
        body = message.data
    elif number := _FIELDS.get(message.kind):
        body = _NUMBERS[number].pack(*(message.index, message.begin, message.length)[:number])
    else:
        body = b""
    return _LENGTH.pack(1 + len(body)) + bytes((message.kind,)) + body


def parse_message(payload: bytes) -> Message | None:
    """A message without its length prefix. ``None`` for a keep-alive (no bytes) and for other kinds."""
    kind = _KINDS.get(payload[0]) if payload else None
    if kind is None:
        return None
    body = payload[1:]
    if kind is Kind.BITFIELD:
        return Message(kind, data=body)
    if kind is Kind.PIECE:
        if len(body) < _BLOCK_HEAD.size:
            raise PeerProtocolError("message of a wrong length")
        index, begin = _BLOCK_HEAD.unpack_from(body)
        return Message(kind, index, begin, data=body[_BLOCK_HEAD.size :])
    number = _FIELDS.get(kind, 0)
    if len(body) != 4 * number:
        raise PeerProtocolError("message of a wrong length")
    return Message(kind, *_NUMBERS[number].unpack(body)) if number else Message(kind)


class PeerStream:
    """Decodes the bytes of one peer. Holds at most one incomplete message and the last bytes fed."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data

    def handshake(self) -> Handshake | None:
        """The handshake, which must come first; ``None`` while it is incomplete. Unknown reserved bits are ignored.
        Raises PeerProtocolError at the first wrong byte."""
        head = bytes(self._data[:HANDSHAKE_LENGTH])
        if not _PROTOCOL.startswith(head[: len(_PROTOCOL)]):
            raise PeerProtocolError("no BitTorrent handshake")
        if len(head) < HANDSHAKE_LENGTH:
            return None
        del self._data[:HANDSHAKE_LENGTH]
        fast = bool(head[_RESERVED][_FAST_BYTE] & _FAST_BIT)
        return Handshake(InfoHash(head[_HASH]), PeerId(head[_HASH.stop :]), fast)

    def messages(self) -> list[Message]:
        """The complete messages so far, without keep-alives and messages of other kinds."""
        found: list[Message] = []
        at = 0
        while len(self._data) - at >= _LENGTH.size:
            length: int = _LENGTH.unpack_from(self._data, at)[0]
            if length > MAX_MESSAGE_LENGTH:
                raise PeerProtocolError("message too long")
            end = at + _LENGTH.size + length
            if end > len(self._data):
                break
            message = parse_message(bytes(self._data[at + _LENGTH.size : end]))
            if message is not None:
                found.append(message)
            at = end
        del self._data[:at]
        return found


class ShownPieces:
    """The pieces that a peer shows, of a torrent with ``count`` pieces. Each HAVE costs the same, however many there
    are."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.number = 0
        """How many pieces the peer shows."""
        self.stated = False
        """Whether the peer sent a bitfield, have-all or have-none: it may send one of them, once."""
        self._bits = bytearray(-(-count // 8))
        """The first piece is the highest bit of the first byte."""

    def add(self, message: Message) -> None:
        """Messages of other kinds change nothing."""
        if message.kind is Kind.HAVE:
            if message.index >= self.count:
                raise PeerProtocolError("piece out of range")
            self.number += message.index not in self
            self._bits[message.index // 8] |= 0x80 >> message.index % 8
        elif message.kind in _STATES:
            if self.stated:
                raise PeerProtocolError("pieces stated twice")
            self.stated = True
            spare = -self.count % 8
            if message.kind is Kind.BITFIELD:
                bits = int.from_bytes(message.data, "big")
                if len(message.data) != len(self._bits) or bits & ((1 << spare) - 1):
                    raise PeerProtocolError("bitfield of a wrong length")
            else:
                bits = ((1 << self.count) - 1) << spare if message.kind is Kind.HAVE_ALL else 0
            self._bits = bytearray(bits.to_bytes(len(self._bits), "big"))
            self.number = bits.bit_count()

    def __contains__(self, index: int) -> bool:
        return bool(self._bits[index // 8] & 0x80 >> index % 8)
