"""The UDP tracker protocol (BEP 15), with the URL's path and query on announces (BEP 41). The tracker's side.

Parses requests and encodes replies. The transaction id is opaque: four bytes that the reply repeats. Packets may be
longer than their fields. The family of the socket decides whether a peer has 6 or 18 bytes, and a reply never mixes
families.

A reply has at most 1232 bytes, the payload that every IPv6 path carries. Linux forbids fragments of datagrams that fit
the path it knows, so a larger one may vanish where ICMP is filtered.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Literal

from tracker.bittorrent import (
    HASH_LENGTH,
    MAX_COUNT,
    Announce,
    AnnounceReply,
    Event,
    InfoHash,
    ScrapeFile,
)
from tracker.refusals import Refusal
from tracker.wire.announce_numbers import byte_count, bytes_left, check_unusual_port
from tracker.wire.endpoint import ENDPOINT6_LENGTH, ENDPOINT_LENGTH
from tracker.wire.udp import ANNOUNCE, CONNECT, ERROR, MAX_ERROR_LENGTH, PROTOCOL_ID, SCRAPE

MAX_REPLY_LENGTH = 1232
MAX_SCRAPE_HASHES = 74
"""Torrents of a scrape that are answered; more do not fit every client's packets."""
MIN_REQUEST_LENGTH, ANNOUNCE_LENGTH = 16, 98
MAX_URL_LENGTH = 512
"""Bytes of the path and query of a URL that are read."""

RequestKind = Literal["connect", "announce", "scrape", "short", "action", "magic"]
"""The last three are no requests: too short, an unknown action, a connect without the protocol id."""

_CONNECT_START = struct.pack(">QI", PROTOCOL_ID, CONNECT)
_ANNOUNCE_ACTION, _SCRAPE_ACTION, _CONNECT_ACTION = (
    struct.pack(">I", action) for action in (ANNOUNCE, SCRAPE, CONNECT)
)
_ERROR_ACTION = struct.pack(">I", ERROR)
_ANNOUNCE = struct.Struct(">20s20sQQQI4xIiH")
_SWARM = struct.Struct(">4s4sIII")  # action, transaction id, interval, leechers, seeders
_FILE = struct.Struct(">III")  # seeders, completions, leechers
_EVENTS = dict(enumerate((Event.UPDATE, Event.COMPLETED, Event.STARTED, Event.STOPPED, Event.PAUSED)))
"""By number. ``paused`` is not in BEP 15, but libtorrent sends it for partial seeds."""
_UPDATE = Event.UPDATE
_MAX_SIGNED = 2**31 - 1
_END, _PADDING, _URL_DATA = 0, 1, 2
_ordered = tuple.__new__
"""Makes a named tuple from its fields in order, in half the time of the class's own call."""

MAX_PEERS = (MAX_REPLY_LENGTH - _SWARM.size) // ENDPOINT_LENGTH
MAX_PEERS6 = (MAX_REPLY_LENGTH - _SWARM.size) // ENDPOINT6_LENGTH
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


def parse_announce(packet: bytes, *, ipv6: bool) -> Announce:
    """An announce of at least ANNOUNCE_LENGTH bytes. Raises Refusal for port 0 unless the peer stops.

    The ``ip`` field is ignored, since anyone could list a victim. A key of 0 is none; others are written as in HTTP.
    """
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


def parse_scrape(packet: bytes) -> tuple[InfoHash, ...]:
    """The first MAX_SCRAPE_HASHES info hashes, in order, repeated ones included."""
    end = min(len(packet), MIN_REQUEST_LENGTH + MAX_SCRAPE_HASHES * HASH_LENGTH) - HASH_LENGTH
    return tuple(
        InfoHash(packet[at : at + HASH_LENGTH]) for at in range(MIN_REQUEST_LENGTH, end + 1, HASH_LENGTH)
    )


def parse_options(options: bytes) -> bytes:
    """The path and query in the options that follow an announce (BEP 41); empty without any.

    Never raises: unknown options are skipped, and what follows a length beyond the packet's end is ignored.
    """
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


def encode_connect_reply(transaction: bytes, connection_id: bytes) -> bytes:
    """Exactly 16 bytes: some clients drop a longer reply."""
    return _CONNECT_ACTION + transaction + connection_id


def encode_announce_reply(transaction: bytes, reply: AnnounceReply, *, ipv6: bool) -> bytes:
    """The peers of one family, as many as fit."""
    peers = reply.peers6[:_PEERS6_LENGTH] if ipv6 else reply.peers[:_PEERS_LENGTH]
    leechers, seeders = reply.leechers, reply.seeders
    if leechers | seeders > _MAX_SIGNED:  # all ones, as above
        leechers, seeders = _count(leechers), _count(seeders)
    return _SWARM.pack(_ANNOUNCE_ACTION, transaction, reply.interval_seconds, leechers, seeders) + peers


def encode_scrape_reply(
    transaction: bytes, info_hashes: Iterable[InfoHash], files: Mapping[InfoHash, ScrapeFile]
) -> bytes:
    """An entry for each hash, in order; zeros for an unknown torrent, because clients count the entries."""
    unknown = ScrapeFile()
    entries = [files.get(info_hash, unknown) for info_hash in info_hashes]
    return (
        _SCRAPE_ACTION
        + transaction
        + b"".join(
            _FILE.pack(_count(entry.seeders), _count(entry.completions), _count(entry.leechers))
            for entry in entries
        )
    )


def encode_error(transaction: bytes, refusal: Refusal) -> bytes:
    """The text is cut after MAX_ERROR_LENGTH bytes, at a whole character."""
    raw = refusal.text.encode()
    if len(raw) > MAX_ERROR_LENGTH:
        raw = raw[:MAX_ERROR_LENGTH].decode("utf-8", "ignore").encode()
    return _ERROR_ACTION + transaction + raw


def _count(number: int) -> int:
    """Counts are signed 32-bit numbers in the protocol."""
    return min(number, _MAX_SIGNED)
