"""HTTP replies of other trackers: numbers in range and whole endpoints, or one of the two errors."""

from collections.abc import Iterable

from bencodepy import encode

from tracker.bittorrent import InfoHash
from tracker.errors import TrackerRefusal, TrackerReplyError
from tracker.wire.http_reply import MAX_FAILURE_LENGTH, parse_announce, parse_scrape

MAX_LENGTH = 2000
_REQUESTED = (InfoHash(b"a" * 20), InfoHash(b"b" * 20))
_MAX_PEERS = 10


def check(data: bytes) -> None:
    try:
        reply = parse_announce(data, max_peers=_MAX_PEERS)
    except (TrackerRefusal, TrackerReplyError) as error:
        _check(error)
    else:
        assert len(reply.peers) % 6 == 0 and len(reply.peers) <= 6 * _MAX_PEERS
        assert len(reply.peers6) % 18 == 0 and len(reply.peers6) <= 18 * 2 * _MAX_PEERS
        counts = (reply.interval_seconds, reply.seeders, reply.leechers, reply.completions)
        assert all(type(count) is int and 0 <= count < 2**31 for count in counts)
    try:
        files = parse_scrape(data, _REQUESTED)
    except (TrackerRefusal, TrackerReplyError) as error:
        _check(error)
    else:
        assert files.keys() <= set(_REQUESTED)


def _check(error: Exception) -> None:
    if isinstance(error, TrackerRefusal):
        assert len(error.text) <= MAX_FAILURE_LENGTH
    error.__str__().encode()


def seeds() -> Iterable[bytes]:
    peer = {"ip": "1.2.3.4", "peer id": b"x" * 20, "port": 6881}
    replies = [
        {"complete": 1, "incomplete": 2, "interval": 1800, "min interval": 900, "peers": b"abcdef" * 3},
        {"complete": 1, "interval": 60, "peers": [peer, {"ip": "2001:db8::1", "port": 1}], "peers6": b"x" * 18},
        {"files": {b"a" * 20: {"complete": 1, "downloaded": 3, "incomplete": 2}}, "flags": {"min_request_interval": 9}},
        {"failure reason": "no", "retry in": "never"},
    ]
    return [encode(reply) for reply in replies]
