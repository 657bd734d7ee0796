"""Parses and caches request heads, and decides whether the fast path may answer them. aiohttp's own parser reads them,
as it would if the request were handed over. So the two protocols of a port cannot disagree about where a request ends.
Results are cached by the bytes: clients of one program send the same lines in every request."""

import asyncio
from dataclasses import dataclass

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpVersion10, HttpVersion11
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser

from tracker.frontends.http.aiohttp_messages import answer_head, is_browser, user_agent_of
from tracker.settings.public import HttpSettings
from tracker.system.aiohttp_connection import MAX_HEADERS

_MAX_CACHED, _MAX_CACHED_BYTES = 4096, 512
_BODY = ("Content-Length", "Transfer-Encoding", "Expect", "Upgrade", "Sec-WebSocket-Key")
_READ_BUFFER = 2**16


@dataclass(frozen=True, slots=True)
class ParsedHead:
    """The head of a plain request: HTTP/1.x, without a body, an upgrade or a browser's headers."""

    answer: bytes
    """The head of an answer to it, up to the value of Content-Length."""
    keep_alive: bool
    forwarded_for: tuple[str, ...] = ()
    """The values of X-Forwarded-For, and of Forwarded, in order."""
    forwarded: tuple[str, ...] = ()
    user_agent: bytes = b""
    """Empty unless it is kept."""


class RequestHeadCache:
    """``known`` is the cache, by the bytes that follow ``HTTP/1.`` in the request line."""

    def __init__(self, http: HttpSettings) -> None:
        self._http = http
        self.known: dict[bytes, ParsedHead] = {}
        self.stopping = False
        """Whether every answer closes its connection."""

    def stop(self) -> None:
        self.stopping = True
        self.known.clear()

    def read(self, lines: bytes) -> ParsedHead | None:
        """The head, or None unless ``lines`` are the complete head of one plain request."""
        loop = asyncio.get_running_loop()
        parser = HttpRequestParser(
            BaseProtocol(loop),
            loop,
            _READ_BUFFER,
            max_line_size=self._http.max_request_line_bytes,
            max_field_size=self._http.max_header_bytes,
            max_headers=MAX_HEADERS,
        )
        try:
            messages, upgraded, rest = parser.feed_data(b"GET / HTTP/1." + lines)
        except HttpProcessingError:
            return None
        if len(messages) != 1 or upgraded or rest:
            return None
        message = messages[0][0]
        headers = message.headers
        if message.version not in (HttpVersion10, HttpVersion11):
            return None
        if any(name in headers for name in _BODY):  # aiohttp's parser in Python accepts any case
            return None
        if is_browser(headers):  # handler.py refuses it
            return None
        keep_alive = not message.should_close
        return ParsedHead(
            answer_head(200, message.version == HttpVersion11, keep_alive and not self.stopping),
            keep_alive,
            tuple(headers.getall("X-Forwarded-For", ())),
            tuple(headers.getall("Forwarded", ())),
            user_agent_of(headers) if self._http.keep_user_agents else b"",
        )

    def read_and_cache(self, lines: bytes) -> ParsedHead | None:
        """The same, cached. A full cache is cleared, so it holds at most some megabytes."""
        head = self.read(lines)
        if head is not None and len(lines) <= _MAX_CACHED_BYTES:
            if len(self.known) >= _MAX_CACHED:
                self.known.clear()
            self.known[lines] = head
        return head
