"""Requests of UDP clients (BEP 15, BEP 41): a kind, and for announces and scrapes their fields or a refusal."""

from collections.abc import Iterable

from tracker.bittorrent import MAX_COUNT, AnnounceReply
from tracker.refusals import Refusal
from tracker.wire.connection_id import ConnectionIds
from tracker.wire.endpoint import ENDPOINT6_LENGTH, ENDPOINT_LENGTH
from tracker.wire.udp import (
    ANNOUNCE_LENGTH,
    MAX_PEERS,
    MAX_PEERS6,
    MAX_REPLY_LENGTH,
    MAX_SCRAPE_HASHES,
    MAX_URL_LENGTH,
    encode_announce_reply,
    encode_error,
    encode_scrape_reply,
    parse_announce,
    parse_options,
    parse_scrape,
    request_kind,
)

MAX_LENGTH = 300
_IDS = ConnectionIds(bytes(32))
_NOW = 1_800_000_000
_ANNOUNCE = bytes.fromhex("8043820f1e3884dc 00000001 55667788")
_FIELDS = bytes(range(40)) + bytes(24) + bytes.fromhex("00000002 00000000 ca298a56 000000c8 1ae1")


def check(data: bytes) -> None:
    kind = request_kind(data)
    if kind in ("short", "action", "magic"):
        return
    assert not _IDS.is_valid(data[:8], data[:4], _NOW)
    transaction = data[12:16]
    assert encode_error(transaction, Refusal("denied", data.decode("latin-1")))[4:8] == transaction
    if kind == "scrape":
        hashes = parse_scrape(data)
        assert 0 < len(hashes) <= MAX_SCRAPE_HASHES
        assert len(encode_scrape_reply(transaction, hashes, {})) == 8 + 12 * len(hashes)
    if kind == "announce":
        _check_announce(data)


def _check_announce(data: bytes) -> None:
    assert len(parse_options(data[ANNOUNCE_LENGTH:])) <= MAX_URL_LENGTH
    for ipv6, max_peers, size in ((False, MAX_PEERS, ENDPOINT_LENGTH), (True, MAX_PEERS6, ENDPOINT6_LENGTH)):
        try:
            announce = parse_announce(data, ipv6=ipv6)
        except Refusal:
            continue
        assert max(int(announce.uploaded), int(announce.downloaded)) <= MAX_COUNT
        assert announce.peers_wanted is None or 0 <= announce.peers_wanted <= max_peers
        reply = AnnounceReply(1800, 900, 1, 1, 1, data * 9, data * 9)
        packet = encode_announce_reply(data[12:16], reply, ipv6=ipv6)
        assert len(packet) <= MAX_REPLY_LENGTH
        assert len(data) * 9 < size * max_peers or (len(packet) - 20) % size == 0


def seeds() -> Iterable[bytes]:
    return [
        bytes.fromhex("00000417271019800000000011223344"),
        _ANNOUNCE + _FIELDS,
        _ANNOUNCE + _FIELDS + b"\x02\x09/announce\x00",
        _ANNOUNCE + _FIELDS + b"\x01\x07\x01x\x02\xff/cut",
        _ANNOUNCE + _FIELDS[:64] + bytes(18),
        _ANNOUNCE[:11] + b"\x02" + _ANNOUNCE[12:] + bytes(47),
        b"x" * 20,
    ]
