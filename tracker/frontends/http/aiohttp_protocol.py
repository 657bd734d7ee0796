"""A connection that aiohttp handles, adapted to BitTorrent clients and a hostile network.

It adds to aiohttp:

- A client that closes its sending side after a request still gets its answer.
- What aiohttp refuses before a handler runs gets a bencoded failure, and is not logged as an error.
- A client that does not read its answers is disconnected, and so is one whose request head stays incomplete
  (connection_table.py).
- A PROXY protocol header is removed from the first bytes.
- A stop answers the requests in flight.
- One request is parsed at a time; later bytes wait unparsed until the client has read the answer.

PROXY headers are required on connections of trusted proxies, and on no others. Any other client that sends one has sent
a malformed request.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage, WebSocketReader
from aiohttp.http_parser import HttpRequestParser
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from tracker.frontends.http.aiohttp_messages import Answer, Request
from tracker.frontends.http.connection_table import ConnectionTable
from tracker.frontends.http.handler import HttpHandler, ProxyMismatch
from tracker.refusals import PROXY_HEADER_MISSING, PROXY_HEADER_UNEXPECTED
from tracker.system.aiohttp_connection import GuardedServer, ProxiedConnection, describe, with_host
from tracker.system.logger import Logger

_MAX_READ_AHEAD = 32768
"""Unparsed bytes after which reading pauses until the answer is sent. The last read may add as many again."""
_READ_BUFFER = 65536
_HEAD_END = b"\r\n\r\n"
_PING = b"\x89\0"
_NO_DEADLINE = sys.maxsize
"""Between two requests aiohttp's keep-alive timer applies."""

log = Logger(__name__)


class Connection(ProxiedConnection):
    """See the head of this module. The fast protocol sets ``address`` and ``trusted``."""

    __slots__ = (
        "_ahead",
        "_answering",
        "_half_closed",
        "_http_handler",
        "_last",
        "_mismatch",
        "_seen",
        "_table",
        "_tail",
        "messages",
        "on_stop",
        "pinged",
        "until",
    )

    def __init__(self, manager: "Server", **options: Any) -> None:
        super().__init__(manager, manager.http_handler.proxies, **options)
        # aiohttp's own stops only after 32 requests.
        self._parser = HttpRequestParser(
            self,
            self._loop,
            _READ_BUFFER,
            max_line_size=self.max_line_size,
            max_field_size=self.max_field_size,
            max_headers=self.max_headers,
            payload_exception=RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=1,
        )
        self._ahead = bytearray()
        self._tail = 0
        self._seen = b""
        self._answering = False
        self._http_handler = manager.http_handler
        self._table = manager.table
        self.until = self._table.now + self._table.head_sweeps
        self._mismatch: ProxyMismatch | None = None
        self._last = False
        self._half_closed: asyncio.TimerHandle | None = None
        self.on_stop: Callable[[], None] | None = None
        """Closes the connection when the tracker stops, where a WebSocket has replaced HTTP."""
        self.pinged = False
        """Whether a WebSocket has received nothing since it sent a ping."""
        self.messages: WebSocketReader | None = None
        """Reads the messages of a WebSocket in place of aiohttp's own."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Every byte that cannot leave at once starts the stall timer.
        cast(asyncio.Transport, transport).set_write_buffer_limits(high=0)
        if self.trusted and self._http_handler.http.proxy_protocol:
            self._preface = b""

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._half_closed is not None:
            self._half_closed.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._payload_parser is not None:
            self.until = self._table.now + self._table.ping_sweeps
            self.pinged = False
            RequestHandler.data_received(self, data)
            return
        if self._last:
            return
        if self._preface is not None:
            data = self.take_header(data)
            if not data:
                return
        elif self.fresh and self.is_unexpected_header(data):
            self._mismatch = ProxyMismatch(PROXY_HEADER_UNEXPECTED)
        if self.writing_paused or self.pending or (self._answering and self._body.is_eof()):
            self._ahead += data
            if len(self._ahead) > _MAX_READ_AHEAD:
                self._pause_transport_reading()
        else:
            self._feed(data)
        self._account()

    def _feed(self, data: bytes) -> None:
        """Parses up to the end of the first request; the rest of ``data`` waits for its answer. The end of a head may
        arrive in two pieces, so the last bytes of the first piece are kept."""
        while data and not self._answering:
            before, whole, _ = (self._seen + data).partition(_HEAD_END)
            head = data[: len(before + whole) - len(self._seen)]
            self._seen = b"" if whole else before[1 - len(_HEAD_END) :]
            data = data[len(head) :]
            self._parse(with_host(head) if self.trusted and whole and not self._head_bytes else head)
        if not self._body.is_eof():
            self._parse(data)
            self._tail, self._seen = (len(data), data[1 - len(_HEAD_END) :]) if self._body.is_eof() else (0, b"")
        else:
            self._ahead += data

    def _parse(self, data: bytes) -> None:
        waits, requests = self.until == _NO_DEADLINE and self._waiter is not None, self._request_count
        between_bodies = self._body.is_eof()
        try:
            super().data_received(data)
        except Exception:  # noqa: BLE001
            # An error that aiohttp does not expect of its parser. The input caused it: no traceback.
            self._http_handler.malformed(None)
            self.force_close()
        if self._request_count != requests:
            self._answering = True
            self.until = _NO_DEADLINE
        elif waits:
            self.until = self._table.now + self._table.head_sweeps
        if self._upgraded and self._parser is not None:
            # The Upgrade header of a request is ignored: the bytes that follow are the next request.
            self._parser.set_upgraded(False)
            self._upgraded = False
            following, self._message_tail = self._message_tail, b""
            if self._answering:
                self._ahead[:0] = following
            else:
                self._parse(following)
        elif not between_bodies and self._body.is_eof() and not self._answering:
            self._parse(b"")  # the parser stops at the end of an unread body

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """The connection becomes a WebSocket; what has arrived after the request is its first bytes."""
        self._upgraded = True  # else aiohttp would pause the parser of HTTP when messages arrive too fast
        super().set_parser(self.messages or parser, data_received_cb)
        self._parser = None
        self.until = self._table.now + self._table.ping_sweeps
        ahead, self._ahead = bytes(self._ahead), bytearray()
        self._account()
        self._resume_transport_reading()
        if ahead:
            self.data_received(ahead)

    def _account(self) -> None:
        self._table.requests.hold(self, self._head_bytes + self._tail + len(self._ahead))

    def on_answer_read(self) -> None:
        """The client has read its answer; the next request is parsed in a later turn of the loop."""
        self._answering = False
        if self.pending or self._last:
            self._table.continue_in_turn(self._continue)

    def _continue(self) -> None:
        if self._answering or self.writing_paused or self._close or self._force_close:
            return
        if self._tail:
            self._parse(b"")
            if not self._answering:
                self._head_bytes += self._tail
                self._tail = 0
        ahead, self._ahead = bytes(self._ahead), bytearray()
        self._feed(ahead)
        self._account()
        if self._last and not self._answering:
            self.force_close()
        elif not self._ahead:
            self._resume_transport_reading()

    @property
    def pending(self) -> bool:
        """Whether bytes follow the request that is being answered."""
        return bool(self._ahead or self._tail)

    def on_head_too_long(self) -> None:
        self._http_handler.malformed(None)
        self.force_close()

    def on_bad_header(self, *, missing: bool) -> None:
        self._http_handler.malformed(ProxyMismatch(PROXY_HEADER_MISSING) if missing else None)

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp's says None, asyncio reads a bool
        """The client has closed its sending side, and may still wait for its answers, for a limited time."""
        if self._payload_parser is not None or not self.finish():
            return False
        self._half_closed = self._loop.call_later(self._table.half_close_seconds, self.force_close)
        return True

    def finish(self) -> bool:
        """Answers the requests so far, reads no more, then closes; returns False when there were none."""
        self._last = self._answering or self.pending
        return self._last

    def close_gracefully(self) -> None:
        if self.on_stop is not None:
            self.on_stop()
        elif not self.finish():
            self.force_close()

    @property
    def fresh(self) -> bool:
        return not self._request_count and not self._messages

    @property
    def idle(self) -> bool:
        """Whether it waits for a request, or for a client that does not read."""
        return self._stall_timer is not None or self.waits_for_request

    def abort(self) -> None:
        if self._socket_transport is not None:
            self._socket_transport.abort()

    def on_overdue(self) -> None:
        """A WebSocket is sent a ping, and closed if nothing arrives after it."""
        if self.pinged or (self._payload_parser is None and self.idle):
            self.abort()
        elif self._payload_parser is not None and self._socket_transport is not None:
            self.pinged = True
            self.until = self._table.now + self._table.pong_sweeps
            self._socket_transport.write(_PING)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.hold_unread()

    def hold_unread(self) -> None:
        """Notes how much the client has not read."""
        if self._socket_transport is not None:
            self._table.answers.hold(self, self._socket_transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._table.answers.release(self)
        if not self._answering and self.pending:
            self._table.continue_in_turn(self._continue)

    def malformed_reply(self, error: BaseException | None) -> web.StreamResponse:
        return self._http_handler.malformed(self._mismatch or error)

    def crash_reply(self, request: web.BaseRequest, error: BaseException | None) -> web.StreamResponse:
        return Answer(self._http_handler.crash(error), close=True)

    def log_failure(self, error: Any) -> None:
        log.error("connection failed", **describe(error))


class Server(GuardedServer):
    """aiohttp's low-level server: one handler, no router, and our connections."""

    def __init__(self, handler: HttpHandler, table: ConnectionTable, **options: Any) -> None:
        self.http_handler = handler
        self.table = table
        self.stopping = False
        """Whether every answer closes its connection."""
        super().__init__(
            handler.handle,
            handler.http.keepalive_seconds,
            max_line_size=handler.http.max_request_line_bytes,
            max_field_size=handler.http.max_header_bytes,
            tcp_keepalive=False,  # the keep-alive timer is stricter
            **options,
        )

    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._kwargs)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> Request:
        request = Request(message, payload, protocol, writer, task, self._loop)
        request.last = self.stopping and not cast(Connection, protocol).pending
        return request

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if self.table.closing:
            # Deferred, because aiohttp starts the connection's task after this call.
            self._loop.call_soon(cast(Connection, handler).close_gracefully)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.table.remove(cast(Connection, handler))
