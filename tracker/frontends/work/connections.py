"""The connections of the claimants' listener, with limits on their number and time.

Heads, idle connections and stalled readers are guarded by system/aiohttp_connection.py. This adds the number of
connections, a deadline for each head, and the PROXY header of trusted proxies.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from tracker.refusals import PROXY_HEADER_MISSING, PROXY_HEADER_UNEXPECTED
from tracker.system.aiohttp_connection import GuardedServer, ProxiedConnection, describe, peer_of
from tracker.system.logger import Logger
from tracker.wire.proxy import TrustedProxies

MAX_CONNECTIONS = 4096
MAX_CONNECTIONS_PER_NETWORK = 64
"""Per IPv4 address or /64; trusted proxies have no limit."""
IDLE_SECONDS = 30.0
"""Between requests, for a head, and for a stalled reader."""

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
