"""The port has two protocols, and both read the same bytes as the same requests, so no request can hide in another.

HTTP servers are known to read each request below in different ways. An announce follows it, so a disagreement about its
length changes the requests that are seen. It arrives in one piece, byte by byte, and split at every position.
(fuzz/targets/fast_protocol.py does the same with random inputs.)
"""

import asyncio
from collections.abc import Iterator

import pytest

from fuzz.targets import fast_protocol
from tests.frontends.http.harness import ANNOUNCE
from tests.raw_http import request

NEXT = request(ANNOUNCE)
_GET = f"GET {ANNOUNCE} HTTP/1.1".encode()
_LINE_ENDS = {"CRLF": b"\r\n", "LF": b"\n", "CR": b"\r", "LFCR": b"\n\r", "CRCRLF": b"\r\r\n"}

BODIES = [
    *(b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: +5", b"Content-Length: -1", b"Content-Length: 0x5"),
    *(b"Content-Length: 5\r\nContent-Length: 5", b"Content-Length: 5\r\nContent-Length: 0", b"Content-Length: 5, 5"),
    *(
        b"Content-Length : 5",
        b" Content-Length: 5",
        b"Content-Length:\t5",
        b"Content-Length: 5\x0b",
        b"Content-Length:",
    ),
    *(
        b"Content-Length: 5 0",
        b"Content-Length: 1_0",
        b"Content-Length: \xb2",
        b"content-length: 5",
        b"Content_Length: 5",
    ),
    *(
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5",
        b"Transfer-Encoding: identity",
    ),
    *(b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding:\x0bchunked"),
    *(b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding:\n chunked"),
    *(
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"TRANSFER-ENCODING: CHUNKED",
        b"Transfer-Encoding:",
    ),
    *(b"X: y\r\nTransfer-Encoding: chunked", b"X: y\nTransfer-Encoding: chunked", b"X: y\rTransfer-Encoding: chunked"),
]
"""Header lines that announce a body, or nearly do."""
ODD_LINES = [
    *(b"X: a\r\n folded", b"X: a\r\n\tfolded", b" leading: x", b"No colon", b": no name", b"Sp ace: x", b"Nul: a\x00b"),
    *(
        b"Nul\x00: a",
        b"High: \xe9\xff",
        b"H\xe9gh: a",
        b"Bare: a\rb",
        b"Bare: a\nb",
        b"Del: \x7f",
        b"Host: u",
        b"Host:",
    ),
    *(b"Connection: close", b"Connection: keep-alive", b"Connection: close, keep-alive", b"Connection: Upgrade"),
    *(b"Upgrade: websocket", b"Connection: Upgrade\r\nUpgrade: websocket", b"Connection: Upgrade\r\nUpgrade: h2c"),
    *(b"Connection: upgrade\r\nUpgrade: foo\r\nContent-Length: 5", b"Expect: 100-continue", b"Expect: nonsense"),
    *(b"Trailer: Host", b"TE: trailers", b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", b"Sec-WebSocket-Key1: x"),
]
REQUEST_LINES = [
    *(f"GET http://evil.test{ANNOUNCE} HTTP/1.1".encode(), f"GET //evil.test{ANNOUNCE} HTTP/1.1".encode()),
    *(
        _GET.replace(b"GET ", b"GET  "),
        _GET.replace(b" HTTP", b"  HTTP"),
        _GET.replace(b" HTTP", b"\tHTTP"),
        _GET + b" ",
    ),
    *(_GET.replace(b"GET", b"get"), _GET.replace(b"GET", b"POST"), _GET.replace(b"GET", b"CONNECT"), b" " + _GET),
    *(
        _GET.replace(b"1.1", b"1.0"),
        _GET.replace(b"1.1", b"1.2"),
        _GET.replace(b"1.1", b"2.0"),
        _GET.replace(b"1.1", b"1.10"),
    ),
    *(_GET.replace(b"1.1", b"0.9"), _GET.replace(b"HTTP/1.1", b"http/1.1"), _GET.replace(b" HTTP/1.1", b"")),
    *(
        _GET.replace(b"port=", b"x= HTTP/1.1&port="),
        _GET.replace(b"port=", b"x=%0d%0a&port="),
        _GET.replace(b"&port", b"#&port"),
    ),
    *(
        _GET.replace(b"port=", b"x=\x00&port="),
        _GET.replace(b"port=", b"x=\xff&port="),
        _GET.replace(b"port=", b"x=\x7f&port="),
    ),
    *(
        _GET.replace(b"port=", b"x=\r&port="),
        _GET.replace(b"port=", b"x=\n&port="),
        b"\r\n" + _GET,
        b"\n\n" + _GET,
        b"\r" + _GET,
    ),
    *(b"GET /announce HTTP/1.1", b"GET * HTTP/1.1", b"PRI * HTTP/2.0", b"GET /scrape HTTP/1.1", b"HEAD / HTTP/1.1"),
]


def _requests() -> Iterator[bytes]:
    for line in [*BODIES, *ODD_LINES]:
        yield _GET + b"\r\nHost: t\r\n" + line + b"\r\n\r\n"
    for line in BODIES:
        yield _GET.replace(b"1.1", b"1.0") + b"\r\n" + line + b"\r\n\r\n"
    for line in REQUEST_LINES:
        yield line + b"\r\nHost: t\r\n\r\n"
        yield line + b"\r\nHost: t\r\nConnection: keep-alive\r\n\r\n"
    for end in _LINE_ENDS.values():
        for last in _LINE_ENDS.values():
            yield _GET + end + b"Host: t" + end + last


@pytest.fixture(autouse=True)
def protocol() -> None:
    """Each test here runs both protocols itself."""


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


def _outcome(loop: asyncio.AbstractEventLoop, chunks: list[bytes]) -> fast_protocol.Outcome:
    """The outcome, which both protocols must share."""
    fast, slow = (
        loop.run_until_complete(fast_protocol.outcome(chunks, fast_protocol.STRANGER, fast_path=on))
        for on in (True, False)
    )
    assert fast == slow or fast_protocol.only_refuses_earlier(fast, slow), chunks
    return fast


@pytest.mark.parametrize(
    "body", [b"", b"hello", b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n"], ids=["none", "five", "none chunked", "chunked"]
)
def test_both_protocols_see_the_same_requests(loop: asyncio.AbstractEventLoop, body: bytes) -> None:
    for head in _requests():
        sent = head + body + NEXT
        _outcome(loop, [sent])
        _outcome(loop, [head, body + NEXT] if body else [head, NEXT])
        _outcome(loop, [NEXT + sent])


@pytest.mark.parametrize("line", [b"X: y", b"Content-Length: 5", b"Transfer-Encoding: chunked"])
def test_splitting_the_bytes_changes_no_request(loop: asyncio.AbstractEventLoop, line: bytes) -> None:
    sent = _GET + b"\r\nHost: t\r\n" + line + b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + NEXT
    for at in range(1, len(sent)):
        _outcome(loop, [sent[:at], sent[at:]])
    _outcome(loop, [bytes([byte]) for byte in sent])


@pytest.mark.parametrize("line", [b"Content-Length: 5", b"Content-Length: 0", b"Transfer-Encoding: chunked"])
def test_a_body_is_not_read_as_a_request(loop: asyncio.AbstractEventLoop, line: bytes) -> None:
    """The bytes of a body are never answered as a request."""
    hidden = NEXT.replace(b"port=6881", b"port=1")
    long = line.replace(b"5", str(len(hidden)).encode())
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden) if b"chunked" in line else hidden
    seen = _outcome(loop, [_GET + b"\r\nHost: t\r\n" + long + b"\r\n\r\n" + body])
    ports = [announce.port for announce, *_ in seen.requests]
    assert ports == ([6881, 1] if line.endswith(b" 0") else [6881])
