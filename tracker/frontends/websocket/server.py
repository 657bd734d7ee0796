"""WebTorrent: the WebSockets of one process, on its HTTP port."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from aiohttp import WSMsgType, web
from aiohttp._websocket.reader import WebSocketDataQueue
from aiohttp.http import WebSocketReader, WSMessage
from aiohttp.http_websocket import WSMessageTextBytes

from tracker.bittorrent import Address, AnnounceOverSocket, Endpoint, Event, InfoHash, PeerId, Reply, Scrape
from tracker.core.announce import Tracker
from tracker.frontends.http.aiohttp_messages import Answer, Request, forbidden
from tracker.frontends.http.aiohttp_protocol import Connection
from tracker.frontends.websocket.relay import OpenOffers, Publish, Relay
from tracker.refusals import TOO_MANY_CONNECTIONS, Refusal, SilentlyDropped
from tracker.settings.model import LiveSettings
from tracker.system.resources import max_connections
from tracker.token_bucket import TokenBucket
from tracker.wire import webtorrent
from tracker.wire.endpoint import SocketId, pack_socket, sockets_of
from tracker.wire.webtorrent import Offer

MAX_MESSAGE_BYTES = 65_536
MESSAGES_SECOND, MESSAGES_AT_ONCE = 20.0, 200
"""Beyond them no more is read for a while. A page that opens announces all its torrents at once."""
MAX_BAD_MESSAGES = 30
"""The connection is closed with the next one."""
MAX_UNREAD_BYTES = 262_144
"""A client that has so much to read is closed."""
_DATA = (WSMsgType.TEXT, WSMsgType.BINARY)
_CLOSE_1001, _CLOSE_1008 = b"\x88\x02\x03\xe9", b"\x88\x02\x03\xf0"
"""Close frames: the tracker stops; the client may not use it."""
_OF_USER = frozenset({"no passkey", "unknown passkey", "user disabled", "group may not announce"})
"""Labels of refusals that hold for all torrents of a connection, so it is closed."""
GOODBYES_TOGETHER = 64
"""Closed WebSockets that the store is told of at a time: announces must not wait for thousands of them."""
MAX_GOODBYES = 200_000
"""Those that wait; beyond that peers time out."""
MAX_SHARE = 0.75
"""Of the connections of this process: clients over HTTP get the others."""
_FIRST_NUMBER_BITS, _MAX_NUMBER = 38, 2**40 - 1


@dataclass(slots=True, eq=False)
class Membership:
    announce: AnnounceOverSocket
    """The last one."""
    joined: bool = False
    """Whether the tracker has accepted one."""
    waiting: int = 0
    """Announces without a reply."""


_Message = WSMessage | WSMessageTextBytes
_Rest = Callable[[], Awaitable[None]]
"""The rest of handling a message."""


class _Inbox(WebSocketDataQueue):
    """The messages that wait for the task of a connection. ``take`` handles others when they arrive: to wake up the
    task for each would take a tenth of the CPU time of a process."""

    __slots__ = ("_connection", "_take")

    def __init__(self, connection: Connection, take: Callable[[_Message], _Message | None]) -> None:
        super().__init__(connection, MAX_MESSAGE_BYTES, loop=asyncio.get_running_loop())
        self._connection = connection
        self._take = take

    def feed_data(self, message: _Message, size: int) -> None:
        try:
            waits = self._take(message)
        except Exception as error:  # noqa: BLE001  # the caller, compiled code, would ignore it
            self._connection.log_failure(error)
            self._connection.abort()
        else:
            if waits is not None:
                super().feed_data(waits, size)


@dataclass(slots=True, eq=False)
class SocketConnection:
    """``id`` names it in all processes."""

    tracker: Tracker
    settings: LiveSettings
    relay: Relay
    connection: Connection
    id: SocketId
    address: Address
    passkey: str | None
    endpoint: Endpoint = field(init=False)
    torrents: dict[InfoHash, Membership] = field(default_factory=dict)
    open_offers: OpenOffers = field(default_factory=OpenOffers)
    stopped: bool = False
    """Whether this process stops."""
    _bad: int = 0
    _waits: bool = False
    """Whether a message waits for its turn or for the store, and with it those that follow."""
    _budget: TokenBucket = field(init=False)

    def __post_init__(self) -> None:
        self.endpoint = pack_socket(self.address, self.id)
        self._budget = TokenBucket(MESSAGES_SECOND, MESSAGES_AT_ONCE, time.monotonic())

    async def run(self, request: web.BaseRequest) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False, decode_text=False)
        inbox = _Inbox(self.connection, self._take)
        self.connection.messages = WebSocketReader(inbox, MAX_MESSAGE_BYTES, compress=False, decode_text=False)
        await socket.prepare(request)
        socket._reader, socket._parser = inbox, self.connection.messages
        self.connection.on_stop = self.close_for_stop
        async for message in socket:
            if message.type not in _DATA:
                break
            counted = callable(message.data)
            try:
                rest = message.data if counted else self._receive(message.data)
                if rest is not None:
                    await rest()
            except Exception as error:  # noqa: BLE001  # aiohttp would take it for one of the client
                self.connection.log_failure(error)
                self.connection.abort()
                break
            if self._bad > MAX_BAD_MESSAGES:
                break
            # Messages of a client that is gone do not wait: there may be stops among them.
            while not (counted or self.connection.transport is None or self._budget.take(now := time.monotonic())):
                await asyncio.sleep(self._budget.wait(now))
            self._waits = bool(inbox._buffer)
            del message, rest  # thousands of connections would each keep their last one
        return socket

    def _take(self, message: _Message) -> _Message | None:
        """Handles a message when it arrives; returns what waits for the task of the connection."""
        if message.type not in _DATA:
            return message
        if self._bad > MAX_BAD_MESSAGES:
            return None
        if self._waits or not self._budget.take(time.monotonic()):
            self._waits = True
            return message
        rest = self._receive(message.data)
        self._waits = rest is not None
        return WSMessage(WSMsgType.BINARY, rest, None) if self._waits else None

    def close_for_stop(self) -> None:
        """Asks the client to reconnect: this process stops."""
        self.stopped = True
        self._close(_CLOSE_1001)

    def _close(self, frame: bytes) -> None:
        transport = self.connection.transport
        if transport is not None and not transport.is_closing():
            transport.write(frame)
            transport.close()

    def send(self, message: bytes) -> None:
        transport = self.connection.transport
        if transport is None or transport.is_closing():
            return
        transport.write(_frame_head(len(message)) + message)
        if (unread := transport.get_write_buffer_size()) > MAX_UNREAD_BYTES:
            self.tracker.count("sockets.stuck")
            transport.abort()
        elif unread:
            self.connection.hold_unread()

    def _receive(self, data: bytes) -> _Rest | None:
        """Returns what has to wait for the store."""
        try:
            message = webtorrent.parse(data, self.settings.current.torrents.max_scrape)
            if isinstance(message, webtorrent.SocketAnnounce):
                return self._announce(message)
            if isinstance(message, Scrape):
                if not message.info_hashes:  # it may be far longer than any message
                    raise webtorrent.BadMessage("a scrape needs an info_hash: full scrapes are disabled", "scrape")
                return partial(self._scrape, message)
            self._check_peer_id(message.info_hash, message.peer_id)
            self.relay.pass_answer(self.id, self, message)
        except webtorrent.BadMessage as error:
            kind = "scrapes" if error.action == "scrape" else "announces"
            self.tracker.refused(error.refusal.label, kind)
            self.send(webtorrent.encode_failure(error.info_hash, error.refusal, error.action))
            self._bad += 1
            if self._bad > MAX_BAD_MESSAGES:
                self._close(_CLOSE_1008)
        return None

    def _announce(self, message: webtorrent.SocketAnnounce) -> _Rest | None:
        info_hash, settings = message.announce.info_hash, self.settings.current.webtorrent
        torrent = self._check_peer_id(info_hash, message.announce.peer_id)
        if torrent is None and len(self.torrents) >= settings.max_torrents:
            raise webtorrent.BadMessage("too many torrents on this connection", "announce", info_hash)
        offers = message.offers[: settings.max_offers]
        announce = AnnounceOverSocket(*message.announce._replace(peers_wanted=len(offers)))
        announce.endpoint = self.endpoint
        torrent = torrent or Membership(announce)
        torrent.waiting += 1
        if announce.event is Event.STOPPED:
            self.torrents.pop(info_hash, None)
        else:
            self.torrents[info_hash], torrent.announce = torrent, announce
        answer = partial(self._on_reply, announce, offers, torrent)
        submitted = self.tracker.submit(announce, self.passkey, self.address, answer)
        if submitted:
            return None
        return partial(self.tracker.submit_later, announce, self.passkey, self.address, answer)

    def _check_peer_id(self, info_hash: InfoHash, peer_id: PeerId) -> Membership | None:
        """Returns the torrent, if it is one of this connection. Raises BadMessage if it has another peer id there."""
        torrent = self.torrents.get(info_hash)
        if torrent is not None and torrent.announce.peer_id != peer_id:
            raise webtorrent.BadMessage("a connection has one peer id for each torrent", "announce", info_hash)
        return torrent

    def _on_reply(
        self, announce: AnnounceOverSocket, offers: tuple[Offer, ...], torrent: Membership, reply: Reply | Refusal
    ) -> None:
        """The reply goes out before the offers are passed on."""
        info_hash = announce.info_hash
        torrent.waiting -= 1
        if isinstance(reply, Refusal):
            if not (torrent.joined or torrent.waiting) and self.torrents.get(info_hash) is torrent:
                del self.torrents[info_hash]
            self._fail(info_hash, reply)
            if reply.label in _OF_USER:
                self._close(_CLOSE_1008)
            return
        torrent.joined = True
        self.send(webtorrent.encode_reply(info_hash, reply))
        if offers:
            _, _, _, _, _, peers, *_ = reply
            to = sockets_of(peers)
            self.relay.pass_offers(self.id, info_hash, announce.peer_id, offers, to, self.open_offers)

    async def _scrape(self, scrape: Scrape) -> None:
        try:
            self.send(webtorrent.encode_scrape(await self.tracker.scrape(scrape, self.passkey, self.address)))
        except Refusal as error:
            self._fail(webtorrent.NO_HASH, error, "scrape")

    def _fail(self, info_hash: InfoHash, error: Refusal, action: str = "announce") -> None:
        if isinstance(error, SilentlyDropped):
            self.connection.abort()
        else:
            self.send(webtorrent.encode_failure(info_hash, error, action))


def _frame_head(size: int) -> bytes:
    """The head of a text frame."""
    if size < 126:
        return bytes((0x81, size))
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2, "big")
    return b"\x81\x7f" + size.to_bytes(8, "big")


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
