"""Queries of announces and scrapes: the fast parser and the general one agree, and raise Refusal only."""

import contextlib
from collections.abc import Iterable

from fuzz import vectors
from tracker.bittorrent import HASH_LENGTH, MAX_COUNT, Announce
from tracker.refusals import Refusal
from tracker.wire import http_request
from tracker.wire.http_request import MAX_KEY_LENGTH, parse_announce, parse_scrape, parse_usual

MAX_LENGTH = 1500
_MAX_HASHES = 5


def check(data: bytes) -> None:
    announce = _read(data)
    usual = None
    with contextlib.suppress(Refusal):
        usual = parse_usual(data)
    if usual is not None:
        assert usual == announce, "the two parsers disagree"
    if announce is not None:
        _check_announce(announce)
        assert parse_announce(data) == announce, "the result depends on earlier queries"
    _check_scrape(data)


def _read(data: bytes) -> Announce | None:
    """The result of the general parser."""
    try:
        return http_request._parse_any(data)
    except Refusal:
        try:
            parse_announce(data)
        except Refusal:
            return None
        raise AssertionError("one parser rejects what the other accepts") from None


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
        scrape = parse_scrape(data, _MAX_HASHES)
    except Refusal:
        assert b"info_hash" in data
        return
    assert len(scrape.info_hashes) <= _MAX_HASHES and len(set(scrape.info_hashes)) == len(scrape.info_hashes)
    assert all(len(info_hash) == HASH_LENGTH for info_hash in scrape.info_hashes)
    assert scrape.info_hashes or b"info_hash=" not in data.replace(b"+", b" ").split(b"&")


def seeds() -> Iterable[bytes]:
    return vectors.queries()
