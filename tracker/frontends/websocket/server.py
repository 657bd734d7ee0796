"""WebTorrent: the WebSockets of one process, on its HTTP port."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast

from aiohttp import web

from tracker.bittorrent import Address
from tracker.core.announce import Tracker
from tracker.frontends.http.aiohttp_messages import Answer, Request, forbidden
from tracker.frontends.http.aiohttp_protocol import Connection
from tracker.frontends.websocket.connection import SocketConnection
from tracker.frontends.websocket.relay import Publish, Relay
from tracker.refusals import TOO_MANY_CONNECTIONS, Refusal, SilentlyDropped
from tracker.settings.reload import LiveSettings
from tracker.system.resources import max_connections
from tracker.wire.endpoint import SocketId

GOODBYES_TOGETHER = 64
"""Closed WebSockets that the store is told of at a time: announces must not wait for thousands of them."""
MAX_GOODBYES = 200_000
"""Those that wait; beyond that peers time out."""
MAX_SHARE = 0.75
"""Of the connections of this process: clients over HTTP get the others."""
_FIRST_NUMBER_BITS, _MAX_NUMBER = 38, 2**40 - 1


class WebSockets:
    """Serves WebSockets that the HTTP port passes on. ``process`` is a number that no other process has."""

    def __init__(self, tracker: Tracker, settings: LiveSettings, process: int, publish: Publish) -> None:
        self.relay = Relay(process, publish, tracker)
        self._tracker = tracker
        self._settings = settings
        self._origins = frozenset(settings.current.webtorrent.origins)
        self._max = int(MAX_SHARE * min(settings.current.http.max_connections, max_connections()))
        # Connections of two processes that chose the same number stay apart.
        self._last_number = random.getrandbits(_FIRST_NUMBER_BITS)
        self._goodbyes: deque[Callable[[], None]] = deque()
        self._saying = 0

    def __len__(self) -> int:
        return len(self.relay.receivers)

    async def serve(self, request: Request, address: Address, passkey: str | None) -> web.StreamResponse:
        """As http.handler.Upgrade."""
        if self._origins and request.headers.get("Origin", "") not in self._origins:
            return forbidden("this origin may not connect")
        if "Sec-WebSocket-Protocol" in request.headers:  # aiohttp would log it
            return forbidden("there are no subprotocols")
        if not web.WebSocketResponse().can_prepare(request).ok:
            return forbidden("this is no request for a WebSocket")
        if len(self) >= self._max:
            self._tracker.refused(TOO_MANY_CONNECTIONS)
            return Answer(b"too many WebSockets are open\n", status=503, close=True)
        http = cast(Connection, request.protocol)
        try:
            await self._tracker.check_passkey(passkey, address)
        except Refusal as error:
            if isinstance(error, SilentlyDropped) and not http.trusted:
                http.abort()
            return forbidden(str(error))
        if http.transport is None:
            return forbidden("the client has closed the connection")
        self._last_number = self._last_number % _MAX_NUMBER + 1
        connection = SocketConnection(
            self._tracker,
            self._settings,
            self.relay,
            http,
            SocketId(self.relay.process, self._last_number),
            address,
            passkey,
        )
        self.relay.receivers[connection.id.number] = connection
        try:
            return await connection.run(request)
        finally:
            del self.relay.receivers[connection.id.number]
            self._say_goodbye(connection)

    def _say_goodbye(self, connection: SocketConnection) -> None:
        """Takes the WebSocket from its peers, unless this process stops: then clients come back within minutes."""
        if connection.stopped or len(self._goodbyes) > MAX_GOODBYES:
            return
        passkey, address = connection.passkey, connection.address
        for torrent in connection.torrents.values():
            say = partial(self._tracker.submit_gone, torrent.announce, passkey, address, self._said)
            self._goodbyes.append(say)
        self._continue()

    def _continue(self) -> None:
        while self._goodbyes and self._saying < GOODBYES_TOGETHER:
            self._saying += 1
            self._goodbyes.popleft()()

    def _said(self) -> None:
        self._saying -= 1
        asyncio.get_running_loop().call_soon(self._continue)
