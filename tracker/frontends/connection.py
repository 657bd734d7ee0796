"""One HTTP connection: aiohttp's protocol, made fit for BitTorrent clients and a hostile network.

What it adds to aiohttp: a client that half-closes after its request gets its answer; requests that
aiohttp refuses before any handler runs get an answer of ours, and nothing they send is logged as an
error; a client that does not read its answers is cut off; a PROXY protocol header is taken off the
front; a head that does not end is given up (crowd.py); stopping answers what is in flight.

PROXY headers are expected on, and only on, connections from trusted proxies. Anybody else is served
as plain HTTP, where such a header is a malformed request and names no address.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import structlog
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from tracker.bittorrent import Address
from tracker.bounded_heads import BoundedHeads
from tracker.frontends.crowd import Crowd
from tracker.frontends.exchange import Answer, Request
from tracker.settings import HttpSettings
from tracker.wire.compact import pack_address
from tracker.wire.proxy import TrustedNetworks, parse_proxy_header

NO_ADDRESS = Address(b"")
LINGER_SECONDS = 1.0
"""How long an unread request body is thrown away before the connection is closed under it."""
_RESTS = sys.maxsize
"""Between two requests it is aiohttp that closes it, after the time that one may be idle."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Rules:
    """What every connection of a server goes by."""

    settings: HttpSettings
    trusted: TrustedNetworks
    malformed: Callable[[BaseException | None], Answer]
    """Answers what aiohttp refused before a handler ran, and closes."""
    crashed: Callable[[BaseException | None], Answer]
    """Answers for a handler that raised, and closes."""


class Connection(BoundedHeads):
    """See the head of this module.

    ``address`` is the packed address of the other end, empty for a unix socket; ``trusted`` says whether
    it may speak for others: the door (door.py) has found out. A PROXY header replaces both by those of the client it names.
    """

    __slots__ = (
        "_crowd",
        "_half_closed",
        "_last",
        "_pipe",
        "_preface",
        "_rules",
        "_stalled",
        "address",
        "trusted",
        "until",
    )

    def __init__(self, manager: "Server", **options: Any) -> None:
        http = manager.rules.settings
        super().__init__(manager, http.max_request_line_bytes + http.max_header_bytes, **options)
        self._rules = manager.rules
        self._crowd = manager.crowd
        self.until = self._crowd.now + self._crowd.head_sweeps
        self._pipe: asyncio.Transport | None = None
        self._preface: bytes | None = None
        self._last = False
        self._half_closed: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self.address = NO_ADDRESS
        self.trusted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._pipe = pipe = cast(asyncio.Transport, transport)
        pipe.set_write_buffer_limits(high=0)  # every byte that cannot leave at once starts the stall timer
        if self.trusted and self._rules.settings.proxy_protocol:
            self._preface = b""

    def connection_lost(self, exc: BaseException | None) -> None:
        for timer in (self._half_closed, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._last:
            return
        if self._preface is not None:
            data = self._take_preface(data)
            if not data:
                return
        resting = self.until == _RESTS and self._waiter is not None
        try:
            super().data_received(data)
            if self._messages:
                self.until = _RESTS
            elif resting:
                self.until = self._crowd.now + self._crowd.head_sweeps
        except Exception:  # noqa: BLE001
            # The parser raised what aiohttp does not expect of it. The input is to blame: no traceback.
            self._rules.malformed(None)
            self.force_close()

    def head_too_long(self) -> None:
        self._rules.malformed(None)
        self.force_close()

    def _take_preface(self, data: bytes) -> bytes:
        """Take the PROXY header off the first bytes; empty while it is incomplete or when it is wrong."""
        buffer = (self._preface or b"") + data
        try:
            header = parse_proxy_header(buffer)
        except ValueError:
            self._rules.malformed(None)
            self.force_close()
            return b""
        if header is None:
            self._preface = buffer
            return b""
        self._preface = None
        if header.source is not None:
            self.address = header.source
            self.trusted = header.source in self._rules.trusted
        return buffer[header.length :]

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp's says None, asyncio reads a bool
        """A client may close its sending side and still wait for its answers, for a while."""
        if not self.finish():
            return False
        self._half_closed = self._loop.call_later(self._rules.settings.half_close_seconds, self.force_close)
        return True

    def finish(self) -> bool:
        """Answer what was asked so far, read nothing more, then close; False when nothing was asked."""
        if self._messages:
            self._last = True
        elif self._waiter is None and self._request_count:
            self.close()  # the answer in the making is the last one
        else:
            return False
        return True

    def wind_up(self) -> None:
        if not self.finish():
            self.force_close()

    @property
    def fresh(self) -> bool:
        return not self._request_count and not self._messages

    @property
    def idle(self) -> bool:
        """Waits for a request, or for a client that does not read."""
        if self._stalled is not None:
            return True
        return not self._messages and (self._waiter is not None or not self._request_count)

    def cut_off(self) -> None:
        if self._pipe is not None:
            self._pipe.abort()

    def begin(self) -> None:
        """A queued request is about to be answered; aiohttp's close() would drop those behind it."""
        if self._last and not self._messages:
            self.close()

    def pause_writing(self) -> None:
        """The client does not read its answers; give it as long as an idle one, then cut it off."""
        super().pause_writing()
        if self._pipe is not None and self._stalled is None:
            self._stalled = self._loop.call_later(self._rules.settings.keepalive_seconds, self._pipe.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer is already on its way")
        return self._rules.malformed(exc) if status == 400 else self._rules.crashed(exc)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Errors outside handlers: broken bodies and lost connections are the client's affair."""
        error = kw.get("exc_info")
        if not isinstance(error, (HttpProcessingError, RequestPayloadError, OSError)):
            log.error("connection failed", **describe(error))


class Server(web.Server):
    """aiohttp's low-level server: one handler, no router, with connections of ours."""

    def __init__(
        self, handler: Callable[[Request], Awaitable[Answer]], rules: Rules, crowd: Crowd, **options: Any
    ) -> None:
        self.rules = rules
        self.crowd = crowd
        self.leaving = False
        """Whether every answer is the last of its connection."""
        super().__init__(
            cast(Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], handler),
            keepalive_timeout=rules.settings.keepalive_seconds,
            max_line_size=rules.settings.max_request_line_bytes,
            max_field_size=rules.settings.max_header_bytes,
            max_headers=rules.settings.max_headers,
            lingering_time=LINGER_SECONDS,
            auto_decompress=False,
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
        cast(Connection, protocol).begin()
        request = Request(message, payload, protocol, writer, task, self._loop)
        request.last = self.leaving and not protocol._messages
        return request

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if self.crowd.closing:
            # Not at once: aiohttp starts the connection's task after this, and it must not find it lost.
            self._loop.call_soon(cast(Connection, handler).wind_up)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.crowd.leave(cast(Connection, handler))


def describe(error: BaseException | None) -> dict[str, str]:
    """What a log line may say of an error: its type and where it arose. Its text may quote a passkey."""
    frames = []
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return {"error": type(error).__name__, "at": " > ".join(frames[-6:])}


def other_end(transport: asyncio.BaseTransport, trusted: TrustedNetworks) -> tuple[Address, bool]:
    """The packed peer address (none on a unix socket), and whether the peer may speak for others.

    A TCP peer that is gone already has no address either, so its absence must not mean trust.
    """
    peer = transport.get_extra_info("peername")
    if isinstance(peer, tuple):
        address = pack_address(peer[0].partition("%")[0]) or NO_ADDRESS
        return address, bool(trusted) and address != NO_ADDRESS and address in trusted
    sock = transport.get_extra_info("socket")
    return NO_ADDRESS, bool(trusted) and sock is not None and sock.family == socket.AF_UNIX
