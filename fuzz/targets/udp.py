"""UDP replies of other trackers (BEP 15): parsed, or one of the two errors."""

import struct
from collections.abc import Iterable

from tracker.errors import TrackerRefusal, TrackerReplyError
from tracker.wire.udp import (
    MAX_ERROR_LENGTH,
    parse_announce_reply,
    parse_connect_reply,
    parse_scrape_reply,
    reply_transaction,
)

MAX_LENGTH = 300
_ID = 0x01020304
_MAX_ENTRIES = 5


def check(data: bytes) -> None:
    reply_transaction(data)
    for packet in (data, data[:4] + _ID.to_bytes(4, "big") + data[8:]):
        for read in (_connection, _swarm4, _swarm6, _files):
            try:
                read(packet)
            except TrackerReplyError:
                continue
            except TrackerRefusal as error:
                refused = len(error.text)
                assert refused <= MAX_ERROR_LENGTH


def _connection(packet: bytes) -> None:
    assert 0 <= parse_connect_reply(packet, _ID) < 2**64


def _swarm4(packet: bytes) -> None:
    reply = parse_announce_reply(packet, _ID, ipv6=False, max_peers=_MAX_ENTRIES)
    assert not reply.peers6 and len(reply.peers) % 6 == 0 and len(reply.peers) <= 6 * _MAX_ENTRIES


def _swarm6(packet: bytes) -> None:
    reply = parse_announce_reply(packet, _ID, ipv6=True, max_peers=_MAX_ENTRIES)
    assert not reply.peers and len(reply.peers6) % 18 == 0 and len(reply.peers6) <= 18 * _MAX_ENTRIES


def _files(packet: bytes) -> None:
    assert 0 < len(parse_scrape_reply(packet, _ID, _MAX_ENTRIES)) <= _MAX_ENTRIES


def seeds() -> Iterable[bytes]:
    return [
        struct.pack(">IIQ", 0, _ID, 7),
        struct.pack(">IIIII", 1, _ID, 1800, 3, 4) + b"abcdef" * 4,
        struct.pack(">IIIII", 1, _ID, 1800, 3, 4) + b"x" * 36,
        struct.pack(">IIIII", 2, _ID, 1, 2, 3) + bytes(24),
        struct.pack(">II", 3, _ID) + "nein, danke \xe4".encode(),
    ]
