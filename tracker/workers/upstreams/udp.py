"""Another tracker over UDP (BEP 15): one connected socket per family, so that only its own address is heard.

Lost packets are sent again after waits that double, as BEP 15 has it; but its first wait of 15 s is cut so that three
tries fit into the time there is. A connection id is used for a minute.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from tracker.bittorrent import Announce, AnnounceReply, InfoHash, ScrapeFile
from tracker.tracker_url import TrackerUrl
from tracker.wire import udp as wire
from tracker.workers.upstreams.answers import Unreachable

CONNECTION_SECONDS = 60.0
"""A client may use a connection id for so long after it was received."""
ADDRESS_SECONDS = 300.0
"""A name is looked up again after so long."""
_FIRST_WAIT_SECONDS = 15.0
_TRIES = 3

Monotonic = Callable[[], float]
Destination = tuple[socket.AddressFamily, tuple[str, int]]


class UdpTracker:
    """Asks one tracker. Raises TrackerRefusal, TrackerReplyError and Unreachable."""

    scrapes = True

    def __init__(self, url: TrackerUrl, timeout_seconds: float, monotonic: Monotonic) -> None:
        self._url = url
        self._timeout = timeout_seconds
        self._monotonic = monotonic
        self._first_wait = min(_FIRST_WAIT_SECONDS, timeout_seconds / (2**_TRIES - 1))
        self._addresses: list[Destination] = []
        self._looked_up = 0.0
        self._lines: dict[socket.AddressFamily, _Line] = {}
        self._opening = asyncio.Lock()
        self.max_scrape = wire.MAX_SCRAPE

    async def scrape(self, info_hashes: Sequence[InfoHash]) -> dict[InfoHash, ScrapeFile]:
        """The figures of at most ``max_scrape`` torrents, or of the first of them where the tracker has a limit."""

        def encode(connection_id: int, transaction_id: int) -> bytes:
            return wire.encode_scrape_request(connection_id, transaction_id, info_hashes)

        _, transaction_id, packet = await self._exchange(encode)
        files = wire.parse_scrape_reply(packet, transaction_id, len(info_hashes))
        if len(files) < len(info_hashes):
            self.max_scrape = len(files)
        return dict(zip(info_hashes, files, strict=False))

    async def announce(self, announce: Announce) -> AnnounceReply:
        def encode(connection_id: int, transaction_id: int) -> bytes:
            return wire.encode_announce_request(connection_id, transaction_id, announce, self._url.target)

        line, transaction_id, packet = await self._exchange(encode)
        return wire.parse_announce_reply(
            packet,
            transaction_id,
            ipv6=line.family == socket.AF_INET6,
            max_peers=announce.peers_wanted or 0,
        )

    async def close(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    async def _exchange(self, encode: Callable[[int, int], bytes]) -> tuple["_Line", int, bytes]:
        """One request and its answer, sent again until the time is over."""
        destination: Destination | None = None
        try:
            async with asyncio.timeout(self._timeout):
                destination = await self._destination()
                line = await self._line(destination)
                return line, *await self._persist(line, encode)
        except TimeoutError:
            self._avoid(destination)
            raise Unreachable("does not answer in time") from None
        except (OSError, ValueError) as error:
            self._avoid(destination)
            raise Unreachable(f"cannot be reached ({type(error).__name__})") from None

    async def _persist(self, line: "_Line", encode: Callable[[int, int], bytes]) -> tuple[int, bytes]:
        wait, remembered = self._first_wait, line.knows_connection(self._monotonic())
        transaction_id = secrets.randbits(32)  # of all tries: a late answer to the first is an answer
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    connection_id = await line.connection_id(self._monotonic)
                    packet = await line.ask(encode(connection_id, transaction_id), transaction_id)
                    if not (remembered and _is_error(packet)):
                        return transaction_id, packet
            if remembered:  # a tracker that was started anew knows it no longer
                line.forget_connection()
                remembered = False
                transaction_id = secrets.randbits(32)
            else:
                wait *= 2

    async def _destination(self) -> Destination:
        """The tracker's address; of several, the first that has not failed since the others did."""
        now = self._monotonic()
        if not self._addresses or now - self._looked_up > ADDRESS_SECONDS:
            self._addresses, self._looked_up = await _look_up(self._url.host, self._url.port), now
        return self._addresses[0]

    def _avoid(self, destination: Destination | None) -> None:
        if destination is not None and destination in self._addresses:
            self._addresses.remove(destination)
            self._addresses.append(destination)

    async def _line(self, destination: Destination) -> "_Line":
        """The socket to an address: one for each family, made anew where the name has come to mean another."""
        family, address = destination
        async with self._opening:
            line = self._lines.get(family)
            if line is None or line.closed or line.address != address:
                if line is not None:
                    line.close()
                loop = asyncio.get_running_loop()
                _, line = await loop.create_datagram_endpoint(
                    lambda: _Line(family, address), remote_addr=address, family=family
                )
                self._lines[family] = line
        return line


async def _look_up(host: str, port: int) -> list[Destination]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    return list(dict.fromkeys((each[0], (str(each[4][0]), int(each[4][1]))) for each in found))


def _is_error(packet: bytes) -> bool:
    return int.from_bytes(packet[:4], "big") == wire.ERROR


class _Line(asyncio.DatagramProtocol):
    """One connected socket: hands each answer to whoever waits for its transaction, and drops all others."""

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
        transaction_id = wire.reply_transaction(data)
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

    async def ask(self, packet: bytes, transaction_id: int) -> bytes:
        """Sends a packet once and waits for its answer, however long; raises OSError."""
        assert self._transport is not None
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[transaction_id] = answer
        try:
            self._transport.sendto(packet)
            return await answer
        finally:
            del self._waiting[transaction_id]

    def knows_connection(self, now: float) -> bool:
        return self._connection is not None and now - self._connection[1] < CONNECTION_SECONDS

    def forget_connection(self) -> None:
        self._connection = None

    async def connection_id(self, monotonic: Monotonic) -> int:
        """The one that is known, while it is young enough, else a new one; those who wait share it."""
        async with self._connecting:
            if self._connection is None or not self.knows_connection(monotonic()):
                transaction_id = secrets.randbits(32)
                packet = await self.ask(wire.encode_connect_request(transaction_id), transaction_id)
                self._connection = wire.parse_connect_reply(packet, transaction_id), monotonic()
            return self._connection[0]
