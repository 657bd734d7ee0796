"""Clients for trackers over HTTP and over UDP (BEP 15). They bound replies. Over HTTP they stay on the same host.

Over UDP there is one connected socket per family, which receives from the tracker only. Lost packets are sent again
after waits that double, as in BEP 15. The first wait, 15 s there, is shortened so that three attempts fit into the
timeout. A connection id is used for a minute.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from aiohttp import ClientError, ClientResponse, ClientSession
from yarl import URL

from tracker.bittorrent import Announce, AnnounceReply, InfoHash, ScrapeFile
from tracker.errors import TrackerRefusal, TrackerReplyError, Unreachable
from tracker.system.http_client import read_body
from tracker.wire import udp
from tracker.wire.http_reply import MAX_BYTES, parse_announce, parse_scrape
from tracker.wire.http_request import encode_announce, encode_scrape
from tracker.wire.tracker_url import TrackerUrl

MAX_SCRAPE = 50
"""Torrents in one scrape: a request line of 3,600 bytes, which every server accepts."""
_REDIRECTS = 2
_REDIRECTED = (301, 302, 303, 307, 308)
_TOO_MANY_REQUESTS = 429


def _unreachable(error: Exception) -> Unreachable:
    """Without the text of the error, which may contain the URL, and so the passkey."""
    return Unreachable(
        "no reply in time" if isinstance(error, TimeoutError) else f"unreachable ({type(error).__name__})"
    )


class HttpTracker:
    """A client for one tracker. Raises TrackerRefusal, TrackerReplyError and Unreachable."""

    max_scrape = MAX_SCRAPE

    def __init__(self, url: TrackerUrl, session: ClientSession, timeout_seconds: float) -> None:
        self._url = url
        self._session = session
        self._timeout = timeout_seconds

    @property
    def scrapes(self) -> bool:
        """Whether a scrape URL can be derived from the announce URL."""
        return self._url.scrape_target is not None

    async def scrape(self, info_hashes: Sequence[InfoHash]) -> dict[InfoHash, ScrapeFile]:
        """The counts of at most ``max_scrape`` torrents; 0 for those that the reply does not mention."""
        assert self._url.scrape_target is not None
        files = parse_scrape(await self._get(self._url.scrape_target, encode_scrape(info_hashes)), info_hashes)
        return {info_hash: files.get(info_hash, ScrapeFile()) for info_hash in info_hashes}

    async def announce(self, announce: Announce) -> AnnounceReply:
        reply = await self._get(self._url.target or "/", encode_announce(announce))
        return parse_announce(reply, max_peers=announce.peers_wanted or 0)

    async def _get(self, target: str, query: str) -> bytes:
        separator = "&" if "?" in target else "?"
        credentials = f"{self._url.credentials}@" if self._url.credentials else ""
        scheme, _, address = self._url.origin.partition("://")
        url = URL(f"{scheme}://{credentials}{address}{target}{separator}{query}", encoded=True)
        try:
            async with asyncio.timeout(self._timeout):
                for _ in range(_REDIRECTS + 1):
                    async with self._session.get(url, allow_redirects=False) as response:
                        if response.status not in _REDIRECTED:
                            return await _body(response)
                        url = _redirected(url, response.headers.get("Location", ""))
                raise TrackerReplyError("too many redirects")
        except (ClientError, OSError, ValueError) as error:
            raise _unreachable(error) from None


def _redirected(url: URL, location: str) -> URL:
    """The target of a redirect: only the same server, or the same host with https."""
    target = url.join(URL(location, encoded=True))
    upgraded = (target.scheme, target.port) == ("https", 443)
    if target.host != url.host or not (target.origin() == url.origin() or upgraded):
        raise TrackerReplyError("redirect to another host")
    return target.with_user(url.user).with_password(url.password) if url.user else target


async def _body(response: ClientResponse) -> bytes:
    """The whole body. A refusal may have any status below 500, any other reply only 200."""
    if response.status >= 500 or response.status == _TOO_MANY_REQUESTS:
        raise Unreachable(f"status {response.status}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise TrackerReplyError("reply is compressed although identity was requested")
    body = await read_body(response, MAX_BYTES, TrackerReplyError("reply too large"))
    if response.status != 200 and not body.startswith(b"d"):
        raise TrackerRefusal(f"status {response.status}")
    return body


CONNECTION_SECONDS = 60.0
"""How long a client may use a connection id (BEP 15)."""
ADDRESS_SECONDS = 300.0
"""A host name is resolved again after this time."""
_FIRST_WAIT_SECONDS = 15.0
_ATTEMPTS = 3

Monotonic = Callable[[], float]
Destination = tuple[socket.AddressFamily, tuple[str, int]]


class UdpTracker:
    """A client for one tracker. Raises TrackerRefusal, TrackerReplyError and Unreachable."""

    scrapes = True

    def __init__(self, url: TrackerUrl, timeout_seconds: float, monotonic: Monotonic) -> None:
        self._url = url
        self._timeout = timeout_seconds
        self._monotonic = monotonic
        self._first_wait = min(_FIRST_WAIT_SECONDS, timeout_seconds / (2**_ATTEMPTS - 1))
        self._addresses: list[Destination] = []
        self._resolved_at = 0.0
        self._sockets: dict[socket.AddressFamily, _UdpSocket] = {}
        self._opening = asyncio.Lock()
        self.max_scrape = udp.MAX_SCRAPE

    async def scrape(self, info_hashes: Sequence[InfoHash]) -> dict[InfoHash, ScrapeFile]:
        """The counts of at most ``max_scrape`` torrents; fewer where the tracker has a limit."""
        _, transaction_id, packet = await self._exchange(udp.encode_scrape_request, info_hashes)
        files = udp.parse_scrape_reply(packet, transaction_id, len(info_hashes))
        if len(files) < len(info_hashes):
            self.max_scrape = len(files)
        return dict(zip(info_hashes, files, strict=False))

    async def announce(self, announce: Announce) -> AnnounceReply:
        udp_socket, transaction_id, packet = await self._exchange(
            udp.encode_announce_request, announce, self._url.target
        )
        return udp.parse_announce_reply(
            packet, transaction_id, ipv6=udp_socket.family == socket.AF_INET6, max_peers=announce.peers_wanted or 0
        )

    def close(self) -> None:
        for udp_socket in self._sockets.values():
            udp_socket.close()
        self._sockets.clear()

    async def _exchange(self, encode: Callable[..., bytes], *content: object) -> tuple["_UdpSocket", int, bytes]:
        """Sends a request until its reply arrives or the timeout ends."""
        destination: Destination | None = None
        try:
            async with asyncio.timeout(self._timeout):
                destination = await self._destination()
                udp_socket = await self._socket(destination)
                return udp_socket, *await self._retry(udp_socket, encode, *content)
        except (OSError, ValueError) as error:
            if destination in self._addresses:  # the next request tries another one
                self._addresses.remove(destination)
                self._addresses.append(destination)
            raise _unreachable(error) from None

    async def _retry(
        self, udp_socket: "_UdpSocket", encode: Callable[..., bytes], *content: object
    ) -> tuple[int, bytes]:
        wait, remembered = self._first_wait, udp_socket.knows_connection(self._monotonic())
        # The same for all attempts: a late reply to the first one counts.
        transaction_id = secrets.randbits(32)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    connection_id = await udp_socket.connection_id(self._monotonic)
                    packet = await udp_socket.request(encode(connection_id, transaction_id, *content), transaction_id)
                    if not (remembered and int.from_bytes(packet[:4], "big") == udp.ERROR):
                        return transaction_id, packet
            if remembered:  # a restarted tracker does not know it any more
                udp_socket.connection = None
                remembered = False
                transaction_id = secrets.randbits(32)
            else:
                wait *= 2

    async def _destination(self) -> Destination:
        """The tracker's address. Of several, the one whose last failure is the oldest."""
        now = self._monotonic()
        if not self._addresses or now - self._resolved_at > ADDRESS_SECONDS:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(self._url.host, self._url.port, type=socket.SOCK_DGRAM)
            self._addresses = list(dict.fromkeys((each[0], (str(each[4][0]), int(each[4][1]))) for each in found))
            self._resolved_at = now
        return self._addresses[0]

    async def _socket(self, destination: Destination) -> "_UdpSocket":
        """The socket of the address's family; a new one if the name now resolves to another address."""
        family, address = destination
        async with self._opening:
            udp_socket = self._sockets.get(family)
            if udp_socket is None or udp_socket.closed or udp_socket.address != address:
                if udp_socket is not None:
                    udp_socket.close()
                loop = asyncio.get_running_loop()
                _, udp_socket = await loop.create_datagram_endpoint(
                    lambda: _UdpSocket(family, address), remote_addr=address, family=family
                )
                self._sockets[family] = udp_socket
        return udp_socket


class _UdpSocket(asyncio.DatagramProtocol):
    """One connected socket. Passes each reply to the caller with its transaction id, and drops all others."""

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        self.family = family
        self.address = address
        self.closed = False
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._connecting = asyncio.Lock()
        self.connection: tuple[int, float] | None = None
        """A connection id, and when it was given, by the caller's clock."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # that of a datagram endpoint

    def datagram_received(self, data: bytes, addr: object) -> None:
        transaction_id = udp.reply_transaction(data)
        waiting = self._waiting.get(transaction_id) if transaction_id is not None else None
        if waiting is not None and not waiting.done():
            waiting.set_result(data)

    def error_received(self, exc: Exception) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.error_received(exc or ConnectionAbortedError())

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    async def request(self, packet: bytes, transaction_id: int) -> bytes:
        """Sends a packet once and waits for its reply without a timeout. Raises OSError."""
        assert self._transport is not None
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[transaction_id] = reply
        try:
            self._transport.sendto(packet)
            return await reply
        finally:
            del self._waiting[transaction_id]

    def knows_connection(self, now: float) -> bool:
        return self.connection is not None and now - self.connection[1] < CONNECTION_SECONDS

    async def connection_id(self, monotonic: Monotonic) -> int:
        """The current connection id, or a new one after a minute. Concurrent callers share one request."""
        async with self._connecting:
            if self.connection is None or not self.knows_connection(monotonic()):
                transaction_id = secrets.randbits(32)
                packet = await self.request(udp.encode_connect_request(transaction_id), transaction_id)
                self.connection = udp.parse_connect_reply(packet, transaction_id), monotonic()
            return self.connection[0]
