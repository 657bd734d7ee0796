"""Requests to other trackers over HTTP: encodes queries of scrapes and announces, and parses bencoded replies.

Replies are untrusted: size, depth and number of values are bounded. Every parser raises TrackerRefusal or
TrackerReplyError only.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote_from_bytes

from tracker.bittorrent import Announce, AnnounceReply, InfoHash, ScrapeFile
from tracker.errors import TrackerRefusal, TrackerReplyError
from tracker.wire.bencode import BencodeError, decode
from tracker.wire.endpoint import ENDPOINT6_LENGTH, ENDPOINT_LENGTH, pack_address, pack_endpoint

MAX_BYTES = 256 * 1024
"""A scrape of 50 torrents takes 5,000 bytes, an announce with 1,000 peers in the long form 80,000."""
MAX_DEPTH = 8
MAX_VALUES = 20_000
MAX_FAILURE_LENGTH = 200

_MAX_COUNT = 2**31 - 1
_PADDING = b" \t\r\n"


def scrape_query(info_hashes: Iterable[InfoHash]) -> str:
    """``info_hash=…&info_hash=…`` (BEP 48)."""
    return "&".join(f"info_hash={quote_from_bytes(info_hash, safe='')}" for info_hash in info_hashes)


def announce_query(announce: Announce) -> str:
    """An announce in the compact form, without peer ids."""
    fields = {
        "info_hash": quote_from_bytes(announce.info_hash, safe=""),
        "peer_id": quote_from_bytes(announce.peer_id, safe=""),
        "port": announce.port,
        "uploaded": announce.uploaded.decode(),
        "downloaded": announce.downloaded.decode(),
        "left": announce.bytes_left and announce.bytes_left.decode(),
        "event": announce.event.value or None,
        "numwant": announce.peers_wanted,
        "key": announce.key.hex() or None,
        "compact": 1,
        "no_peer_id": 1,
    }
    return "&".join(f"{name}={value}" for name, value in fields.items() if value is not None)


def parse_scrape(data: bytes, requested: Sequence[InfoHash]) -> dict[InfoHash, ScrapeFile]:
    """The counts of the ``requested`` torrents that the reply mentions; others are ignored."""
    files = _reply(data).get(b"files")
    if not isinstance(files, dict):
        raise TrackerReplyError("invalid scrape: no files")
    return {info_hash: _file(files[info_hash]) for info_hash in requested if info_hash in files}


def parse_announce(data: bytes, *, max_peers: int) -> AnnounceReply:
    """Counts, and at most ``max_peers`` endpoints of each family.

    Missing counts are 0. Peers given by host name are ignored.
    """
    reply = _reply(data)
    peers = reply.get(b"peers", b"")
    if isinstance(peers, list):
        packed, packed6 = _long_form(peers, max_peers)
    else:
        packed, packed6 = _compact(peers, ENDPOINT_LENGTH, max_peers), b""
    return AnnounceReply(
        interval_seconds=_count(reply, b"interval"),
        min_interval_seconds=_count(reply, b"min interval"),
        seeders=_count(reply, b"complete"),
        leechers=_count(reply, b"incomplete"),
        completions=_count(reply, b"downloaded"),
        peers=packed,
        peers6=packed6 + _compact(reply.get(b"peers6", b""), ENDPOINT6_LENGTH, max_peers),
    )


def _reply(data: bytes) -> dict[bytes, Any]:
    """The dictionary in a reply. Raises TrackerRefusal where it is a failure."""
    if len(data) > MAX_BYTES:
        raise TrackerReplyError("reply too large")
    try:
        reply = decode(data.strip(_PADDING), max_depth=MAX_DEPTH, max_values=MAX_VALUES)
    except BencodeError:
        raise TrackerReplyError("reply is not bencoded") from None
    if not isinstance(reply, dict):
        raise TrackerReplyError("reply is not bencoded")
    failure = reply.get(b"failure reason")
    if failure is not None:
        text = failure if isinstance(failure, bytes) else b""
        raise TrackerRefusal(text[:MAX_FAILURE_LENGTH].decode("utf-8", "replace"))
    return reply


def _file(file: object) -> ScrapeFile:
    if not isinstance(file, dict):
        raise TrackerReplyError("invalid scrape: no counts")
    return ScrapeFile(
        seeders=_count(file, b"complete"), leechers=_count(file, b"incomplete"), completions=_count(file, b"downloaded")
    )


def _count(counts: dict[bytes, Any], name: bytes) -> int:
    number = counts.get(name, 0)
    if not isinstance(number, int) or not 0 <= number <= _MAX_COUNT:
        raise TrackerReplyError("counts out of range")
    return number


def _compact(peers: object, size: int, max_peers: int) -> bytes:
    if not isinstance(peers, bytes):
        raise TrackerReplyError("invalid peers")
    return peers[: size * min(len(peers) // size, max_peers)]


def _long_form(peers: list[object], max_peers: int) -> tuple[bytes, bytes]:
    packed: dict[int, list[bytes]] = {ENDPOINT_LENGTH: [], ENDPOINT6_LENGTH: []}
    for peer in peers:
        if not isinstance(peer, dict):
            raise TrackerReplyError("invalid peers")
        ip, port = peer.get(b"ip"), peer.get(b"port")
        address = pack_address(ip.decode("latin-1")) if isinstance(ip, bytes) else None
        if address and isinstance(port, int) and 0 <= port < 65536:
            packed[len(address) + 2].append(pack_endpoint(address, port))
    v4, v6 = (b"".join(each[:max_peers]) for each in packed.values())
    return v4, v6
