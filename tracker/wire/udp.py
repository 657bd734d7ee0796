"""The UDP tracker protocol (BEP 15), with the URL's path and query on announces (BEP 41).

The sender of a request chooses its transaction id, and the reply repeats it. Packets may be longer than their fields.
The family of the socket decides whether a peer has 6 or 18 bytes, and a reply never mixes families.

A reply of ours has at most 1232 bytes, the payload that every IPv6 path carries. Linux forbids fragments of datagrams
that fit the path it knows, so a larger one may vanish where ICMP is filtered.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from tracker.bittorrent import HASH_LENGTH, MAX_COUNT, Announce, AnnounceReply, Event, InfoHash, Reply, ScrapeFile
from tracker.errors import TrackerRefusal, TrackerReplyError
from tracker.refusals import Refusal
from tracker.wire.announce_path import byte_count, bytes_left, check_unusual_port
from tracker.wire.endpoint import ENDPOINT6_LENGTH, ENDPOINT_LENGTH

PROTOCOL_ID = 0x41727101980
"""Sent in place of the connection id in a connect request."""
CONNECT, ANNOUNCE, SCRAPE, ERROR = range(4)

MAX_REPLY_LENGTH = 1232
MAX_SCRAPE = 70
"""Torrents in one scrape of ours, as many as trackers commonly accept. A packet has room for 74."""
MAX_SCRAPE_HASHES = 74
"""Torrents of a scrape that are answered; more do not fit every client's packets."""
MAX_ERROR_LENGTH = 200
MIN_REQUEST_LENGTH, ANNOUNCE_LENGTH = 16, 98
MAX_URL_LENGTH = 512
"""Bytes of the path and query of a URL that are read."""

RequestKind = Literal["connect", "announce", "scrape", "short", "action", "magic"]
"""The last three are no requests: too short, an unknown action, a connect without the protocol id."""

_REQUEST = struct.Struct(">QII")  # connection id, action, transaction id
_REPLY_HEADER = 8  # bytes: action, transaction id
_ANNOUNCE = struct.Struct(">20s20sQQQI4xIiH")  # the sender's address counts, not the stated one
_ANNOUNCE_REPLY = struct.Struct(">4s4sIII")  # action, transaction id, and _COUNTS
_COUNTS = struct.Struct(">III")  # interval, leechers, seeders; of a scrape: seeders, completions, leechers
_CONNECT_START = struct.pack(">QI", PROTOCOL_ID, CONNECT)
_CONNECT_ACTION, _ANNOUNCE_ACTION, _SCRAPE_ACTION, _ERROR_ACTION = (
    struct.pack(">I", action) for action in (CONNECT, ANNOUNCE, SCRAPE, ERROR)
)
_EVENTS = dict(enumerate((Event.UPDATE, Event.COMPLETED, Event.STARTED, Event.STOPPED, Event.PAUSED)))
"""By number. ``paused`` is not in BEP 15, but libtorrent sends it for partial seeds."""
_EVENT_NUMBERS: Mapping[Event, int] = {event: number for number, event in _EVENTS.items() if event is not Event.PAUSED}
_UPDATE = Event.UPDATE
_MAX_SIGNED = 2**31 - 1
_END, _PADDING, _URL_DATA = 0, 1, 2
_MAX_OPTION_LENGTH = 255
_ordered = tuple.__new__
"""Makes a named tuple from its fields in order, in half the time of the class's own call."""

MAX_PEERS = (MAX_REPLY_LENGTH - _ANNOUNCE_REPLY.size) // ENDPOINT_LENGTH
MAX_PEERS6 = (MAX_REPLY_LENGTH - _ANNOUNCE_REPLY.size) // ENDPOINT6_LENGTH
_PEERS_LENGTH, _PEERS6_LENGTH = MAX_PEERS * ENDPOINT_LENGTH, MAX_PEERS6 * ENDPOINT6_LENGTH


def request_kind(packet: bytes) -> RequestKind:
    """What a packet asks for, or why it is no request. Only lengths, the action and the protocol id are checked."""
    size, action = len(packet), packet[8:12]
    if action == _ANNOUNCE_ACTION and size >= ANNOUNCE_LENGTH:
        return "announce"
    if size < MIN_REQUEST_LENGTH or action == _ANNOUNCE_ACTION:
        return "short"
    if action == _CONNECT_ACTION:
        return "connect" if packet.startswith(_CONNECT_START) else "magic"
    if action == _SCRAPE_ACTION:
        return "scrape" if size >= MIN_REQUEST_LENGTH + HASH_LENGTH else "short"
    return "action"


def reply_transaction(packet: bytes) -> int | None:
    """The transaction id of a reply; ``None`` for a packet that is too short."""
    return int.from_bytes(packet[4:8], "big") if len(packet) >= _REPLY_HEADER else None


def encode_connect_request(transaction_id: int) -> bytes:
    return _REQUEST.pack(PROTOCOL_ID, CONNECT, transaction_id)


def encode_connect_reply(transaction: bytes, connection_id: bytes) -> bytes:
    """Exactly 16 bytes: some clients drop a longer reply."""
    return _CONNECT_ACTION + transaction + connection_id


def parse_connect_reply(packet: bytes, transaction_id: int) -> int:
    """The connection id. Raises TrackerRefusal for an error reply, and TrackerReplyError for an invalid one."""
    return int.from_bytes(_body(packet, CONNECT, transaction_id, 8)[:8], "big")


def encode_announce_request(connection_id: int, transaction_id: int, announce: Announce, target: str = "") -> bytes:
    """``target``: the path and query of the tracker's URL, ASCII, sent as options of at most 255 bytes each (BEP 41).
    The first 4 bytes of ``key`` are sent."""
    url = target.encode("ascii") if target != "/" else b""
    pieces = [url[at : at + _MAX_OPTION_LENGTH] for at in range(0, len(url), _MAX_OPTION_LENGTH)]
    options = b"".join(bytes((_URL_DATA, len(piece))) + piece for piece in pieces)
    return (
        _REQUEST.pack(connection_id, ANNOUNCE, transaction_id)
        + _ANNOUNCE.pack(
            announce.info_hash,
            announce.peer_id,
            int(announce.downloaded),
            _MAX_SIGNED if announce.bytes_left is None else int(announce.bytes_left),
            int(announce.uploaded),
            _EVENT_NUMBERS.get(announce.event, 0),
            int.from_bytes(announce.key[:4].ljust(4, b"\0"), "big"),
            -1 if announce.peers_wanted is None else announce.peers_wanted,
            announce.port,
        )
        + (options and options + bytes((_END,)))
    )


def parse_announce(packet: bytes, *, ipv6: bool) -> Announce:
    """An announce of at least ANNOUNCE_LENGTH bytes. Raises Refusal for port 0 unless the peer stops. The ``ip`` field
    is ignored, since anyone could list a victim. A key of 0 is none; others are written as in HTTP."""
    info_hash, peer_id, downloaded, left, uploaded, event, key, wanted, port = _ANNOUNCE.unpack_from(
        packet, MIN_REQUEST_LENGTH
    )
    happened = _EVENTS.get(event, _UPDATE)
    if not port:
        check_unusual_port(port, happened)
    if wanted < 0:
        wanted = None
    elif wanted > (most := MAX_PEERS6 if ipv6 else MAX_PEERS):
        wanted = most
    fields = (
        info_hash,
        peer_id,
        port,
        b"%d" % uploaded,
        b"%d" % downloaded,
        b"%d" % left,
        b"%08X" % key if key else b"",
        happened,
        wanted,
        True,  # compact
        True,  # no peer ids
        None,
        True,  # peers of the sender's family only
    )
    if uploaded | downloaded | left > MAX_COUNT:  # all ones, so one comparison checks each of them
        counts = byte_count(uploaded), byte_count(downloaded), bytes_left(left)
        return _ordered(Announce, (*fields[:3], *counts, *fields[6:]))
    return _ordered(Announce, fields)


def parse_options(options: bytes) -> bytes:
    """The path and query in the options that follow an announce (BEP 41); empty without any. Never raises: unknown
    options are skipped, and what follows a length beyond the packet's end is ignored."""
    url, at = b"", 0
    while at < len(options) and options[at] != _END and len(url) < MAX_URL_LENGTH:
        if options[at] == _PADDING:
            at += 1
            continue
        start = at + 2
        at = start + options[at + 1] if start <= len(options) else start
        if at > len(options):
            break
        if options[start - 2] == _URL_DATA:
            url += options[start:at]
    return url[:MAX_URL_LENGTH]


def encode_announce_reply(transaction: bytes, reply: Reply, *, ipv6: bool) -> bytes:
    """The peers of one family, as many as fit."""
    interval, _, seeders, leechers, _, peers, peers6, _, _, _, _ = reply
    peers = peers6[:_PEERS6_LENGTH] if ipv6 else peers[:_PEERS_LENGTH]
    if leechers | seeders > _MAX_SIGNED:  # all ones, as above
        leechers, seeders = _at_most(leechers), _at_most(seeders)
    return _ANNOUNCE_REPLY.pack(_ANNOUNCE_ACTION, transaction, interval, leechers, seeders) + peers


def parse_announce_reply(packet: bytes, transaction_id: int, *, ipv6: bool, max_peers: int) -> AnnounceReply:
    """``ipv6``: the family of the receiving socket, which determines the length of a peer. Raises as above. An announce
    reply has no completions; they are 0."""
    body = _body(packet, ANNOUNCE, transaction_id, _COUNTS.size)
    interval, leechers, seeders = _COUNTS.unpack_from(body)
    size = ENDPOINT6_LENGTH if ipv6 else ENDPOINT_LENGTH
    whole = (len(body) - _COUNTS.size) // size
    peers = body[_COUNTS.size : _COUNTS.size + size * min(whole, max_peers)]
    return AnnounceReply(
        interval_seconds=_count(interval),
        min_interval_seconds=0,
        seeders=_count(seeders),
        leechers=_count(leechers),
        completions=0,
        peers=b"" if ipv6 else peers,
        peers6=peers if ipv6 else b"",
    )


def encode_scrape_request(connection_id: int, transaction_id: int, info_hashes: Sequence[InfoHash]) -> bytes:
    """Raises ValueError unless there are 1 to MAX_SCRAPE torrents."""
    if not 0 < len(info_hashes) <= MAX_SCRAPE:
        raise ValueError(f"a scrape is for 1 to {MAX_SCRAPE} torrents")
    return _REQUEST.pack(connection_id, SCRAPE, transaction_id) + b"".join(info_hashes)


def parse_scrape(packet: bytes) -> tuple[InfoHash, ...]:
    """All info hashes, in order, repeated ones included."""
    end = len(packet) - HASH_LENGTH
    return tuple(InfoHash(packet[at : at + HASH_LENGTH]) for at in range(MIN_REQUEST_LENGTH, end + 1, HASH_LENGTH))


def encode_scrape_reply(
    transaction: bytes, info_hashes: Iterable[InfoHash], files: Mapping[InfoHash, ScrapeFile]
) -> bytes:
    """An entry for each hash, in order; zeros for an unknown torrent, because clients count the entries."""
    unknown = ScrapeFile()
    entries = [files.get(info_hash, unknown) for info_hash in info_hashes]
    numbers = [(_at_most(each.seeders), _at_most(each.completions), _at_most(each.leechers)) for each in entries]
    return b"".join((_SCRAPE_ACTION, transaction, *(_COUNTS.pack(*each) for each in numbers)))


def parse_scrape_reply(packet: bytes, transaction_id: int, requested: int) -> tuple[ScrapeFile, ...]:
    """Counts in the order of the request; fewer than ``requested`` from a tracker with a limit. Raises as above."""
    body = _body(packet, SCRAPE, transaction_id, _COUNTS.size)
    files = [_COUNTS.unpack_from(body, at * _COUNTS.size) for at in range(min(requested, len(body) // _COUNTS.size))]
    return tuple(
        ScrapeFile(seeders=_count(seeders), leechers=_count(leechers), completions=_count(completions))
        for seeders, completions, leechers in files
    )


def encode_error(transaction: bytes, refusal: Refusal) -> bytes:
    """The text is cut after MAX_ERROR_LENGTH bytes, at a whole character."""
    raw = refusal.text.encode()
    if len(raw) > MAX_ERROR_LENGTH:
        raw = raw[:MAX_ERROR_LENGTH].decode("utf-8", "ignore").encode()
    return _ERROR_ACTION + transaction + raw


def _body(packet: bytes, action: int, transaction_id: int, min_length: int) -> bytes:
    """The reply after its header; at least ``min_length`` bytes."""
    if reply_transaction(packet) != transaction_id:
        raise TrackerReplyError("wrong transaction id")
    reply_action, body = int.from_bytes(packet[:4], "big"), packet[_REPLY_HEADER:]
    if reply_action == ERROR:
        raise TrackerRefusal(body[:MAX_ERROR_LENGTH].decode("utf-8", "replace"))
    if reply_action != action:
        raise TrackerReplyError("wrong action")
    if len(body) < min_length:
        raise TrackerReplyError("reply too short")
    return body


def _at_most(number: int) -> int:
    """Counts are signed 32-bit numbers in the protocol."""
    return min(number, _MAX_SIGNED)


def _count(number: int) -> int:
    """Counts are signed in the protocol. A negative one is invalid."""
    if number > _MAX_SIGNED:
        raise TrackerReplyError("counts out of range")
    return number
