"""The peer wire protocol, byte by byte (BEP 3, BEP 6)."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import InfoHash, PeerId
from tracker.errors import PeerProtocolError
from tracker.wire.handshake import (
    HANDSHAKE_LENGTH,
    MAX_MESSAGE_LENGTH,
    Handshake,
    Kind,
    Message,
    PeerStream,
    ShownPieces,
    encode_handshake,
    encode_message,
    parse_message,
)

HASH = InfoHash(bytes(range(20)))
PEER = PeerId(b"-SK0001-abcdefghijkl")
PLAIN = b"\x13BitTorrent protocol" + bytes(8) + HASH + PEER

numbers = st.integers(0, 2**32 - 1)
blocks = st.binary(max_size=100)
handshakes = st.builds(
    Handshake,
    st.binary(min_size=20, max_size=20).map(InfoHash),
    st.binary(min_size=20, max_size=20).map(PeerId),
    st.booleans(),
)
_BARE = (Kind.CHOKE, Kind.UNCHOKE, Kind.INTERESTED, Kind.NOT_INTERESTED, Kind.HAVE_ALL, Kind.HAVE_NONE)
messages = st.one_of(
    st.sampled_from(_BARE).map(Message),
    st.builds(Message, st.just(Kind.HAVE), numbers),
    st.builds(Message, st.sampled_from((Kind.REQUEST, Kind.CANCEL, Kind.REJECT)), numbers, numbers, numbers),
    st.builds(Message, st.just(Kind.BITFIELD), data=blocks),
    st.builds(Message, st.just(Kind.PIECE), numbers, numbers, data=blocks),
)


def fed(data: bytes) -> PeerStream:
    stream = PeerStream()
    stream.feed(data)
    return stream


class TestHandshake:
    def test_a_handshake_is_68_bytes(self) -> None:
        assert encode_handshake(Handshake(HASH, PEER)) == PLAIN
        assert len(PLAIN) == HANDSHAKE_LENGTH

    def test_the_fast_extension_is_the_third_lowest_bit(self) -> None:
        """BEP 6"""
        encoded = encode_handshake(Handshake(HASH, PEER, fast=True))
        assert encoded[20:28] == bytes.fromhex("0000000000000004")

    @pytest.mark.parametrize("reserved", ["ffffffffffffffff", "0000000000100005", "8000000000000004"])
    def test_other_reserved_bits_are_ignored(self, reserved: str) -> None:
        """Among them BEP 10's and the DHT's."""
        parsed = fed(PLAIN[:20] + bytes.fromhex(reserved) + PLAIN[28:]).handshake()
        assert parsed == Handshake(HASH, PEER, fast=True)

    @given(handshakes)
    def test_what_is_encoded_is_parsed(self, handshake: Handshake) -> None:
        assert fed(encode_handshake(handshake)).handshake() == handshake

    @pytest.mark.parametrize("data", [b"\x12" + PLAIN[1:], bytes(68)])
    def test_anything_else_is_refused(self, data: bytes) -> None:
        with pytest.raises(PeerProtocolError):
            fed(data).handshake()


class TestMessages:
    @pytest.mark.parametrize(
        ("message", "encoded"),
        [
            (Message(Kind.CHOKE), "00000001 00"),
            (Message(Kind.UNCHOKE), "00000001 01"),
            (Message(Kind.INTERESTED), "00000001 02"),
            (Message(Kind.NOT_INTERESTED), "00000001 03"),
            (Message(Kind.HAVE, 258), "00000005 04 00000102"),
            (Message(Kind.BITFIELD, data=b"\xa0"), "00000002 05 a0"),
            (Message(Kind.REQUEST, 1, 2, 3), "0000000d 06 00000001 00000002 00000003"),
            (Message(Kind.PIECE, 1, 2, data=b"\xff"), "0000000a 07 00000001 00000002 ff"),
            (Message(Kind.CANCEL, 1, 2, 3), "0000000d 08 00000001 00000002 00000003"),
            (Message(Kind.HAVE_ALL), "00000001 0e"),
            (Message(Kind.HAVE_NONE), "00000001 0f"),
            (Message(Kind.REJECT, 1, 2, 3), "0000000d 10 00000001 00000002 00000003"),
        ],
    )
    def test_each_message_has_its_bytes(self, message: Message, encoded: str) -> None:
        assert encode_message(message) == bytes.fromhex(encoded)
        assert fed(bytes.fromhex(encoded)).messages() == [message]

    @pytest.mark.parametrize("payload", [b"", b"\x09\x1a\xe1", b"\x14\x00d1:md6:ut_pexi1eee", b"\x0d\0\0\0\1", b"\xff"])
    def test_keep_alives_and_other_kinds_are_skipped(self, payload: bytes) -> None:
        assert parse_message(payload) is None
        data = struct.pack(">I", len(payload)) + payload
        assert fed(data + encode_message(Message(Kind.UNCHOKE))).messages() == [Message(Kind.UNCHOKE)]

    @pytest.mark.parametrize(
        "payload",
        [
            b"\x00\0",
            b"\x01\0",
            b"\x0e\0",
            b"\x04",
            b"\x04\0\0\0",
            b"\x04" + bytes(5),
            b"\x06" + bytes(11),
            b"\x07" + bytes(7),
        ],
    )
    def test_a_wrong_length_is_refused(self, payload: bytes) -> None:
        with pytest.raises(PeerProtocolError, match="wrong length"):
            parse_message(payload)


class TestStream:
    @given(handshakes, st.lists(messages, max_size=8), st.integers(1, 40))
    def test_chunks_of_any_size_give_the_same(self, handshake: Handshake, sent: list[Message], size: int) -> None:
        data = encode_handshake(handshake) + b"".join(map(encode_message, sent))
        stream, greeting, received = PeerStream(), None, list[Message]()
        for at in range(0, len(data), size):
            stream.feed(data[at : at + size])
            greeting = greeting or stream.handshake()
            received += stream.messages() if greeting else []
        assert (greeting, received) == (handshake, sent)

    @given(st.binary(max_size=80))
    def test_the_first_wrong_byte_of_a_handshake_is_refused(self, data: bytes) -> None:
        stream = fed(data)
        if PLAIN.startswith(data[:20]):
            assert stream.handshake() is None or len(data) >= HANDSHAKE_LENGTH
        else:
            with pytest.raises(PeerProtocolError, match="no BitTorrent handshake"):
                stream.handshake()

    @pytest.mark.parametrize("length", [MAX_MESSAGE_LENGTH + 1, 2**31, 2**32 - 1])
    def test_a_huge_length_is_refused_before_its_bytes_arrive(self, length: int) -> None:
        with pytest.raises(PeerProtocolError, match="too long"):
            fed(struct.pack(">I", length)).messages()

    def test_the_longest_message_is_accepted(self) -> None:
        message = Message(Kind.BITFIELD, data=bytes(MAX_MESSAGE_LENGTH - 1))
        assert fed(encode_message(message)).messages() == [message]

    @given(st.binary(max_size=200))
    def test_any_bytes_give_messages_or_the_one_error(self, data: bytes) -> None:
        try:
            found = fed(data).messages()
        except PeerProtocolError:
            return
        assert all(isinstance(each.kind, Kind) for each in found)


def shown(count: int, *received: Message) -> ShownPieces:
    pieces = ShownPieces(count)
    for message in received:
        pieces.add(message)
    return pieces


class TestShownPieces:
    @given(st.lists(st.booleans(), min_size=1, max_size=70), st.data())
    def test_a_bitfield_and_haves_add_up(self, bits: list[bool], data: st.DataObject) -> None:
        field = bytes(
            sum(bit << (7 - at) for at, bit in enumerate(bits[start : start + 8])) for start in range(0, len(bits), 8)
        )
        indexes = data.draw(st.lists(st.integers(0, len(bits) - 1)))
        haves = [Message(Kind.HAVE, index) for index in indexes]
        pieces = shown(len(bits), Message(Kind.BITFIELD, data=field), *haves)
        expected = {index for index, bit in enumerate(bits) if bit} | set(indexes)
        assert {index for index in range(len(bits)) if index in pieces} == expected
        assert pieces.number == len(expected)

    @pytest.mark.parametrize("count", [1, 7, 8, 9, 1000])
    def test_have_all_shows_all_and_have_none_shows_none(self, count: int) -> None:
        assert shown(count, Message(Kind.HAVE_ALL)).number == count
        assert count - 1 in shown(count, Message(Kind.HAVE_ALL))
        assert shown(count, Message(Kind.HAVE_NONE)).number == 0

    @pytest.mark.parametrize(
        ("message", "text"),
        [
            (Message(Kind.HAVE, 9), "out of range"),
            (Message(Kind.HAVE, 2**32 - 1), "out of range"),
            (Message(Kind.BITFIELD, data=b"\xff"), "wrong length"),
            (Message(Kind.BITFIELD, data=b"\xff\x80\0"), "wrong length"),
            (Message(Kind.BITFIELD, data=b"\xff\xc0"), "wrong length"),
        ],
    )
    def test_pieces_that_do_not_exist_are_refused(self, message: Message, text: str) -> None:
        with pytest.raises(PeerProtocolError, match=text):
            shown(9, message)

    @pytest.mark.parametrize("kind", [Kind.HAVE_ALL, Kind.HAVE_NONE])
    def test_pieces_are_stated_once(self, kind: Kind) -> None:
        """Each statement costs as much as there are pieces, and is a few bytes."""
        with pytest.raises(PeerProtocolError, match="twice"):
            shown(9, Message(Kind.HAVE_ALL), Message(kind))

    def test_other_messages_show_nothing(self) -> None:
        pieces = shown(9, Message(Kind.UNCHOKE), Message(Kind.PIECE, 1, data=b"x"), Message(Kind.REQUEST, 1))
        assert (pieces.number, pieces.stated) == (0, False)
