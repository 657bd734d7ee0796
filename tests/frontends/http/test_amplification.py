"""Refusals are short, and dropped requests get no answer.

The TCP handshake proves the address of a client, so answers cannot be reflected to another address.
"""

import asyncio

import pytest

from tests.frontends.http.harness import ANNOUNCE, INFO_HASH, RecordingTracker, on_loops, serving, talking
from tests.raw_http import connect, request
from tracker.core.rate_limits import LIMITED
from tracker.refusals import REASONS, Refusal, SilentlyDropped
from tracker.wire.http_reply import encode_failure

LOOPBACK = ("127.0.0.0/8",)
SCRAPE = "/scrape?info_hash=" + "".join(f"%{byte:02x}" for byte in INFO_HASH)
SHORTEST_ANNOUNCE = len(b"GET /announce?info_hash=&peer_id=&port=1&left=0 HTTP/1.1\r\nHost: x\r\n\r\n") + 40


@pytest.mark.parametrize("target", [ANNOUNCE, SCRAPE])
@on_loops()
async def test_a_dropped_request_closes_the_connection_without_a_byte(target: str) -> None:
    tracker = RecordingTracker()
    tracker.error = SilentlyDropped("too many requests")
    async with talking(tracker) as client:
        client.send(request(target))
        assert await client.is_closed()


@pytest.mark.parametrize("target", [ANNOUNCE, SCRAPE])
@on_loops("uvloop")
async def test_a_dropped_request_keeps_a_trusted_proxys_connection_open(target: str) -> None:
    """It carries other clients too, and a proxy treats a server that closes connections as failing."""
    tracker = RecordingTracker()
    tracker.error = SilentlyDropped("too many requests")
    async with talking(tracker, trusted_proxies=LOOPBACK) as client:
        for _ in range(2):
            assert (await client.get(target, "X-Forwarded-For: 11.7.7.7")).failure == tracker.error.text


@on_loops("uvloop")
async def test_nothing_is_sent_before_a_complete_request_arrives() -> None:
    """No greeting, and no answer to half a request; in the end the connection is closed."""
    async with serving(RecordingTracker(), header_seconds=0.05, keepalive_seconds=0.2) as address:
        for sent in (b"", b"GET ", request(ANNOUNCE)[:-2]):
            async with connect(address) as client:
                client.send(sent)
                assert await client.is_closed()


@on_loops("uvloop")
async def test_a_refusal_is_at_most_2_5_times_the_shortest_request() -> None:
    """With its head. Every request of a real client is longer than the shortest one."""
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        for name, reason in REASONS.items():
            tracker.error = Refusal(name)
            answer = await client.get(ANNOUNCE)
            assert answer.failure == reason.text and b"peers" not in answer.reply
            size = len(answer.status_line) + sum(len(k) + len(v) + 4 for k, v in answer.headers.items())
            assert size + len(answer.body) + 4 <= 2.5 * SHORTEST_ANNOUNCE


@pytest.mark.parametrize("method", ["OPTIONS", "POST", "HEAD", "PUT", "TRACE", "CONNECT", "PRI"])
@on_loops("uvloop")
async def test_requests_of_browsers_and_scanners_get_short_answers(method: str) -> None:
    async with serving(RecordingTracker()) as address, connect(address) as client:
        client.send(request(ANNOUNCE, "Connection: close", method=method))
        async with asyncio.timeout(20):
            answer = await client.reader.read(-1)
        assert len(answer) <= 2.5 * SHORTEST_ANNOUNCE


def test_every_rate_limit_failure_is_short() -> None:
    for name in LIMITED.values():
        assert len(encode_failure(Refusal(name), 300, 300)) < 160
