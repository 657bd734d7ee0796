"""Announce and scrape over HTTP: the listeners, the fast protocol, and aiohttp for what that hands over."""

import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import cast

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from tracker.bittorrent import Address
from tracker.core.announce import Tracker
from tracker.frontends.http.accept_queue import AcceptQueue
from tracker.frontends.http.aiohttp_messages import Request
from tracker.frontends.http.aiohttp_protocol import Connection, Server
from tracker.frontends.http.connection_table import ConnectionTable
from tracker.frontends.http.fast_protocol import FastHttpProtocol, FastHttpServer
from tracker.frontends.http.handler import HttpHandler, Problems, Upgrade
from tracker.refusals import SHED
from tracker.settings.model import LiveSettings
from tracker.system.event_loop import running
from tracker.system.listeners import Listener, open_listeners
from tracker.system.logger import Logger
from tracker.wire.endpoint import format_address

DRAIN_SECONDS = 7.0
"""Time for requests in flight when the front end stops."""
_RECEIVE_BYTES, _SEND_BYTES = 32 * 1024, 128 * 1024
"""The socket buffers of a connection. The system's defaults hold megabytes for clients that send and do not read."""

log = Logger(__name__)


class AccessLog(AbstractAccessLogger):
    """Logs one line per request. Paths and queries are not logged, because they hold passkeys."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        request = cast(Request, request)
        log_request(request.kind, response.status, time, request.client or cast(Connection, request.protocol).address)


def log_request(kind: str, status: int, seconds: float, client: Address) -> None:
    shown = format_address(client) if client else None
    log.info("request", kind=kind, status=status, milliseconds=round(seconds * 1000, 3), client=shown)


@contextlib.asynccontextmanager
async def serve_http(
    tracker: Tracker,
    settings: LiveSettings,
    *,
    listeners: Sequence[Listener] | None = None,
    problems: Problems = tuple,
    notices: Problems = tuple,
    upgrade: Upgrade | None = None,
    show_open: Callable[[Callable[[], float]], None] | None = None,
    fast_path: bool = True,
) -> AsyncIterator[tuple[str, ...]]:
    """Serves on ``listeners``, or else on those that the settings name, until the block is left; yields the bound
    addresses, with real ports where 0 was configured. ``problems`` says why the tracker is not ready, ``notices`` the
    unavailable parts while it is. ``show_open`` receives a function that counts open connections. Without ``fast_path``
    aiohttp answers everything. The end is graceful: for the configured delay requests are served and connections asked
    to close; then requests in flight are answered within 8 seconds. Raises StartupError for an unavailable address."""
    http = settings.current.http
    handler = HttpHandler(tracker, settings, problems, notices, upgrade)
    connections = ConnectionTable(http, tracker.refused)
    aiohttp_server = Server(
        handler,
        connections,
        access_log=logging.getLogger(__name__) if http.access_log else None,
        access_log_class=AccessLog,
    )
    server = FastHttpServer(handler, aiohttp_server, log_request if http.access_log else None, fast_path=fast_path)
    if show_open is not None:
        show_open(connections.__len__)
    listeners = await open_listeners(http.listen) if listeners is None else listeners
    if not http.trusted_proxies and any(listener.is_unix for listener in listeners):
        log.warning("announces over a unix socket are refused until http.trusted_proxies names a proxy")
    async with contextlib.AsyncExitStack() as stack:
        for listener in listeners:
            stack.callback(listener.close)
            listener.limit_buffers(_RECEIVE_BYTES, _SEND_BYTES)
        stack.callback(connections.abort_all)
        stack.push_async_callback(aiohttp_server.shutdown, 0.5)  # cancels the handlers that are left
        stack.push_async_callback(connections.drain, DRAIN_SECONDS)
        connections.sweep()
        stack.callback(connections.stop)
        accept_queue = AcceptQueue(
            listeners,
            functools.partial(FastHttpProtocol, server),
            on_shed=lambda number: tracker.refused(SHED, number=number),
            is_exempt=connections.is_exempt,
            is_single=server.is_single if fast_path else None,
        )
        await accept_queue.open()
        stack.push_async_callback(accept_queue.shut)
        await stack.enter_async_context(running(accept_queue.run))
        yield tuple(listener.address for listener in listeners)
        server.close_after_answers()
        await accept_queue.stop_holding_back(http.stop_delay_seconds)
