"""A request and its answer, as small as aiohttp allows.

What its own leave room for costs more than the rest of an announce: URL objects, header dictionaries,
cookies, streams. Ours keep to what a tracker sends and what aiohttp's protocol asks of them.
"""

import asyncio
import functools
from typing import cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from tracker.bittorrent import Address


class Request(web.BaseRequest):
    """A request as the parser made it. ``kind`` and ``client`` are filled in for the access log.

    aiohttp's own constructor also digests the URL, which costs time and raises for some absolute
    targets (``http://xn--/``) where nobody catches it.
    """

    kind = "malformed"
    client = Address(b"")
    last = False
    """No other is answered on its connection."""

    def __init__(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        payload_writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._message = message
        self._payload = payload
        self._protocol = protocol
        self._payload_writer = payload_writer
        self._task = task
        self._loop = loop
        self._headers = message.headers
        self._method = message.method
        self._version = message.version
        self._state = {}
        self._cache = {}


class Answer(web.StreamResponse):
    """A whole plain-text answer, written at once.

    aiohttp's own Response builds a header dictionary and serialises it for every answer; together with
    its Request that is 16 of the 36 microseconds it takes around a handler. The few heads needed here
    are made once.
    """

    _content: bytes
    _writer: AbstractStreamWriter | None = None

    def __init__(self, body: bytes, *, status: int = 200, close: bool = False) -> None:
        # Deliberately without super().__init__(): it makes the dictionaries.
        self._content = body
        self._status = status
        self._keep_alive = False if close else None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive and not cast(Request, request).last
        self._writer = writer = request.writer
        head = answer_head(self._status, request.version == HttpVersion11, self._keep_alive)
        await writer.write(b"%b%d\r\n\r\n%b" % (head, len(self._content), self._content))
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        if self._writer is not None:
            await self._writer.drain()


@functools.cache
def answer_head(status: int, version11: bool, keep_alive: bool) -> bytes:
    """The head up to the value of Content-Length."""
    reason = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}[status]
    version = "1.1" if version11 else "1.0"
    said = {(True, False): "Connection: close\r\n", (False, True): "Connection: keep-alive\r\n"}
    connection = said.get((version11, keep_alive), "")
    return f"HTTP/{version} {status} {reason}\r\nContent-Type: text/plain\r\n{connection}Content-Length: ".encode()
