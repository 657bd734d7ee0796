"""D10, D21: a flood of queries from 10,000 addresses against a tracker process. Announces are answered, memory is
bounded, and clients of the DHT get answers when it ends."""

import re
import time

import pytest

from tests.e2e.conftest import StartTracker
from tests.e2e.requests import announce_path, get
from tests.e2e.test_floods import megabytes
from tests.frontends.dht.harness import LoopbackSocket, linux_only
from tests.waiting import until
from tracker.bittorrent import InfoHash
from tracker.wire.krpc import GetPeers, NodeId, Query, encode_query

pytestmark = [pytest.mark.slow, linux_only]
ADDRESSES, ANNOUNCES = 10_000, 100
BURST, RATE = 400, 200
KEPT_MEGABYTES = 24
HASH = InfoHash(b"\x01" * 20)
"""Of the announces."""


def host(number: int) -> str:
    return f"127.99.{number // 250}.{1 + number % 250}"


def test_a_flood_of_10000_addresses_leaves_announces_alone(start_tracker: StartTracker) -> None:
    tracker = start_tracker(
        TRACKER_DHT__ENABLED="true",
        TRACKER_DHT__LISTEN="127.0.0.1:0",
        TRACKER_DHT__TORRENTS="all",
        TRACKER_DHT__LOOKUPS_PER_MINUTE="0",
    )
    found = re.search(r"^ +dht +127\.0\.0\.1:(\d+)$", tracker.banner, re.MULTILINE)
    assert found, tracker.banner
    target, client = ("127.0.0.1", int(found[1])), LoopbackSocket()
    query = encode_query(Query(b"aa", NodeId(b"f" * 20), GetPeers(HASH)))
    try:
        for number in range(ANNOUNCES):
            get(tracker.url, announce_path(port=1000 + number))
        before, answers, began = megabytes(tracker.process.pid), 0, time.monotonic()
        for number in range(ANNOUNCES):
            for sender in range(number, ADDRESSES, ANNOUNCES):
                client.send(query, target, host(sender))
            assert b"peers" in get(tracker.url, announce_path(port=2000 + number))
            answers += len(client.received())
        passed = time.monotonic() - began
        assert megabytes(tracker.process.pid) - before < KEPT_MEGABYTES

        def honest() -> bool:
            client.send(query, target, "127.88.0.1")
            return any(each.host == "127.88.0.1" for each in client.received())

        until(honest, poll_seconds=0.5)
    finally:
        client.close()
    assert 0 < answers <= BURST + RATE * passed
    assert tracker.end() == 0
