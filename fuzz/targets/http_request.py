"""The queries of announces and scrapes: the usual way and the general one read the same, and refuse with ClientError only."""

import contextlib
from collections.abc import Iterable

from fuzz import vectors
from tracker.bittorrent import HASH_LENGTH, MAX_COUNT, Announce
from tracker.errors import ClientError
from tracker.wire import query
from tracker.wire.query import MAX_KEY_LENGTH, parse_announce, parse_scrape, parse_usual

LONGEST = 1500
_MOST = 5


def check(data: bytes) -> None:
    announce = _read(data)
    usual = None
    with contextlib.suppress(ClientError):
        usual = parse_usual(data)
    if usual is not None:
        assert usual == announce, "the two ways disagree"
    if announce is not None:
        _check_announce(announce)
        assert parse_announce(data) == announce, "it depends on what was read before"
    _check_scrape(data)


def _read(data: bytes) -> Announce | None:
    """By the general way."""
    try:
        return query._parse_any(data)
    except ClientError:
        try:
            parse_announce(data)
        except ClientError:
            return None
        raise AssertionError("one way refuses what the other takes") from None


def _check_announce(announce: Announce) -> None:
    assert len(announce.info_hash) == len(announce.peer_id) == HASH_LENGTH
    assert 0 <= announce.port < 65536 and (announce.port or announce.event == "stopped")
    counts = (int(announce.uploaded), int(announce.downloaded), int(announce.bytes_left or 0))
    assert all(0 <= count <= MAX_COUNT for count in counts)
    assert len(announce.key) <= MAX_KEY_LENGTH
    assert announce.peers_wanted is None or announce.peers_wanted >= 0
    assert announce.stated_address is None or len(announce.stated_address) in (4, 16)


def _check_scrape(data: bytes) -> None:
    try:
        scrape = parse_scrape(data, _MOST)
    except ClientError:
        assert b"info_hash" in data
        return
    assert len(scrape.info_hashes) <= _MOST and len(set(scrape.info_hashes)) == len(scrape.info_hashes)
    assert all(len(info_hash) == HASH_LENGTH for info_hash in scrape.info_hashes)
    assert scrape.info_hashes or b"info_hash=" not in data.replace(b"+", b" ").split(b"&")


def seeds() -> Iterable[bytes]:
    return vectors.queries()
