"""A client for trackers over UDP (BEP 15): one connected socket per family, which receives from the tracker only.

Lost packets are sent again after waits that double, as in BEP 15. The first wait, 15 s there, is shortened so that
three attempts fit into the timeout. A connection id is used for a minute.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from tracker.bittorrent import Announce, AnnounceReply, InfoHash, ScrapeFile
from tracker.errors import Unreachable
from tracker.wire import udp
from tracker.wire.tracker_url import TrackerUrl

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

        def encode(connection_id: int, transaction_id: int) -> bytes:
            return udp.encode_scrape_request(connection_id, transaction_id, info_hashes)

        _, transaction_id, packet = await self._exchange(encode)
        files = udp.parse_scrape_reply(packet, transaction_id, len(info_hashes))
        if len(files) < len(info_hashes):
            self.max_scrape = len(files)
        return dict(zip(info_hashes, files, strict=False))

    async def announce(self, announce: Announce) -> AnnounceReply:
        def encode(connection_id: int, transaction_id: int) -> bytes:
            return udp.encode_announce_request(connection_id, transaction_id, announce, self._url.target)

        udp_socket, transaction_id, packet = await self._exchange(encode)
        return udp.parse_announce_reply(
            packet, transaction_id, ipv6=udp_socket.family == socket.AF_INET6, max_peers=announce.peers_wanted or 0
        )

    def close(self) -> None:
        for udp_socket in self._sockets.values():
            udp_socket.close()
        self._sockets.clear()

    async def _exchange(self, encode: Callable[[int, int], bytes]) -> tuple["_UdpSocket", int, bytes]:
        """Sends a request until its reply arrives or the timeout ends."""
        destination: Destination | None = None
        try:
            async with asyncio.timeout(self._timeout):
                destination = await self._destination()
                udp_socket = await self._socket(destination)
                return udp_socket, *await self._retry(udp_socket, encode)
        except TimeoutError:
            self._avoid(destination)
            raise Unreachable("no reply in time") from None
        except (OSError, ValueError) as error:
            self._avoid(destination)
            raise Unreachable(f"unreachable ({type(error).__name__})") from None

    async def _retry(self, udp_socket: "_UdpSocket", encode: Callable[[int, int], bytes]) -> tuple[int, bytes]:
        wait, remembered = self._first_wait, udp_socket.knows_connection(self._monotonic())
        # The same for all attempts: a late reply to the first one counts.
        transaction_id = secrets.randbits(32)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    connection_id = await udp_socket.connection_id(self._monotonic)
                    packet = await udp_socket.request(encode(connection_id, transaction_id), transaction_id)
                    if not (remembered and int.from_bytes(packet[:4], "big") == udp.ERROR):
                        return transaction_id, packet
            if remembered:  # a restarted tracker does not know it any more
                udp_socket.forget_connection()
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

    def _avoid(self, destination: Destination | None) -> None:
        if destination in self._addresses:
            self._addresses.remove(destination)
            self._addresses.append(destination)

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
        self._connection: tuple[int, float] | None = None

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
        return self._connection is not None and now - self._connection[1] < CONNECTION_SECONDS

    def forget_connection(self) -> None:
        self._connection = None

    async def connection_id(self, monotonic: Monotonic) -> int:
        """The current connection id, or a new one after a minute. Concurrent callers share one request."""
        async with self._connecting:
            if self._connection is None or not self.knows_connection(monotonic()):
                transaction_id = secrets.randbits(32)
                packet = await self.request(udp.encode_connect_request(transaction_id), transaction_id)
                self._connection = udp.parse_connect_reply(packet, transaction_id), monotonic()
            return self._connection[0]
