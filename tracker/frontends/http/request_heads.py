"""The header lines of a request, and whether a tracker may go by them without looking any further.

aiohttp's own parser reads them, the one that would read the request if it were passed on: so the two servers of a port
cannot disagree about where a request ends. What it found is remembered by the bytes: the clients of one program send the
same lines every time, the address of the tracker among them.
"""

import asyncio
from typing import NamedTuple

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpVersion10, HttpVersion11
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser

from tracker.frontends.exchange import answer_head
from tracker.settings import HttpSettings

_MOST_REMEMBERED, _LONGEST_REMEMBERED = 4096, 512
_BODY = ("Content-Length", "Transfer-Encoding", "Expect", "Upgrade")
_READ_BUFFER = 2**16


class Head(NamedTuple):
    """A request without a body and without surprises."""

    answer: bytes
    """How an answer to it begins, up to the value of its Content-Length."""
    keep_alive: bool
    forwarded_for: tuple[str, ...] = ()
    """The values of X-Forwarded-For, and of Forwarded, in order."""
    forwarded: tuple[str, ...] = ()


class Heads:
    """``known`` has what was read before, by all that followed ``HTTP/1.`` in the request line."""

    def __init__(self, http: HttpSettings) -> None:
        self._http = http
        self.known: dict[bytes, Head] = {}
        self.leaving = False
        """Whether every answer is the last of its connection, and says so."""

    def leave(self) -> None:
        self.leaving = True
        self.known.clear()

    def read(self, lines: bytes) -> Head | None:
        """``None`` for whatever is not the whole head of one plain request, and nothing after it."""
        loop = asyncio.get_running_loop()
        parser = HttpRequestParser(
            BaseProtocol(loop),
            loop,
            _READ_BUFFER,
            max_line_size=self._http.max_request_line_bytes,
            max_field_size=self._http.max_header_bytes,
            max_headers=self._http.max_headers,
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
        if any(name in headers for name in _BODY):  # in any case: aiohttp's parser in Python keeps it
            return None
        keep_alive = not message.should_close
        return Head(
            answer_head(200, message.version == HttpVersion11, keep_alive and not self.leaving),
            keep_alive,
            tuple(headers.getall("X-Forwarded-For", ())),
            tuple(headers.getall("Forwarded", ())),
        )

    def learn(self, lines: bytes) -> Head | None:
        """The same, and remembers it. At most some megabytes, whatever is sent: when full, it begins anew."""
        head = self.read(lines)
        if head is not None and len(lines) <= _LONGEST_REMEMBERED:
            if len(self.known) >= _MOST_REMEMBERED:
                self.known.clear()
            self.known[lines] = head
        return head
