"""One HTTP connection of aiohttp, guarded against clients that are slow, broken or hostile.

The public port and the admin port build their connections on this one. It adds to aiohttp:

- A bound for the whole head. aiohttp bounds each line and their number; 8 kB lines add up to half a megabyte.
- A deadline for a client that does not read its reply.
- The replies of the port itself for what aiohttp refuses, and for a handler that raises.
- Quiet logs: what a client breaks is no error of ours.
"""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from traceback import walk_tb
from typing import Any, ClassVar, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from tracker.bittorrent import Address, is_routable
from tracker.system.listeners import Listener
from tracker.wire.endpoint import pack_address
from tracker.wire.proxy import Networks, begins_proxy_header, parse_proxy_header

NO_ADDRESS = Address(b"")
"""The address of a client on a unix socket."""
MAX_HEADERS = 64
"""Header lines in one request: BitTorrent clients send fewer than 10, browsers behind proxies fewer than 40."""
LINGER_SECONDS = 1.0
"""How long the unread rest of a request body is discarded before the connection is closed."""


class GuardedConnection(RequestHandler):
    """``_body`` is the body of the last request parsed; ``_head_bytes`` counts the head that is not complete yet."""

    __slots__ = ("_body", "_head_bytes", "_socket_transport", "_stall_timer")

    client_errors: ClassVar[tuple[type[BaseException], ...]] = (HttpProcessingError, RequestPayloadError, OSError)
    """Errors that a client causes; they are not logged."""

    def __init__(self, server: "GuardedServer", **options: Any) -> None:
        super().__init__(server, **options)
        self._head_bytes = 0
        self._body: StreamReader = EMPTY_PAYLOAD
        # aiohttp forgets its transport when it closes it, which is before the last bytes have left.
        self._socket_transport: asyncio.Transport | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._socket_transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._cancel_stall_timer()
        if self._task_handler is not None and not self._request_in_progress:
            # Otherwise it handles a request parsed just now, or waits for the rest of a discarded body.
            self._task_handler.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        requests, between_bodies = self._request_count, self._body.is_eof()
        super().data_received(data)
        if self._request_count != requests:
            self._head_bytes = 0
            self._body = self._messages[-1][1]
        elif between_bodies and not self._close:
            self._head_bytes += len(data)
            if self._head_bytes > self.max_line_size + self.max_field_size:
                self.on_head_too_long()

    def on_head_too_long(self) -> None:
        self.force_close()

    @property
    def waits_for_request(self) -> bool:
        """No request is being answered, and none is queued."""
        return not self._messages and (self._waiter is not None or not self._request_count)

    @property
    def idle(self) -> bool:
        """Whether it may be closed without losing an answer: it is open, and no request is in flight."""
        return self.waits_for_request and not self._force_close

    def pause_writing(self) -> None:
        """The client does not read its reply. It gets as long as an idle one, then the connection is aborted."""
        super().pause_writing()
        if self._socket_transport is not None and self._stall_timer is None:
            self._stall_timer = self._loop.call_later(self.keepalive_timeout, self._socket_transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_stall_timer()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def malformed_reply(self, error: BaseException | None) -> web.StreamResponse:
        """The reply to what aiohttp refuses before a handler runs. The connection is closed after it."""
        raise NotImplementedError

    def crash_reply(self, request: web.BaseRequest, error: BaseException | None) -> web.StreamResponse:
        """The reply for a handler that raised, or took too long. The connection is closed after it."""
        raise NotImplementedError

    def log_failure(self, error: Any) -> None:
        """Log an error outside handlers that no client causes."""
        raise NotImplementedError

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionAbortedError("the reply has already begun")
        reply = self.malformed_reply(exc) if status == 400 else self.crash_reply(request, exc)
        reply.force_close()
        return reply

    def log_exception(self, *args: Any, **kw: Any) -> None:
        error = kw.get("exc_info")
        if not isinstance(error, self.client_errors):
            self.log_failure(error)


class ProxiedConnection(GuardedConnection):
    """One whose client may be named by the PROXY header of a trusted proxy. ``address`` is that of the other end, or of
    the client that the header names; ``trusted``: it is a trusted proxy. PROXY headers are required where ``_preface``
    is not None at first, and not expected elsewhere."""

    __slots__ = ("_preface", "_proxies", "address", "named", "trusted")

    def __init__(self, server: "GuardedServer", proxies: Networks, **options: Any) -> None:
        super().__init__(server, **options)
        self._proxies = proxies
        self._preface: bytes | None = None
        self.address = NO_ADDRESS
        self.trusted = False
        self.named = False
        """Whether a PROXY header has given ``address``: then it may be a client on the proxy's own host."""

    def on_bad_header(self, *, missing: bool) -> None:
        """A required PROXY header is missing or malformed. The connection is closed."""
        raise NotImplementedError

    def is_unexpected_header(self, data: bytes) -> bool:
        """Whether a proxy sends a PROXY header that the settings do not allow. Any other client that sends one has sent
        a malformed request."""
        return begins_proxy_header(data) and (self.trusted or not is_routable(self.address))

    def take_header(self, data: bytes) -> bytes:
        """Removes the PROXY header; returns what follows, nothing while it is incomplete or when it is malformed."""
        self._preface = buffer = (self._preface or b"") + data
        try:
            header = parse_proxy_header(buffer)
        except ValueError:
            self.on_bad_header(missing=not begins_proxy_header(buffer))
            self.force_close()
            return b""
        if header is None:
            return b""
        self._preface = None
        if header.source is not None:
            self.address, self.trusted = header.source, header.source in self._proxies
            self.named = True
        return buffer[header.length :]


def peer_of(transport: asyncio.BaseTransport, proxies: Networks | None) -> tuple[Address, bool]:
    """The packed address of the other end (NO_ADDRESS on a unix socket), and whether it is a trusted proxy. ``proxies``
    is None where none is trusted. A disconnected TCP client has no peername either, so a missing address alone does not
    mean trust."""
    peer = transport.get_extra_info("peername")
    if isinstance(peer, tuple):
        if len(peer) == 2:  # (host, port) of IPv4
            address = Address(socket.inet_aton(peer[0]))
        else:
            address = pack_address(peer[0].partition("%")[0]) or NO_ADDRESS
        return address, proxies is not None and address != NO_ADDRESS and address in proxies
    sock = transport.get_extra_info("socket")
    return NO_ADDRESS, proxies is not None and sock is not None and sock.family == socket.AF_UNIX


class GuardedServer(web.Server):
    """aiohttp's low-level server; a subclass builds its connections in ``__call__``. ``idle_seconds`` applies between
    two requests, and to a client that does not read its reply."""

    def __init__(
        self, handler: Callable[[Any], Awaitable[web.StreamResponse]], idle_seconds: float, **options: Any
    ) -> None:
        super().__init__(
            handler,
            keepalive_timeout=idle_seconds,
            max_headers=MAX_HEADERS,
            lingering_time=LINGER_SECONDS,
            auto_decompress=False,  # neither port takes compressed bodies, and a small body stays small
            **options,
        )


@asynccontextmanager
async def accepting(
    app: web.Application, listeners: Sequence[Listener], stop_seconds: float, build: Callable[..., GuardedServer]
) -> AsyncIterator[None]:
    """Serves the application on the listeners, by the server that ``build`` makes of its handler. Leaving the block
    closes the sockets, and gives requests in flight ``stop_seconds``."""
    runner = web.AppRunner(app, shutdown_timeout=stop_seconds)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        for listener in listeners:
            stack.callback(listener.close)
        await runner.setup()
        made = runner.server
        assert made is not None
        runner._server = server = build(cast(Any, made.request_handler), request_factory=made.request_factory)
        for listener in listeners:
            stack.callback((await listener.accept(server)).close)
        yield


_HOST = re.compile(rb"\r\nhost[ \t]*:", re.IGNORECASE).search


def with_host(head: bytes) -> bytes:
    """A complete head, with a Host header added to HTTP/1.1 without one. A proxy that passes on the request of an
    HTTP/1.0 client may have none to send."""
    line, _, headers = head.partition(b"\r\n")
    if not line.endswith(b"1") or _HOST(head):
        return head
    return line + b"\r\nHost: -\r\n" + headers


def describe(error: BaseException | None) -> dict[str, str]:
    """What may be logged of an error: its type and where it was raised. Its text may contain a passkey."""
    codes = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__ if error is not None else None)]
    frames = [f"{code.co_filename.rpartition('/')[2]}:{line} {code.co_name}" for code, line in codes]
    return {"error": type(error).__name__, "at": " > ".join(frames[-6:])}
