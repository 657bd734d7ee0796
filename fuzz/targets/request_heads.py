"""Request heads: those that the fast path accepts mean the same to aiohttp's parser in Python.

That parser is independent of the one in C: it has its own rules for numbers, names and white space.
"""

import asyncio
from collections.abc import Iterable

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParserPy

from fuzz import vectors
from tracker.frontends.http.request_heads import RequestHeadCache
from tracker.settings.public import HttpSettings

MAX_LENGTH = 600
_SETTINGS = HttpSettings()
_BODY = {"content-length", "transfer-encoding", "expect", "upgrade"}


def check(data: bytes) -> None:
    _loop.run_until_complete(_check(data))


async def _check(data: bytes) -> None:
    heads = RequestHeadCache(_SETTINGS)
    head = heads.read(data)
    assert heads.read_and_cache(data) == head == heads.read_and_cache(data)
    if head is None:
        return
    assert data.endswith(b"\r\n\r\n") or b"\n" in data
    loop = asyncio.get_running_loop()
    parser = HttpRequestParserPy(BaseProtocol(loop), loop, 2**16, max_line_size=32768, max_field_size=8190)
    try:
        messages, upgraded, rest = parser.feed_data(b"GET / HTTP/1." + data)
    except HttpProcessingError:
        return  # stricter is safe
    assert len(messages) == 1 and not upgraded and not rest, "not exactly one request"
    message, payload = messages[0]
    assert payload.is_eof() and not {name.lower() for name in message.headers} & _BODY, "the request has a body"
    assert head.keep_alive is not message.should_close
    assert head.forwarded_for == tuple(message.headers.getall("X-Forwarded-For", ()))
    assert head.forwarded == tuple(message.headers.getall("Forwarded", ()))


_loop = asyncio.new_event_loop()


def seeds() -> Iterable[bytes]:
    recorded = [head.partition(b" HTTP/1.")[2] for head in vectors.heads()]
    unusual = [
        b"1\r\nHost: t\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.1.1.1\r\n\r\n",
        b"0\r\nConnection: keep-alive\r\n\r\n",
        b"1\r\nHost: t\r\nContent-Length: 0\r\n\r\n",
        b"1\nHost: t\nA: b\n\n",
        b"1\r\nHost: t\r\n folded\r\n\r\n",
        b"1\r\nHost : t\r\nHost: u\r\n\r\n",
    ]
    return [*recorded, *unusual]
