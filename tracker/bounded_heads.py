"""aiohttp's protocol of one connection, with a bound for a whole head.

aiohttp holds a head in memory until it is whole, and bounds each of its lines and how many there are, but not all of them
together: with lines of 8 kB one connection would hold half a megabyte.
"""

from typing import Any

from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler


class BoundedHeads(RequestHandler):
    """``most_head_bytes``: of a head that is not whole yet."""

    __slots__ = ("_body", "_head_bytes", "_most_head_bytes")

    def __init__(self, server: web.Server, most_head_bytes: int, **options: Any) -> None:
        super().__init__(server, **options)
        self._most_head_bytes = most_head_bytes
        self._head_bytes = 0
        self._body: StreamReader = EMPTY_PAYLOAD

    def data_received(self, data: bytes) -> None:
        asked, between_bodies = self._request_count, self._body.is_eof()
        super().data_received(data)
        if self._request_count != asked:
            self._head_bytes = 0
            self._body = self._messages[-1][1]
        elif between_bodies and not self._close:
            self._head_bytes += len(data)
            if self._head_bytes > self._most_head_bytes:
                self.head_too_long()

    def head_too_long(self) -> None:
        self.force_close()
