"""The connections of the admin port, with limits on their number, their time and their bodies, and the security headers
of every response.

Request bodies of unauthenticated clients get a short deadline and a max number; they are closed first when connections
run out. If no connection can be closed, new ones get /health and /ready only. Heads, idle time and stalled readers are
guarded by system/aiohttp_connection.py.
"""

import asyncio
import functools
from collections import Counter
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from tracker.admin.http.cookies import came_by_tls, cookie_of
from tracker.admin.http.problems import Handler, Problem, from_http, internal
from tracker.system.aiohttp_connection import GuardedConnection, GuardedServer, accepting
from tracker.system.listeners import Listener
from tracker.system.logger import Logger

STOPPING = web.AppKey("stopping", asyncio.Event)
"""Set when the port closes; event streams then end."""


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: with it browsers send ``Origin: null`` with the forms of this port.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
TLS_ONLY = "max-age=15552000"
"""Half a year, without subdomains."""
JSON_TYPES = frozenset({"application/json", "application/problem+json"})
JSON_FILE = 'attachment; filename="api.json"'
"""Browsers neither render JSON as a page nor save it under a name from the URL."""


MAX_ANONYMOUS_BODIES = 16
"""Max unfinished bodies of unauthenticated clients. A sign-in form usually arrives together with its head."""
PROBES = frozenset({"/health", "/ready"})
"""The paths served on every connection."""

log = Logger("tracker.admin")


@dataclass(frozen=True, slots=True)
class Limits:
    """``idle_seconds``: between requests, for a head, and for a stalled reader; ``anonymous_body_seconds``: for bodies
    of unauthenticated clients; ``stop_seconds``: for requests in flight when the port closes."""

    connections: int = 512
    idle_seconds: float = 30.0
    body_seconds: float = 60.0
    anonymous_body_seconds: float = 5.0
    stop_seconds: float = 2.0


class Request(web.Request):
    """Adds the security headers to every response, also to those without a route. Responses without Cache-Control are
    not cached."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        await super()._prepare_hook(response)
        response.headers.update(HEADERS)
        if came_by_tls(self):
            response.headers["Strict-Transport-Security"] = TLS_ONLY
        if response.content_type in JSON_TYPES:
            response.headers.setdefault("Content-Disposition", JSON_FILE)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.popall("Server", None)


class Connection(GuardedConnection):
    """See the head of this module."""

    __slots__ = ("authenticated", "probes_only")

    client_errors = (*GuardedConnection.client_errors, Problem)

    def __init__(self, manager: "Server", **options: Any) -> None:
        super().__init__(manager, **options)
        self.probes_only = False
        """There are too many connections: only probes are served on this one."""
        self.authenticated = False
        """Whether the current request is authenticated."""

    @property
    def peer(self) -> Any:
        """The client's address; on a unix socket the socket's name."""
        name = self.peername
        return name[0] if isinstance(name, tuple) else name

    @property
    def awaits_anonymous_body(self) -> bool:
        """The body of an unauthenticated request is incomplete."""
        return not (self.authenticated or self._force_close or self._manager is None or self._body.is_eof())

    def malformed_reply(self, error: BaseException | None) -> web.StreamResponse:
        if isinstance(error, LineTooLong):
            return Problem(431, detail="request line or header too long").response()
        return Problem(400, detail="malformed HTTP request").response()

    def crash_reply(self, request: web.BaseRequest, error: BaseException | None) -> web.StreamResponse:
        if isinstance(error, ConnectionError):
            raise error  # the client disconnected
        return internal(request.method, error or RuntimeError("request timed out")).response()

    def log_failure(self, error: Any) -> None:
        log.error("admin connection failed", exc_info=error)


class Server(GuardedServer):
    """Limits the number of connections, so that idle or slow clients do not keep others out. Beyond the limit, a
    connection with an unfinished anonymous body is closed, else the oldest idle one. If there is neither, the new
    connection serves probes only."""

    def __init__(
        self, handler: Handler, limits: Limits, connection: type[Connection], *, request_factory: Any, **options: Any
    ) -> None:
        self.limits = limits
        self._connection = connection
        self._anonymous_bodies: dict[Connection, None] = {}
        super().__init__(
            functools.partial(_handle, handler, limits),
            limits.idle_seconds,
            request_factory=functools.partial(request_factory, _cls=Request),
            access_log=None,
            **options,
        )

    def __call__(self) -> Connection:
        return self._connection(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._connections) <= self.limits.connections:
            return
        idle = (cast(Connection, one) for one in self._connections if one is not handler)
        oldest = self._oldest_anonymous_body() or next((one for one in idle if one.idle), None)
        if oldest is not None:
            oldest.force_close()
        else:
            cast(Connection, handler).probes_only = True

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._anonymous_bodies.pop(cast(Connection, handler), None)

    def track_anonymous_body(self, connection: Connection) -> None:
        """Track an unfinished body of an unauthenticated client; beyond the max number one is closed."""
        self._anonymous_bodies.setdefault(connection)
        if len(self._anonymous_bodies) > MAX_ANONYMOUS_BODIES and (worst := self._oldest_anonymous_body()) is not None:
            worst.force_close()
            self._anonymous_bodies.pop(worst, None)

    def _oldest_anonymous_body(self) -> Connection | None:
        """The oldest unfinished anonymous body of the address that has the most."""
        self._anonymous_bodies = {one: None for one in self._anonymous_bodies if one.awaits_anonymous_body}
        if not self._anonymous_bodies:
            return None
        busiest = Counter(one.peer for one in self._anonymous_bodies).most_common(1)[0][0]
        return next(one for one in self._anonymous_bodies if one.peer == busiest)


def serving(
    app: web.Application, listeners: list[Listener], limits: Limits, connection: type[Connection] = Connection
) -> AbstractAsyncContextManager[None]:
    """Serves the application on the listeners; leaving the block closes them."""
    build = functools.partial(Server, limits=limits, connection=connection)
    return accepting(app, listeners, limits.stop_seconds, build)


async def _handle(handler: Handler, limits: Limits, request: web.Request) -> web.StreamResponse:
    """Handles a request with deadlines for its body; also converts errors that aiohttp raises before middlewares."""
    connection = cast(Connection, request.protocol)
    connection.authenticated = False
    if connection.probes_only and request.path not in PROBES:
        reply = Problem(503, detail="too many connections").response()
        reply.force_close()
        return reply
    timers: list[asyncio.TimerHandle] = []
    unfinished = request.can_read_body and not request.content.is_eof()
    if unfinished:
        if "Authorization" not in request.headers and not cookie_of(request):
            mark_anonymous(request)
        loop = asyncio.get_running_loop()
        timers.append(loop.call_later(limits.anonymous_body_seconds, _time_out_body, request, connection))
        timers.append(loop.call_later(limits.body_seconds, _time_out_body, request))
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return from_http(error).response()
    finally:
        for timer in timers:
            timer.cancel()
        if unfinished and not connection.authenticated:
            mark_anonymous(request)


def mark_authenticated(request: web.Request) -> None:
    """The request is authenticated: its body gets the full deadline and is not closed to make room."""
    connection = request.protocol
    if isinstance(connection, Connection):
        connection.authenticated = True


def mark_anonymous(request: web.Request) -> None:
    """The request is not authenticated, whatever credentials it carries."""
    connection = request.protocol
    if isinstance(connection, Connection) and connection.awaits_anonymous_body:
        cast(Server, connection._manager).track_anonymous_body(connection)


@web.middleware
async def size_limit_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses a body by its Content-Length before reading it; one without it is refused once it is too large."""
    check_size(request, request.client_max_size)
    return await handler(request)


def check_size(request: web.Request, max_bytes: int) -> None:
    size = request.content_length or 0
    if size > max_bytes:
        raise web.HTTPRequestEntityTooLarge(max_size=max_bytes, actual_size=size)


def _time_out_body(request: web.Request, anonymous: Connection | None = None) -> None:
    """``anonymous``: the connection of a body that an authenticated client has more time for."""
    if not (request.content.is_eof() or (anonymous is not None and anonymous.authenticated)):
        request.content.set_exception(Problem(408, detail="request body timed out", headers={"Connection": "close"}))
