"""Hostile bytes get a bencoded answer, a page or a closed connection, and never log an error."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator

import bencodepy
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.frontends.http.harness import ANNOUNCE, RecordingTracker, serving
from tests.raw_http import PATIENCE, connect, request

# One server for all examples of a test.
Fuzzed = tuple[asyncio.Runner, str]

TOKENS = st.sampled_from(
    [
        *(b"GET ", b"POST ", b"HEAD ", b"CONNECT ", b"PRI * ", b"/announce", b"/scrape", b"http://", b"xn--", b"//"),
        *(b"?info_hash=", b"&peer_id=", b"%", b"%zz", b"#", b" HTTP/1.1", b" HTTP/1.0", b"\r\n", b"\n", b"\r"),
        *(b"Host: t\r\n", b"Host:", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b": ", b"\x00", b"\xff"),
        *(b"Transfer-Encoding: chunked\r\n", b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"0\r\n\r\n", b"5\r\n"),
        *(b"Content-Encoding: gzip\r\n", b"Expect: 100-continue\r\n", b"Sec-WebSocket-Key1: a\r\n", b" " * 9),
        *(b"X-Forwarded-For: ,\xff\r\n", b'Forwarded: for="[\r\n', b"PROXY TCP4 ", b"a" * 40_000),
        *(request(ANNOUNCE), request("/"), request(ANNOUNCE, method="POST")),
    ]
)
HOSTILE = st.lists(TOKENS | st.binary(max_size=30), max_size=25).map(b"".join) | st.binary(max_size=300)
TARGETS = st.lists(
    st.sampled_from([b"/", b"announce", b"scrape", b"%", b"?", b"info_hash=", b"&", b"=", b"http://", b"[", b"@", b":"])
    | st.binary(min_size=1, max_size=25).map(lambda raw: bytes(33 + byte % 94 for byte in raw)),
    max_size=12,
).map(b"".join)
QUICK = examples(150)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def fuzzed(request: pytest.FixtureRequest) -> Iterator[Fuzzed]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        tracker = RecordingTracker()
        stack = contextlib.AsyncExitStack()
        front_end = serving(
            tracker, constants={"system.aiohttp_connection.LINGER_SECONDS": 0.01}, trusted_proxies=("127.0.0.0/8",)
        )
        address = runner.run(stack.enter_async_context(front_end))
        yield runner, address
        runner.run(stack.aclose())


async def exchange(address: str, pieces: list[bytes]) -> bytes:
    """All bytes that the tracker sends until it closes. It must still serve other clients then."""
    async with connect(address) as client:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                client.send(piece)
                await client.writer.drain()
                await asyncio.sleep(0)
            client.half_close()
        received = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                received = await client.reader.read()
    async with connect(address) as client:
        assert (await client.get(ANNOUNCE, "X-Forwarded-For: 9.9.9.9")).reply[b"peers"] == b""
    return received


def check(received: bytes) -> None:
    """Complete plain-text answers, in bencode unless they are empty or one of the two pages."""
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0][9:] in (b"200 OK", b"404 Not Found")
        assert b"Content-Type: text/plain" in lines
        length = int(lines[-1].removeprefix(b"Content-Length: "))
        body, received = rest[:length], rest[length:]
        assert len(body) == length
        if body and not body.startswith(b"Th"):
            assert bencodepy.encode(bencodepy.decode(body)) == body


@QUICK
@given(data=HOSTILE, cuts=st.lists(st.integers(0, 400), max_size=4))
def test_any_bytes_are_answered_or_close_the_connection(fuzzed: Fuzzed, data: bytes, cuts: list[int]) -> None:
    runner, address = fuzzed
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(edges) if data[start:end]]
    check(runner.run(exchange(address, pieces)))


@QUICK
@given(target=TARGETS)
def test_any_target_is_answered(fuzzed: Fuzzed, target: bytes) -> None:
    runner, address = fuzzed
    received = runner.run(
        exchange(address, [b"GET " + target + b" HTTP/1.1\r\nHost: t\r\nX-Forwarded-For: 9.9.9.9\r\n\r\n"])
    )
    assert received
    check(received)


@QUICK
@given(lines=st.lists(st.binary(max_size=40).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b"")), max_size=4))
def test_any_forwarding_header_is_answered(fuzzed: Fuzzed, lines: list[bytes]) -> None:
    runner, address = fuzzed
    headers = b"".join(name + line + b"\r\n" for line in lines for name in (b"X-Forwarded-For: ", b"Forwarded: for="))
    received = runner.run(exchange(address, [request(ANNOUNCE)[:-2] + headers + b"\r\n"]))
    assert received
    check(received)
