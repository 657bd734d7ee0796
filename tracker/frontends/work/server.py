"""The listener of work distribution: its aiohttp application, and connections with limits on their number and time.
Heads, idle connections and stalled readers are guarded by system/aiohttp_connection.py. This adds the number of
connections, a deadline for each head, and the PROXY header of trusted proxies."""

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from aiohttp.web_protocol import RequestHandler

from tracker.core.rate_limits import WorkLimits
from tracker.core.refusals import Failures
from tracker.core.work import Refused, WorkRequests
from tracker.core.work_figures import WorkFigures
from tracker.errors import ClientError, NotFound, StoreUnavailable
from tracker.frontends.work.calls import Calls
from tracker.frontends.work.live import Live
from tracker.frontends.work.public import Public
from tracker.frontends.work.requests import MAX_BODY_BYTES, PRIVATE, Handlers, Links, refusal
from tracker.refusals import PROXY_HEADER_MISSING, PROXY_HEADER_UNEXPECTED, Refusal
from tracker.settings.model import Settings
from tracker.system.aiohttp_connection import GuardedServer, ProxiedConnection, accepting, describe, peer_of
from tracker.system.listeners import open_listeners
from tracker.system.logger import Logger
from tracker.wire.proxy import TrustedProxies

MAX_CONNECTIONS = 4096
MAX_CONNECTIONS_PER_NETWORK = 64
"""Per IPv4 address or /64; trusted proxies have no limit."""
IDLE_SECONDS = 30.0
"""Between requests, for a head, and for a stalled reader."""
RETRY_SECONDS = 2
"""Retry-After while the store is unavailable."""
STOP_SECONDS = 2.0
"""For requests in flight when the port closes."""
PROJECT = "/{project:[-_0-9A-Za-z]+}"

log = Logger("tracker.work")


class Connection(ProxiedConnection):
    __slots__ = ("_head_timer", "_server", "network")

    def __init__(self, server: "Server", **options: Any) -> None:
        super().__init__(server, server.proxies, **options)
        self._server = server
        self._head_timer: asyncio.TimerHandle | None = None
        self.network = b""
        """The network for whose limit the connection counts; empty for none."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.address, self.trusted = peer_of(transport, self._proxies or None)
        self.network = b"" if self.trusted else bytes(self.address[:8])
        if self.trusted and self._server.proxy_protocol:
            self._preface = b""
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._preface is not None:
            data = self.take_header(data)
        elif not (self._request_count or self._head_bytes) and self.is_unexpected_header(data):
            self._server.mismatch(PROXY_HEADER_UNEXPECTED)
        if not data:
            return
        requests = self._request_count
        super().data_received(data)
        if self._request_count != requests:
            self._stop_head_timer()
        elif self._head_bytes and self._head_timer is None:
            self._start_head_timer()

    def on_bad_header(self, *, missing: bool) -> None:
        if missing:
            self._server.mismatch(PROXY_HEADER_MISSING)

    def _start_head_timer(self) -> None:
        self._head_timer = self._loop.call_later(self.keepalive_timeout, self.force_close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def malformed_reply(self, error: BaseException | None) -> web.StreamResponse:
        return web.Response(status=400, text="malformed request\n")

    def crash_reply(self, request: web.BaseRequest, error: BaseException | None) -> web.StreamResponse:
        if isinstance(error, ConnectionError):
            raise error  # the client disconnected
        self.log_failure(error)
        return web.Response(status=500, text="internal error\n")

    def log_failure(self, error: Any) -> None:
        log.error("work connection failed", **describe(error))


class Server(GuardedServer):
    """Limits the number of connections. At a limit the oldest idle one is closed (of the network whose limit it is); if
    none is idle, the new one."""

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[web.StreamResponse]],
        proxies: TrustedProxies,
        refused: Callable[[str], None],
        *,
        proxy_protocol: bool,
        **options: Any,
    ) -> None:
        self.proxies = proxies
        self._refused = refused
        self.proxy_protocol = proxy_protocol
        self._told = set[str]()
        self._of_network: dict[bytes, dict[Connection, None]] = {}
        """Open connections, the oldest first. aiohttp's own are also those that were lost while a handler runs."""
        self._number = 0
        super().__init__(handler, IDLE_SECONDS, access_log=None, **options)

    def mismatch(self, text: str) -> None:
        """Counts that a PROXY header is missing or unexpected, and says it once, as the announce port does."""
        self._refused(text)
        if text not in self._told:
            self._told.add(text)
            log.warning(text, setting="TRACKER_HTTP__PROXY_PROTOCOL", value=self.proxy_protocol)

    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        connection = cast(Connection, handler)
        neighbours = self._of_network.setdefault(connection.network, {})
        neighbours[connection] = None
        self._number += 1
        is_crowded = bool(connection.network) and len(neighbours) > MAX_CONNECTIONS_PER_NETWORK
        if not is_crowded and self._number <= MAX_CONNECTIONS:
            return
        for one in neighbours if is_crowded else cast(dict[Connection, Any], self._connections):
            if one is not connection and one.idle:
                one.force_close()
                return
        transport.abort()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        connection = cast(Connection, handler)
        neighbours = self._of_network[connection.network]
        del neighbours[connection]
        self._number -= 1
        if not neighbours:
            del self._of_network[connection.network]


@contextlib.asynccontextmanager
async def serve_work(
    work: WorkRequests,
    figures: WorkFigures,
    settings: Settings,
    address_limit: WorkLimits,
    failures: Failures,
    *,
    listening: Sequence[str] = (),
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[tuple[str, ...]]:
    """Serves until the block is left; yields the addresses, with real ports in place of 0. ``listening`` are the
    addresses where peers announce; ``failures`` counts what a proxy does wrong. Raises StartupError for an address that
    is not available."""
    proxies = TrustedProxies(settings.http.trusted_proxies)

    def refused(text: str) -> None:
        failures.count(Refusal(text).label)

    shared = (work, figures, proxies, refused, Links(settings, listening), settings.work.default)
    calls = Calls(*shared)
    guard = _guard(calls, address_limit, clock, legacy_status=settings.work.legacy_status)
    app = make_app(calls, Public(*shared), Live(*shared), guard)
    listeners = await open_listeners(settings.work.listen)
    protocol = settings.http.proxy_protocol
    build = functools.partial(Server, proxies=proxies, refused=refused, proxy_protocol=protocol)
    async with accepting(app, listeners, STOP_SECONDS, build):
        yield tuple(listener.address for listener in listeners)


def make_app(calls: Calls, public: Public, live: Live, guard: Middleware) -> web.Application:
    app = web.Application(middlewares=[guard], client_max_size=MAX_BODY_BYTES)
    app.on_shutdown.append(live.stop)
    app.add_routes(
        [
            web.get("/static/{file}", public.static),
            web.get(PROJECT, public.to_page),
            web.post(PROJECT, _nothing),  # /request and the like, without a default project
        ]
    )
    for base in (PROJECT, *([""] if public.default else [])):
        app.add_routes(
            [
                web.post(f"{base}/request", calls.request),
                web.post(f"{base}/done", calls.done),
                web.post(f"{base}/done+request", calls.done_and_request),
                web.post(f"{base}/release", calls.release),
                web.post(f"{base}/extend", calls.extend),
                web.post(f"{base}/upload", calls.upload),
                web.post(f"{base}/uploaded", calls.uploaded),
                web.get(f"{base}/mine", calls.mine),
                web.get(f"{base}/stats.json", public.shared(public.figures.stats)),
                web.get(f"{base}/figures.json", public.shared(public.of_page)),
                web.get(f"{base}/charts.json", public.shared(public.charts)),
                web.get(f"{base}/update-status.json", public.shared(public.figures.update_status)),
                web.get(f"{base}/items/{{item:.+}}.json", public.item),
                web.get(f"{base}/feed.rss", public.feed),
                web.get(f"{base}/needed.json", public.shared(public.needed)),
                web.get(f"{base}/live", live.handle, allow_head=False),
                web.get(f"{base}/", public.page),
            ]
        )
    app.on_response_prepare.append(_add_headers)
    return app


async def _nothing(_request: web.Request) -> web.Response:
    raise web.HTTPNotFound


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.setdefault("Cache-Control", PRIVATE)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers.popall("Server", None)


def _guard(
    handlers: Handlers, address_limit: WorkLimits, clock: Callable[[], float], *, legacy_status: bool
) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        """The only middleware: limits requests by address, and turns every exception into a response."""
        try:
            wait = address_limit.wait_seconds(handlers.address(request), clock())
            if wait > 0:
                return _later(429, "too many requests from your address\n", wait)
            return await handler(request)
        except Refused as error:
            return refusal(error, legacy_status=legacy_status)
        except NotFound:  # the only thing that the store may not have
            return refusal(Refused("no project", "no such project"), legacy_status=legacy_status)
        except ClientError as error:
            return refusal(Refused("malformed", error.text), legacy_status=legacy_status)
        except StoreUnavailable:
            return _later(503, "store unavailable; try again later\n", RETRY_SECONDS)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            headers = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
            return web.Response(status=error.status, text=f"{error.reason}\n", headers=headers)
        except ConnectionError:  # the client disconnected
            raise
        except Exception as error:  # logged without its text, which may contain a passkey
            if request.writer.output_size > 0:
                raise ConnectionAbortedError("the response has already begun") from error
            resource = request.match_info.route.resource  # without the path: a client may have put a passkey there
            route = f"{request.method} {resource.canonical if resource is not None else '-'}"
            log.error("work request failed", route=route, **describe(error))
            return web.Response(status=500, text="internal error\n")

    return guard


def _later(status: int, text: str, seconds: float) -> web.Response:
    return web.Response(status=status, text=text, headers={"Retry-After": str(math.ceil(seconds))})
