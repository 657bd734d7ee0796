"""The UDP tracker protocol (BEP 15), with the URL's path and query on announces (BEP 41).

The asking side: requests are encoded, replies parsed. Every request carries a transaction id chosen by its sender,
and a reply repeats it; ``reply_transaction`` says whose a packet is, and the parsers check it once more. What a
datagram holds beyond what was asked for is ignored, and what is cut off is an error.
"""

import struct
from collections.abc import Sequence

from tracker.bittorrent import Announce, AnnounceReply, Event, InfoHash, ScrapeFile
from tracker.errors import TrackerRefusal, TrackerReplyError
from tracker.wire.compact import ENDPOINT6_LENGTH, ENDPOINT_LENGTH

PROTOCOL_ID = 0x41727101980
"""Stands where the connection id will be, in the request for one."""
CONNECT, ANNOUNCE, SCRAPE, ERROR = range(4)

MAX_SCRAPE = 70
"""Torrents in one scrape: as many as trackers commonly read. BEP 15 leaves room for 74."""
MAX_ERROR_LENGTH = 200

_REQUEST = struct.Struct(">QII")  # connection id, action, transaction id
_ANNOUNCE = struct.Struct(">20s20sQQQIIIiH")
_REPLY = struct.Struct(">II")  # action, transaction id
_CONNECTION = struct.Struct(">Q")
_SWARM = struct.Struct(">III")  # interval, leechers, seeders
_FILE = struct.Struct(">III")  # seeders, completions, leechers
_EVENTS = {Event.COMPLETED: 1, Event.STARTED: 2, Event.STOPPED: 3}
_LARGEST_COUNT = 2**31 - 1

_END_OF_OPTIONS, _URL_DATA = b"\0", 2
_LONGEST_OPTION = 255


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
            _LARGEST_COUNT if announce.bytes_left is None else int(announce.bytes_left),
            int(announce.uploaded),
            _EVENTS.get(announce.event, 0),
            0,  # the address that the packet comes from
            int.from_bytes(announce.key[:4].ljust(4, b"\0"), "big"),
            -1 if announce.peers_wanted is None else announce.peers_wanted,
            announce.port,
        )
        + _options(target.encode("ascii"))
    )


def encode_scrape_request(connection_id: int, transaction_id: int, info_hashes: Sequence[InfoHash]) -> bytes:
    """Raises ValueError for none, and for more than MAX_SCRAPE."""
    if not 0 < len(info_hashes) <= MAX_SCRAPE:
        raise ValueError(f"a scrape is for 1 to {MAX_SCRAPE} torrents")
    return _REQUEST.pack(connection_id, SCRAPE, transaction_id) + b"".join(info_hashes)


def reply_transaction(packet: bytes) -> int | None:
    """The transaction that a packet answers; ``None`` for what is too short to be an answer."""
    if len(packet) < _REPLY.size:
        return None
    transaction_id: int = _REPLY.unpack_from(packet)[1]
    return transaction_id


def parse_connect_reply(packet: bytes, transaction_id: int) -> int:
    """The connection id. As all of these it raises TrackerRefusal for an error, TrackerReplyError for nonsense."""
    connection_id: int = _CONNECTION.unpack_from(_body(packet, CONNECT, transaction_id, _CONNECTION.size))[0]
    return connection_id


def parse_announce_reply(packet: bytes, transaction_id: int, *, ipv6: bool, max_peers: int) -> AnnounceReply:
    """``ipv6`` is the family of the socket that heard it, which says how long a peer is. Nobody knows completions."""
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


def parse_scrape_reply(packet: bytes, transaction_id: int, asked: int) -> tuple[ScrapeFile, ...]:
    """Figures in the order of the request: of all ``asked`` torrents or, from a tracker with a limit, of the first."""
    body = _body(packet, SCRAPE, transaction_id, _FILE.size)
    files = [_FILE.unpack_from(body, at * _FILE.size) for at in range(min(asked, len(body) // _FILE.size))]
    return tuple(
        ScrapeFile(seeders=_count(seeders), leechers=_count(leechers), completions=_count(completions))
        for seeders, completions, leechers in files
    )


def _body(packet: bytes, action: int, transaction_id: int, least: int) -> bytes:
    """What follows the head of a reply to this transaction, at least so long."""
    if reply_transaction(packet) != transaction_id:
        raise TrackerReplyError("it answered another request")
    answered = _REPLY.unpack_from(packet)[0]
    body = packet[_REPLY.size :]
    if answered == ERROR:
        raise TrackerRefusal(body[:MAX_ERROR_LENGTH].decode("utf-8", "replace"))
    if answered != action:
        raise TrackerReplyError("it answered with the wrong action")
    if len(body) < least:
        raise TrackerReplyError("its answer is too short")
    return body


def _count(number: int) -> int:
    """Counts are signed in the protocol: the upper half are negative, and nobody has so many."""
    if number > _LARGEST_COUNT:
        raise TrackerReplyError("its figures are out of range")
    return number


def _options(target: bytes) -> bytes:
    """BEP 41: the URL data in pieces of at most 255 bytes. A bare slash is not worth telling."""
    if target in (b"", b"/"):
        return b""
    pieces = [target[at : at + _LONGEST_OPTION] for at in range(0, len(target), _LONGEST_OPTION)]
    return b"".join(bytes((_URL_DATA, len(piece))) + piece for piece in pieces) + _END_OF_OPTIONS
