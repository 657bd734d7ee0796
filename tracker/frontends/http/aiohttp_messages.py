"""A request and its answer, as small as aiohttp allows. aiohttp's own classes cost more than the rest of an announce:
URL objects, header dictionaries, cookies, streams. These hold only what a tracker sends, and what aiohttp's protocol
needs."""

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from tracker.bittorrent import Address
from tracker.names import clean_text


class Request(web.BaseRequest):
    """A request as the parser made it. ``kind`` and ``client`` are set for the access log. aiohttp's own constructor
    also parses the URL. That costs time, and raises an uncaught error for some absolute targets (``http://xn--/``)."""

    kind = "malformed"
    client = Address(b"")
    last = False
    """Whether its answer closes the connection."""

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

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """For the answer that opens a WebSocket: aiohttp would name its version and Python's."""
        response.headers.popall("Server", None)


_PIECE = 65536
"""Bytes of an answer written at a time: many clients may read the same long answer, each at its own speed."""


class Answer(web.StreamResponse):
    """A complete plain-text answer, written at once unless it is long. aiohttp's own Response builds and serialises a
    header dictionary for every answer. The few heads needed here are made once."""

    _content: bytes
    _writer: AbstractStreamWriter | None = None
    _on_answer_read: Callable[[], None]

    def __init__(self, body: bytes, *, status: int = 200, close: bool = False) -> None:
        # No super().__init__(): it makes the dictionaries.
        self._content = body
        self._status = status
        self._keep_alive = False if close else None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive and not cast(Request, request).last
        self._writer = writer = request.writer
        self._on_answer_read = cast(Any, request.protocol).on_answer_read  # of a Connection (aiohttp_protocol.py)
        head = answer_head(self._status, request.version == HttpVersion11, self._keep_alive)
        await writer.write(b"%b%d\r\n\r\n%b" % (head, len(self._content), self._content[:_PIECE]))
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        if self._writer is not None:
            for start in range(_PIECE, len(self._content), _PIECE):
                await self._writer.write(self._content[start : start + _PIECE])
            await self._writer.drain()
            self._on_answer_read()


def forbidden(reason: str) -> Answer:
    """The answer to a request for a WebSocket that is refused."""
    return Answer(f"{reason}\n".encode(), status=403, close=True)


_BROWSERS_ONLY = ("Sec-Fetch-Site", "Sec-Fetch-Dest")
"""Headers that browsers send over HTTPS. Node.js, and so WebTorrent, sends only Sec-Fetch-Mode."""
_OF_PAGES = ("image/", "text/html")
"""In a browser's Accept header for a picture, a frame or a page. Clients built on a browser accept anything."""


def is_browser(headers: Mapping[str, str]) -> bool:
    """Whether a browser sent the request for a page: visitors of a page must not join swarms."""
    if any(name in headers for name in _BROWSERS_ONLY):
        return True
    if not headers.get("User-Agent", "").startswith("Mozilla/"):
        return False
    accepted = headers.get("Accept", "").lower()
    return any(kind in accepted for kind in _OF_PAGES)


def user_agent_of(headers: Mapping[str, str]) -> bytes:
    """What a client calls itself, up to 64 characters."""
    return clean_text(headers.get("User-Agent", "")).strip()[:64].encode("utf-8", "replace")


@functools.cache
def answer_head(status: int, version11: bool, keep_alive: bool) -> bytes:
    """The head up to the value of Content-Length."""
    reason = {200: "OK", 403: "Forbidden", 404: "Not Found", 503: "Service Unavailable"}[status]
    version = "1.1" if version11 else "1.0"
    headers = {(True, False): "Connection: close\r\n", (False, True): "Connection: keep-alive\r\n"}
    connection = headers.get((version11, keep_alive), "")
    return f"HTTP/{version} {status} {reason}\r\nContent-Type: text/plain\r\n{connection}Content-Length: ".encode()
