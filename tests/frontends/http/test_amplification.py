"""Answers are never larger than they need be, and whom a limit drops gets none.

Over TCP nobody is answered at an address that is not his: the handshake proves it. What is left is to tell little to those who may have nothing.
"""

import asyncio

import pytest

from tests.frontends.harness import (
    ANNOUNCE,
    INFO_HASH,
    RecordingTracker,
    connect,
    on_loops,
    request,
    serving,
    talking,
)
from tracker.errors import ClientError, Dropped
from tracker.limits import LIMITED
from tracker.refusals import REFUSALS
from tracker.wire.http import encode_failure

LOOPBACK = ("127.0.0.0/8",)
SCRAPE = "/scrape?info_hash=" + "".join(f"%{byte:02x}" for byte in INFO_HASH)
SHORTEST_ANNOUNCE = len(b"GET /announce?info_hash=&peer_id=&port=1&left=0 HTTP/1.1\r\nHost: x\r\n\r\n") + 40


@pytest.mark.parametrize("target", [ANNOUNCE, SCRAPE])
@on_loops()
async def test_whom_a_limit_drops_has_the_connection_closed_without_a_byte(target: str) -> None:
    tracker = RecordingTracker()
    tracker.error = Dropped("too much", retry_in=5, label="dropped")
    async with talking(tracker) as client:
        client.send(request(target))
        assert await client.is_closed()


@pytest.mark.parametrize("target", [ANNOUNCE, SCRAPE])
@on_loops("uvloop")
async def test_a_trusted_proxys_connection_is_not_cut_off(target: str) -> None:
    """It carries others too, and a proxy takes a server that cuts off for one that is ill."""
    tracker = RecordingTracker()
    tracker.error = Dropped("too much", retry_in=5, label="dropped")
    async with talking(tracker, trusted_proxies=LOOPBACK) as client:
        for _ in range(2):
            assert (await client.get(target, "X-Forwarded-For: 11.7.7.7")).failure == "too much"


@on_loops("uvloop")
async def test_nothing_is_sent_before_a_whole_request_came() -> None:
    """No greeting, and nothing for half a request: connecting is worth no byte, and in the end the door is shut."""
    async with serving(RecordingTracker(), header_seconds=0.05, keepalive_seconds=0.2) as address:
        for sent in (b"", b"GET ", request(ANNOUNCE)[:-2]):
            async with connect(address) as client:
                client.send(sent)
                assert await client.is_closed()


@on_loops("uvloop")
async def test_a_refusal_is_about_as_short_as_the_shortest_request() -> None:
    """Two and a half times it at most, heads and all; every request of a real client is longer."""
    texts = [text for text, _ in (*REFUSALS.values(),)] + [text for _, text in LIMITED.values()]
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        for text in texts:
            tracker.error = ClientError(text, retry_in=60)
            answer = await client.get(ANNOUNCE)
            assert answer.failure == text and b"peers" not in answer.reply
            size = len(answer.status_line) + sum(len(k) + len(v) + 4 for k, v in answer.headers.items())
            assert size + len(answer.body) + 4 <= 2.5 * SHORTEST_ANNOUNCE


@pytest.mark.parametrize("method", ["OPTIONS", "POST", "HEAD", "PUT", "TRACE", "CONNECT", "PRI"])
@on_loops("uvloop")
async def test_what_browsers_and_scanners_ask_first_is_answered_shortly(method: str) -> None:
    async with serving(RecordingTracker()) as address, connect(address) as client:
        client.send(request(ANNOUNCE, "Connection: close", method=method))
        async with asyncio.timeout(20):
            answer = await client.reader.read(-1)
        assert len(answer) <= 2.5 * SHORTEST_ANNOUNCE


def test_every_limit_is_told_shortly() -> None:
    for _, text in LIMITED.values():
        assert len(encode_failure(text, retry_in=5, interval_seconds=300, min_interval_seconds=300)) < 160
