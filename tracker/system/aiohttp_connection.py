"""One HTTP connection of aiohttp, guarded against clients that are slow, broken or hostile.

The public port and the admin port build their connections on this one. It adds to aiohttp:

- A bound for the whole head. aiohttp bounds each line and their number; 8 kB lines add up to half a megabyte.
- A deadline for a client that does not read its reply.
- The replies of the port itself for what aiohttp refuses, and for a handler that raises.
- Quiet logs: what a client breaks is no error of ours.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """``idle_seconds`` applies between two requests, and to a client that does not read its reply. The unread rest of a
    request body is discarded for ``linger_seconds`` before the connection is closed."""

    max_line_bytes: int
    max_header_bytes: int
    max_headers: int
    idle_seconds: float
    linger_seconds: float = 1.0


class GuardedConnection(RequestHandler):
    """``_body`` is the body of the last request parsed; ``_head_bytes`` counts the head that is not complete yet."""

    __slots__ = ("_body", "_head_bytes", "_limits", "_socket_transport", "_stall_timer")

    client_errors: ClassVar[tuple[type[BaseException], ...]] = (HttpProcessingError, RequestPayloadError, OSError)
    """Errors that a client causes; they are not logged."""

    def __init__(self, server: "GuardedServer", **options: Any) -> None:
        super().__init__(server, **options)
        self._limits = server.connection_limits
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
            if self._head_bytes > self._limits.max_line_bytes + self._limits.max_header_bytes:
                self.on_head_too_long()

    def on_head_too_long(self) -> None:
        self.force_close()

    @property
    def waits_for_request(self) -> bool:
        """No request is being answered, and none is queued."""
        return not self._messages and (self._waiter is not None or not self._request_count)

    def pause_writing(self) -> None:
        """The client does not read its reply. It gets as long as an idle one, then the connection is aborted."""
        super().pause_writing()
        if self._socket_transport is not None and self._stall_timer is None:
            self._stall_timer = self._loop.call_later(self._limits.idle_seconds, self._socket_transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_stall_timer()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def malformed_reply(self, error: BaseException | None) -> web.StreamResponse:
        """The reply to what aiohttp refuses before a handler runs. It closes the connection."""
        raise NotImplementedError

    def crash_reply(self, request: web.BaseRequest, error: BaseException | None) -> web.StreamResponse:
        """The reply for a handler that raised, or took too long. It closes the connection."""
        raise NotImplementedError

    def log_failure(self, error: Any) -> None:
        """Log an error outside handlers that no client causes."""
        raise NotImplementedError

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionAbortedError("the reply has already begun")
        return self.malformed_reply(exc) if status == 400 else self.crash_reply(request, exc)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        error = kw.get("exc_info")
        if not isinstance(error, self.client_errors):
            self.log_failure(error)


class GuardedServer(web.Server):
    """aiohttp's low-level server; a subclass builds its connections in ``__call__``."""

    def __init__(
        self, handler: Callable[[Any], Awaitable[web.StreamResponse]], limits: ConnectionLimits, **options: Any
    ) -> None:
        self.connection_limits = limits
        super().__init__(
            handler,
            keepalive_timeout=limits.idle_seconds,
            max_line_size=limits.max_line_bytes,
            max_field_size=limits.max_header_bytes,
            max_headers=limits.max_headers,
            lingering_time=limits.linger_seconds,
            auto_decompress=False,  # neither port takes compressed bodies, and a small body stays small
            **options,
        )


def describe(error: BaseException | None) -> dict[str, str]:
    """What may be logged of an error: its type and where it was raised. Its text may contain a passkey."""
    frames = []
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return {"error": type(error).__name__, "at": " > ".join(frames[-6:])}
