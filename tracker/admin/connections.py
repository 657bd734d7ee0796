"""The connections of the admin port: bounded in number, in time and in what they may send, whoever holds the other end.

Head and idle time, body, and a reader that does not read each have their time. What aiohttp refuses by itself, before
any handler runs, is answered like everything else, and nothing a stranger sends is logged as an error.
"""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from tracker.admin.headers import add_headers
from tracker.admin.problems import Handler, Problem, from_http, internal
from tracker.bounded_heads import BoundedHeads
from tracker.listeners import Listener

MAX_LINE_BYTES = 8190
MAX_HEADER_BYTES = 8190
MAX_HEADERS = 64
LINGER_SECONDS = 1.0
"""How long the rest of a body is thrown away before the connection is closed under it."""

log = structlog.get_logger("tracker.admin")


@dataclass(frozen=True, slots=True)
class Limits:
    """``idle_seconds`` bounds the time between requests, the head of one, and a reader that stands still;
    ``stop_seconds`` what is in the making when the port closes."""

    connections: int = 512
    idle_seconds: float = 30.0
    body_seconds: float = 60.0
    stop_seconds: float = 2.0


class Request(web.Request):
    """aiohttp's, with our headers on every answer: also on those that never meet a route."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        await super()._prepare_hook(response)
        add_headers(self, response)


class Connection(BoundedHeads):
    """See the head of this module."""

    __slots__ = ("_idle_seconds", "_pipe", "_stalled")

    def __init__(self, manager: "Server", **options: Any) -> None:
        super().__init__(manager, MAX_LINE_BYTES + MAX_HEADER_BYTES, **options)
        self._idle_seconds = manager.limits.idle_seconds
        self._pipe: asyncio.Transport | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._pipe = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._cancel_stall()
        if self._task_handler is not None and not self._request_in_progress:
            self._task_handler.cancel()  # or it would wait for the rest of a body that was not wanted anyway
        super().connection_lost(exc)

    @property
    def idle(self) -> bool:
        """It has not asked, or has its answer, and nobody has closed it yet."""
        waits = self._waiter is not None or not self._request_count
        return waits and not self._messages and not self._force_close

    def pause_writing(self) -> None:
        """The other end does not read: it is given as long as an idle one, then cut off."""
        super().pause_writing()
        if self._pipe is not None and self._stalled is None:
            self._stalled = self._loop.call_later(self._idle_seconds, self._pipe.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_stall()

    def _cancel_stall(self) -> None:
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
        if isinstance(exc, ConnectionError):
            raise exc  # who asked is gone
        if request.writer.output_size > 0:
            raise ConnectionAbortedError("the answer is already on its way")
        if status == 400:
            problem = malformed(exc)
        else:
            problem = internal(request.method, exc or RuntimeError(message))
        answer = problem.response()
        answer.force_close()
        return answer

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Errors outside handlers: broken bodies and lost connections are the other end's affair."""
        error = kw.get("exc_info")
        if not isinstance(error, (HttpProcessingError, RequestPayloadError, Problem, OSError)):
            log.error("an admin connection failed", exc_info=error)


class Server(web.Server):
    """aiohttp's low-level server with connections of ours, and so many at most: beyond them the one that has been open
    longest of those that wait for a request makes room, so that nobody keeps others out by saying nothing."""

    def __init__(self, handler: Handler, limits: Limits, **options: Any) -> None:
        self.limits = limits
        super().__init__(
            functools.partial(_handle, handler, limits.body_seconds),
            keepalive_timeout=limits.idle_seconds,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
            lingering_time=LINGER_SECONDS,
            auto_decompress=False,  # nothing we take is sent compressed, and a small body stays small
            access_log=None,
            **options,
        )

    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._connections) > self.limits.connections:
            oldest = next(one for one in self._connections if cast(Connection, one).idle)
            if oldest is not handler:
                oldest.force_close()
            else:
                # Not at once: aiohttp starts the connection's task after this, and it must not find it lost.
                self._loop.call_soon(handler.force_close)


class Runner(web.AppRunner):
    """Runs an application on a Server of ours."""

    def __init__(self, app: web.Application, limits: Limits) -> None:
        super().__init__(app, shutdown_timeout=limits.stop_seconds)
        self._limits = limits

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        factory = functools.partial(cast(Any, made.request_factory), _cls=Request)
        return Server(cast(Handler, made.request_handler), self._limits, request_factory=factory)


@asynccontextmanager
async def serving(app: web.Application, listeners: list[Listener], limits: Limits) -> AsyncIterator[None]:
    """Serves the application on listeners, which are closed with it."""
    runner = Runner(app, limits)
    accepting: list[asyncio.Server] = []
    try:
        await runner.setup()
        assert runner.server is not None
        for listener in listeners:
            accepting.append(await listener.accept(runner.server))
        yield
    finally:
        for server in accepting:
            server.close()
        for listener in listeners:
            listener.close()
        await runner.cleanup()


async def _handle(handler: Handler, body_seconds: float, request: web.Request) -> web.StreamResponse:
    """One request, whose body has to be here in time; and what aiohttp refuses before any middleware."""
    timer = None
    if request.can_read_body:
        timer = asyncio.get_running_loop().call_later(body_seconds, _give_up_on_body, request)
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return from_http(error).response()
    finally:
        if timer is not None:
            timer.cancel()


@web.middleware
async def sized(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses a body that says it is too large, before a byte of it is read; others are refused when they get there."""
    check_size(request, request.client_max_size)
    return await handler(request)


def check_size(request: web.Request, most: int) -> None:
    size = request.content_length or 0
    if size > most:
        raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=size)


def _give_up_on_body(request: web.Request) -> None:
    if not request.content.is_eof():
        request.content.set_exception(
            Problem(408, detail="the body took too long", headers={"Connection": "close"})
        )


def malformed(error: BaseException | None) -> Problem:
    if isinstance(error, LineTooLong):
        return Problem(431, detail="the request line or a header is too long")
    return Problem(400, detail="this is no proper HTTP request")
