"""What a peer sends after a connect: a handshake, messages, the pieces shown and the blocks of one piece."""

import struct
from collections.abc import Iterable

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
from tracker.wire.torrent_file import Piece
from tracker.workers.prober import MAX_UNCHOKES, Download

MAX_LENGTH = 600
_COUNT = 10
_INDEX = 9
_LENGTH = 9 * BLOCK_LENGTH + 3


def check(data: bytes) -> None:
    whole = _decode(data, max(1, len(data)))
    assert whole == _decode(data, 1), "the size of the chunks changes nothing"
    greeting, messages, _ = whole
    if greeting is not None:
        assert _decode(encode_handshake(greeting), 100)[0] == greeting
    encoded = b"".join(map(encode_message, messages))
    assert greeting is None or _decode(encode_handshake(greeting) + encoded, 100)[1] == messages
    _show(messages)
    _download(messages)


def _decode(data: bytes, size: int) -> tuple[Handshake | None, list[Message], str]:
    """The handshake, the messages before the first error, and the error."""
    stream, greeting, messages = PeerStream(), None, list[Message]()
    try:
        for at in range(0, len(data), size):
            stream.feed(data[at : at + size])
            greeting = greeting or stream.handshake()
            # An error hides the complete messages before it that came in the same chunk.
            messages += stream.messages() if greeting else []
    except PeerProtocolError as error:
        return greeting, [], str(error)
    return greeting, messages, ""


def _show(messages: list[Message]) -> None:
    shown = ShownPieces(_COUNT)
    for message in messages:
        try:
            shown.add(message)
        except PeerProtocolError:
            return
        assert shown.number == sum(index in shown for index in range(_COUNT)) <= _COUNT


def _download(messages: list[Message]) -> None:
    download, requested = Download(Piece(_INDEX, _LENGTH, bytes(20))), 0
    for message in messages:
        try:
            download.receive(message)
        except PeerProtocolError:
            return
        requests = download.requests()
        requested += len(requests)
        assert all(0 <= each.begin < each.begin + each.length <= _LENGTH for each in requests)
        assert len(download._blocks) <= 8 and not (requests and download.choked)
    assert requested <= 10 + 8 * MAX_UNCHOKES


def seeds() -> Iterable[bytes]:
    plain = Handshake(InfoHash(b"h" * 20), PeerId(b"-SK0001-abcdefghijkl"))
    bare = [Kind.CHOKE, Kind.UNCHOKE, Kind.INTERESTED, Kind.NOT_INTERESTED, Kind.HAVE_ALL, Kind.HAVE_NONE]
    messages = [
        *map(Message, bare),
        Message(Kind.HAVE, 3),
        Message(Kind.BITFIELD, data=b"\xff\xc0"),
        Message(Kind.BITFIELD, data=b"\xff\xff"),
        Message(Kind.REQUEST, 1, 2, 3),
        Message(Kind.CANCEL, 1, 2, 3),
        Message(Kind.REJECT, _INDEX, 0, BLOCK_LENGTH),
        Message(Kind.PIECE, _INDEX, 0, data=b"block"),
    ]
    chunks = [encode_message(each) for each in messages]
    chunks += [bytes(4), b"\0\0\0\2\x14\0", struct.pack(">I", 2**31), b"\0\0\0\2\0\0", b"\0\0\0\5\x07abcd"]
    greetings = [encode_handshake(plain), encode_handshake(plain._replace(fast=True))]
    unchoke, choke = encode_message(Message(Kind.UNCHOKE)), encode_message(Message(Kind.CHOKE))
    yield from [*greetings, b"\x13BitTorrent protocoL", b"", greetings[0][:30]]
    yield from (greetings[0] + chunk for chunk in chunks)
    yield from (greetings[1] + unchoke + chunk for chunk in chunks)
    yield greetings[1] + encode_message(Message(Kind.HAVE_ALL)) + encode_message(Message(Kind.HAVE_NONE))
    yield greetings[1] + encode_message(Message(Kind.HAVE, _COUNT))
    yield greetings[1] + (unchoke + choke) * (MAX_UNCHOKES + 1)
