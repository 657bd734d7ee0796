"""Which head lines the door goes by: those of a plain request, whole, and nothing after it."""

import pytest

from tracker.frontends.heads import _LONGEST_REMEMBERED, _MOST_REMEMBERED, Heads
from tracker.settings import HttpSettings

PLAIN = b"1\r\nHost: t\r\nUser-Agent: x/1\r\n\r\n"


@pytest.fixture
async def heads() -> Heads:
    return Heads(HttpSettings())


@pytest.mark.parametrize(
    ("lines", "keep_alive", "answer"),
    [
        (PLAIN, True, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: "),
        (b"1\r\nHost: t\r\nConnection: Close\r\n\r\n", False, b"Connection: close\r\nContent-Length: "),
        (b"0\r\n\r\n", False, b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: "),
        (b"0\r\nConnection: keep-alive\r\n\r\n", True, b"Connection: keep-alive\r\nContent-Length: "),
    ],
)
async def test_plain_ones(heads: Heads, lines: bytes, keep_alive: bool, answer: bytes) -> None:
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
async def test_all_others_are_aiohttps(heads: Heads, lines: bytes) -> None:
    assert heads.learn(lines) is None and not heads.known


async def test_forwarding_headers_in_order(heads: Heads) -> None:
    head = heads.read(
        b"1\r\nHost: t\r\nX-Forwarded-For: 1.1.1.1\r\nForwarded: for=a\r\nx-forwarded-for: 2.2.2.2, 3.3.3.3\r\n\r\n"
    )
    assert head is not None
    assert (head.forwarded_for, head.forwarded) == (("1.1.1.1", "2.2.2.2, 3.3.3.3"), ("for=a",))


async def test_what_is_remembered_is_bounded(heads: Heads) -> None:
    for n in range(2 * _MOST_REMEMBERED):
        assert heads.learn(b"1\r\nHost: t%d\r\n\r\n" % n) is heads.known[b"1\r\nHost: t%d\r\n\r\n" % n]
    assert len(heads.known) <= _MOST_REMEMBERED
    long = b"1\r\nHost: t\r\nA: " + b"b" * _LONGEST_REMEMBERED + b"\r\n\r\n"
    assert heads.learn(long) is not None and long not in heads.known
