"""The fast path takes only complete heads of plain requests, with nothing after them."""

import pytest

from tracker.frontends.http.request_heads import _MAX_CACHED, _MAX_CACHED_BYTES, RequestHeadCache
from tracker.settings.public import HttpSettings

PLAIN = b"1\r\nHost: t\r\nUser-Agent: x/1\r\n\r\n"


@pytest.fixture
async def heads() -> RequestHeadCache:
    return RequestHeadCache(HttpSettings())


@pytest.mark.parametrize(
    ("lines", "keep_alive", "answer"),
    [
        (PLAIN, True, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: "),
        (b"1\r\nHost: t\r\nConnection: Close\r\n\r\n", False, b"Connection: close\r\nContent-Length: "),
        (b"0\r\n\r\n", False, b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: "),
        (b"0\r\nConnection: keep-alive\r\n\r\n", True, b"Connection: keep-alive\r\nContent-Length: "),
    ],
)
async def test_plain_heads_are_accepted(heads: RequestHeadCache, lines: bytes, keep_alive: bool, answer: bytes) -> None:
    head = heads.read(lines)
    assert head is not None and head.keep_alive == keep_alive and head.answer.endswith(answer)


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        PLAIN[:-2],
        PLAIN + b"GET / HTTP/1.1\r\n\r\n",
        PLAIN + b"x",
        b"1\r\n\r\n",  # no Host
        b"1\r\nHost: t\r\nHost: u\r\n\r\n",
        b"2\r\nHost: t\r\n\r\n",
        b"1\r\nHost: t\r\nContent-Length: 0\r\n\r\n",
        b"1\r\nHost: t\r\ncontent-length: 5\r\n\r\n",
        b"1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello",
        b"1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"1\r\nHost: t\r\ntransfer-ENCODING: x\r\n\r\n",
        b"1\r\nHost: t\r\nExpect: 100-continue\r\n\r\n",
        b"1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"1\r\nHost: t\r\n folded\r\n\r\n",
        b"1\r\nHost : t\r\n\r\n",
        b"1\nHost: t\n\n",
        b"1\r\nHost: t\r\nA: b\x00\r\n\r\n",
        b"1\r\nHost: t\r\n" + b"A: b\r\n" * 100 + b"\r\n",
        b"1\r\nHost: t\r\nA: " + b"b" * 9000 + b"\r\n\r\n",
    ],
)
async def test_all_other_heads_are_handed_over(heads: RequestHeadCache, lines: bytes) -> None:
    assert heads.read_and_cache(lines) is None and not heads.known


async def test_forwarding_headers_keep_their_order(heads: RequestHeadCache) -> None:
    head = heads.read(
        b"1\r\nHost: t\r\nX-Forwarded-For: 1.1.1.1\r\nForwarded: for=a\r\nx-forwarded-for: 2.2.2.2, 3.3.3.3\r\n\r\n"
    )
    assert head is not None
    assert (head.forwarded_for, head.forwarded) == (("1.1.1.1", "2.2.2.2, 3.3.3.3"), ("for=a",))


async def test_the_cache_of_heads_is_bounded(heads: RequestHeadCache) -> None:
    for n in range(2 * _MAX_CACHED):
        assert heads.read_and_cache(b"1\r\nHost: t%d\r\n\r\n" % n) is heads.known[b"1\r\nHost: t%d\r\n\r\n" % n]
    assert len(heads.known) <= _MAX_CACHED
    long = b"1\r\nHost: t\r\nA: " + b"b" * _MAX_CACHED_BYTES + b"\r\n\r\n"
    assert heads.read_and_cache(long) is not None and long not in heads.known
