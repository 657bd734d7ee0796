"""Trackers for tests, on loopback: one over UDP with faults on demand, and one that sends raw HTTP."""

import asyncio
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from bencodepy import encode as bencode

from tracker.bittorrent import InfoHash

HASH, OTHER = InfoHash(b"\1" * 20), InfoHash(b"\2" * 20)
CONNECT, ANNOUNCE, SCRAPE, ERROR = range(4)

Counts = tuple[int, int, int]
"""Seeders, completions, leechers."""


@dataclass
class Clock:
    """A monotonic clock set by the test, in seconds."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class UdpResponder(asyncio.DatagramProtocol):
    """Implements BEP 15. ``lose`` and ``twist`` cause faults."""

    files: dict[bytes, Counts] = field(default_factory=dict)
    peers: bytes = b""
    lose: int = 0
    """How many of the next packets are dropped."""
    twist: Callable[[int, bytes], list[bytes]] = lambda _action, packet: [packet]
    """The packets to send instead of a reply, by action."""
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    """(action, packet) of each request."""
    connections: set[int] = field(default_factory=set)
    port: int = 0
    senders: set[int] = field(default_factory=set)
    """The source ports of the requests."""
    transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a datagram transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self.transport is not None
        connection_id, action, transaction_id = struct.unpack_from(">QII", data)
        self.requests.append((action, data))
        self.senders.add(addr[1])
        if self.lose:
            self.lose -= 1
            return
        reply = self._reply(connection_id, action, transaction_id, data[16:])
        for packet in self.twist(action, reply):
            self.transport.sendto(packet, addr)

    def _reply(self, connection_id: int, action: int, transaction_id: int, body: bytes) -> bytes:
        head = struct.pack(">II", action, transaction_id)
        if action == CONNECT:
            assert connection_id == 0x41727101980
            self.connections.add(fresh := secrets.randbits(64))
            return head + struct.pack(">Q", fresh)
        if connection_id not in self.connections:
            return struct.pack(">II", ERROR, transaction_id) + b"connection id mismatch"
        if action == ANNOUNCE:
            seeders, _, leechers = self.files.get(body[:20], (0, 0, 0))
            return head + struct.pack(">III", 1800, leechers, seeders) + self.peers
        hashes = [body[at : at + 20] for at in range(0, len(body), 20)]
        return head + b"".join(struct.pack(">III", *self.files.get(each, (0, 0, 0))) for each in hashes)

    def count(self, action: int) -> int:
        return sum(each == action for each, _ in self.requests)


@asynccontextmanager
async def udp_tracker(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[UdpResponder]:
    loop = asyncio.get_running_loop()
    transport, responder = await loop.create_datagram_endpoint(UdpResponder, local_addr=(host, port))
    responder.port = transport.get_extra_info("sockname")[1]
    try:
        yield responder
    finally:
        transport.close()


Respond = Callable[[asyncio.StreamWriter, str], Awaitable[None]]
"""Called with the writer and the request head."""


@dataclass
class HttpServer:
    port: int = 0
    requests: list[str] = field(default_factory=list)
    """The request heads."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def http_server(respond: Respond) -> AsyncIterator[HttpServer]:
    server = HttpServer()
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                server.requests.append(head)
                await respond(writer, head)
                await writer.drain()
                if writer.is_closing():
                    break
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for writer in writers:
            writer.close()
        for writer in writers:
            with suppress(ConnectionError):
                await writer.wait_closed()


def http_reply(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answering(body: bytes, status: str = "200 OK", *headers: str) -> Respond:
    async def respond(writer: asyncio.StreamWriter, head: str) -> None:
        writer.write(http_reply(body, status, *headers))

    return respond


def scrape_body(files: dict[bytes, Counts]) -> bytes:
    names = ("complete", "downloaded", "incomplete")
    body: bytes = bencode({"files": {key: dict(zip(names, files[key], strict=True)) for key in sorted(files)}})
    return body


def loopback6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True
