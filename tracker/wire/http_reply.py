"""Replies over HTTP, in both directions (BEP 3, 7, 21, 23, 24, 31, 48). ``encode_announce`` and ``encode_scrape`` build
their replies by hand, for speed: one runs at every announce, the other may cover hundreds of torrents.
``bencode.encode`` does not sort, so the keys of other replies are in order here."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tracker.bittorrent import HASH_LENGTH, Announce, AnnounceReply, InfoHash, Reply, ScrapeFile, ScrapeReply
from tracker.errors import TrackerRefusal, TrackerReplyError
from tracker.refusals import Refusal
from tracker.wire.bencode import BencodeError, decode, encode
from tracker.wire.endpoint import (
    ENDPOINT6_LENGTH,
    ENDPOINT_LENGTH,
    format_address,
    pack_address,
    pack_endpoint,
    split_endpoints,
)

MAX_BYTES = 256 * 1024  # of a reply of another tracker, as the limits that follow
"""A scrape of 50 torrents takes 5,000 bytes, an announce with 1,000 peers in the long form 80,000."""
MAX_DEPTH = 8
MAX_VALUES = 20_000
MAX_FAILURE_LENGTH = 200

_MAX_COUNT = 2**31 - 1
_PADDING = b" \t\r\n"


def encode_announce(reply: Reply, announce: Announce) -> bytes:
    """The reply to an accepted announce, in the form that it asks for, without optional keys that have no value.
    ``peers`` is present even when empty, because rtorrent rejects a reply without it. The long form (``compact=0``) has
    the peers of both families in one list."""
    interval, min_interval, seeders, leechers, completions, peers, peers6, ids, ids6, address, warning = reply
    if announce.compact and address and not (peers6 or warning):
        return _COMMON_REPLY % (
            seeders,
            completions,
            len(address),
            address,
            leechers,
            interval,
            min_interval,
            len(peers),
            peers,
        )
    external = b"11:external ip%d:%b" % (len(address), address) if address else b""
    if announce.compact:
        listed = b"%d:%b" % (len(peers), peers)
        if peers6:
            listed += b"6:peers6%d:%b" % (len(peers6), peers6)
    else:
        families = (peers, ENDPOINT_LENGTH, ids), (peers6, ENDPOINT6_LENGTH, ids6)
        listed = _long_form(families, announce.no_peer_id)
    body = _REPLY % (seeders, completions, external, leechers, interval, min_interval, listed)
    if not warning:
        return body + b"e"
    text = _text(warning)
    return b"%b15:warning message%d:%be" % (body, len(text), text)


_COMMON_REPLY = (
    b"d8:completei%de10:downloadedi%de11:external ip%d:%b10:incompletei%de"
    b"8:intervali%de12:min intervali%de5:peers%d:%be"
)
_REPLY = b"d8:completei%de10:downloadedi%de%b10:incompletei%de8:intervali%de12:min intervali%de5:peers%b"


def encode_scrape(reply: ScrapeReply) -> bytes:
    """``files`` by raw info hash (BEP 48), with BEP 21's ``downloaders``, and ``flags`` as other trackers send them."""
    return b"".join(encode_scrape_parts(reply))


def encode_scrape_parts(reply: ScrapeReply) -> Iterator[bytes]:
    """The same in parts that take a few milliseconds each: a full scrape may have a million files."""
    files = reply.files
    yield b"d5:filesd"
    for info_hashes in _sorted_parts(list(files)):
        yield b"".join(
            [
                _FILE % (len(info_hash), info_hash, file.seeders, file.completions, file.downloaders, file.leechers)
                for info_hash in info_hashes
                for file in (files[info_hash],)
            ]
        )
    yield b"e5:flagsd20:min_request_intervali%deee" % reply.min_request_interval_seconds


def _sorted_parts(info_hashes: list[InfoHash], depth: int = 0) -> Iterator[list[InfoHash]]:
    """The info hashes in order, in lists of bounded length; all share their first ``depth`` bytes."""
    if len(info_hashes) <= _MAX_PART or depth == HASH_LENGTH:
        yield sorted(info_hashes)
        return
    parts: list[list[InfoHash]] = [[] for _ in range(256)]
    for info_hash in info_hashes:
        parts[info_hash[depth]].append(info_hash)
    for part in filter(None, parts):
        yield from _sorted_parts(part, depth + 1)


_MAX_PART = 4096
_FILE = b"%d:%bd8:completei%de10:downloadedi%de11:downloadersi%de10:incompletei%dee"


def encode_failure(refusal: Refusal, interval_seconds: int, min_interval_seconds: int) -> bytes:
    """A failure reply. ``retry in`` (BEP 31) is minutes or ``never``; libtorrent obeys the intervals instead."""
    return encode(
        {
            "failure reason": _text(refusal.text),
            "interval": interval_seconds,
            "min interval": min_interval_seconds,
            "retry in": refusal.retry_in,
        }
    )


def _long_form(families: Iterable[tuple[bytes, int, bytes]], no_peer_id: bool) -> bytes:
    """``families``: packed endpoints, the length of one, and the peer ids."""
    entries = [b"l"]
    for packed, size, ids in families:
        for index, (address, port) in enumerate(split_endpoints(packed, size)):
            text = format_address(address).encode()
            peer_id = b"" if no_peer_id else ids[index * HASH_LENGTH : (index + 1) * HASH_LENGTH]
            named = b"7:peer id20:" + peer_id if len(peer_id) == HASH_LENGTH else b""
            entries.append(b"d2:ip%d:%b%b4:porti%dee" % (len(text), text, named, port))
    entries.append(b"e")
    return b"".join(entries)


def _text(text: str) -> bytes:
    """UTF-8; an unpaired surrogate becomes a question mark."""
    return text.encode("utf-8", "replace")


def ready_text(notices: Sequence[str]) -> str:
    """The answer of /ready; ``notices``: what is unavailable."""
    return "".join(f"{line}\n" for line in ("degraded" if notices else "ready", *notices))


def parse_scrape(data: bytes, requested: Sequence[InfoHash]) -> dict[InfoHash, ScrapeFile]:
    """The counts of the ``requested`` torrents that another tracker's reply mentions; others are ignored. Raises
    TrackerRefusal or TrackerReplyError only, as ``parse_announce``."""
    files = _reply(data).get(b"files")
    if not isinstance(files, dict):
        raise TrackerReplyError("invalid scrape: no files")
    found = {info_hash: files[info_hash] for info_hash in requested if info_hash in files}
    if not all(isinstance(file, dict) for file in found.values()):
        raise TrackerReplyError("invalid scrape: no counts")
    return {
        info_hash: ScrapeFile(_count(file, b"complete"), _count(file, b"incomplete"), _count(file, b"downloaded"))
        for info_hash, file in found.items()
    }


def parse_announce(data: bytes, *, max_peers: int) -> AnnounceReply:
    """Counts, and at most ``max_peers`` endpoints of each family. Missing counts are 0. Peers given by host name are
    ignored."""
    reply = _reply(data)
    peers = reply.get(b"peers", b"")
    if isinstance(peers, list):
        packed, packed6 = _packed(peers, max_peers)
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


def _count(counts: dict[bytes, Any], name: bytes) -> int:
    number = counts.get(name, 0)
    if not isinstance(number, int) or not 0 <= number <= _MAX_COUNT:
        raise TrackerReplyError("counts out of range")
    return number


def _compact(peers: object, size: int, max_peers: int) -> bytes:
    if not isinstance(peers, bytes):
        raise TrackerReplyError("invalid peers")
    return peers[: size * min(len(peers) // size, max_peers)]


def _packed(peers: list[object], max_peers: int) -> tuple[bytes, bytes]:
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
