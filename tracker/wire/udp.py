"""The UDP tracker protocol (BEP 15), with the URL's path and query on announces (BEP 41). The client's side.

Encodes requests and parses replies; udp_server.py is the tracker's side. The sender of a request chooses its
transaction id, and the reply repeats it. ``reply_transaction`` returns it, and the parsers check it again. Extra bytes
in a datagram are ignored. A truncated datagram is an error.
"""

import struct
from collections.abc import Sequence

from tracker.bittorrent import Announce, AnnounceReply, Event, InfoHash, ScrapeFile
from tracker.errors import TrackerRefusal, TrackerReplyError
from tracker.wire.endpoint import ENDPOINT6_LENGTH, ENDPOINT_LENGTH

PROTOCOL_ID = 0x41727101980
"""Sent in place of the connection id in a connect request."""
CONNECT, ANNOUNCE, SCRAPE, ERROR = range(4)

MAX_SCRAPE = 70
"""Torrents in one scrape, as many as trackers commonly accept. A packet has room for 74."""
MAX_ERROR_LENGTH = 200

_REQUEST = struct.Struct(">QII")  # connection id, action, transaction id
_ANNOUNCE = struct.Struct(">20s20sQQQIIIiH")
_REPLY = struct.Struct(">II")  # action, transaction id
_CONNECTION = struct.Struct(">Q")
_SWARM = struct.Struct(">III")  # interval, leechers, seeders
_FILE = struct.Struct(">III")  # seeders, completions, leechers
_EVENTS = {Event.COMPLETED: 1, Event.STARTED: 2, Event.STOPPED: 3}
_MAX_COUNT = 2**31 - 1

_END_OF_OPTIONS, _URL_DATA = b"\0", 2
_MAX_OPTION_LENGTH = 255


def encode_connect_request(transaction_id: int) -> bytes:
    return _REQUEST.pack(PROTOCOL_ID, CONNECT, transaction_id)


def encode_announce_request(
    connection_id: int, transaction_id: int, announce: Announce, target: str = ""
) -> bytes:
    """``target`` is the path and query of the tracker's URL, ASCII. The first 4 bytes of ``key`` are sent."""
    return (
        _REQUEST.pack(connection_id, ANNOUNCE, transaction_id)
        + _ANNOUNCE.pack(
            announce.info_hash,
            announce.peer_id,
            int(announce.downloaded),
            _MAX_COUNT if announce.bytes_left is None else int(announce.bytes_left),
            int(announce.uploaded),
            _EVENTS.get(announce.event, 0),
            0,  # use the sender's address
            int.from_bytes(announce.key[:4].ljust(4, b"\0"), "big"),
            -1 if announce.peers_wanted is None else announce.peers_wanted,
            announce.port,
        )
        + _options(target.encode("ascii"))
    )


def encode_scrape_request(connection_id: int, transaction_id: int, info_hashes: Sequence[InfoHash]) -> bytes:
    """Raises ValueError unless there are 1 to MAX_SCRAPE torrents."""
    if not 0 < len(info_hashes) <= MAX_SCRAPE:
        raise ValueError(f"a scrape is for 1 to {MAX_SCRAPE} torrents")
    return _REQUEST.pack(connection_id, SCRAPE, transaction_id) + b"".join(info_hashes)


def reply_transaction(packet: bytes) -> int | None:
    """The transaction id of a reply; ``None`` for a packet that is too short."""
    if len(packet) < _REPLY.size:
        return None
    transaction_id: int = _REPLY.unpack_from(packet)[1]
    return transaction_id


def parse_connect_reply(packet: bytes, transaction_id: int) -> int:
    """The connection id. Raises TrackerRefusal for an error reply, and TrackerReplyError for an invalid one."""
    connection_id: int = _CONNECTION.unpack_from(_body(packet, CONNECT, transaction_id, _CONNECTION.size))[0]
    return connection_id


def parse_announce_reply(packet: bytes, transaction_id: int, *, ipv6: bool, max_peers: int) -> AnnounceReply:
    """``ipv6``: the family of the receiving socket, which determines the length of a peer. Raises as above.

    An announce reply has no completions; they are 0.
    """
    body = _body(packet, ANNOUNCE, transaction_id, _SWARM.size)
    interval, leechers, seeders = _SWARM.unpack_from(body)
    size = ENDPOINT6_LENGTH if ipv6 else ENDPOINT_LENGTH
    whole = (len(body) - _SWARM.size) // size
    peers = body[_SWARM.size : _SWARM.size + size * min(whole, max_peers)]
    return AnnounceReply(
        interval_seconds=_count(interval),
        min_interval_seconds=0,
        seeders=_count(seeders),
        leechers=_count(leechers),
        completions=0,
        peers=b"" if ipv6 else peers,
        peers6=peers if ipv6 else b"",
    )


def parse_scrape_reply(packet: bytes, transaction_id: int, requested: int) -> tuple[ScrapeFile, ...]:
    """Counts in the order of the request; fewer than ``requested`` from a tracker with a limit. Raises as above."""
    body = _body(packet, SCRAPE, transaction_id, _FILE.size)
    files = [
        _FILE.unpack_from(body, at * _FILE.size) for at in range(min(requested, len(body) // _FILE.size))
    ]
    return tuple(
        ScrapeFile(seeders=_count(seeders), leechers=_count(leechers), completions=_count(completions))
        for seeders, completions, leechers in files
    )


def _body(packet: bytes, action: int, transaction_id: int, min_length: int) -> bytes:
    """The reply after its header; at least ``min_length`` bytes."""
    if reply_transaction(packet) != transaction_id:
        raise TrackerReplyError("wrong transaction id")
    reply_action = _REPLY.unpack_from(packet)[0]
    body = packet[_REPLY.size :]
    if reply_action == ERROR:
        raise TrackerRefusal(body[:MAX_ERROR_LENGTH].decode("utf-8", "replace"))
    if reply_action != action:
        raise TrackerReplyError("wrong action")
    if len(body) < min_length:
        raise TrackerReplyError("reply too short")
    return body


def _count(number: int) -> int:
    """Counts are signed in the protocol. A negative one is invalid."""
    if number > _MAX_COUNT:
        raise TrackerReplyError("counts out of range")
    return number


def _options(target: bytes) -> bytes:
    """BEP 41: the URL data in pieces of at most 255 bytes; none for an empty path."""
    if target in (b"", b"/"):
        return b""
    pieces = [target[at : at + _MAX_OPTION_LENGTH] for at in range(0, len(target), _MAX_OPTION_LENGTH)]
    return b"".join(bytes((_URL_DATA, len(piece))) + piece for piece in pieces) + _END_OF_OPTIONS
