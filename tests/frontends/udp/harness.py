"""Shared by the tests of the UDP front end: a served tracker, and a client with a socket of its own."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.frontends.http.harness import RecordingTracker
from tests.store.harness import Clock
from tracker.frontends.udp.server import serve_udp
from tracker.settings.model import LiveSettings, Settings
from tracker.system.datagrams import open_datagram_sockets
from tracker.wire import udp

SECRET = bytes(range(32))
NOW = 1_800_000_000.0
HASH, PEER = bytes(range(1, 21)), b"-qB5020-abcdefghijkl"
CONNECT = bytes.fromhex("00000417271019800000000011223344")
WAIT_SECONDS = 20.0


def announce_packet(connection_id: bytes, options: bytes = b"", *, event: int = 2, port: int = 6881) -> bytes:
    fields = struct.pack(">QQQIIIiH", 30, 1000, 70, event, 0, 0xCA298A56, 200, port)
    return connection_id + bytes.fromhex("00000001 55667788") + HASH + PEER + fields + options


def scrape_packet(connection_id: bytes, *hashes: bytes) -> bytes:
    return connection_id + bytes.fromhex("00000002 99aabbcc") + b"".join(hashes or (HASH,))


class Client:
    """A UDP client on loopback."""

    def __init__(self, address: tuple[Any, ...], family: int = socket.AF_INET, source: str = "") -> None:
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect(address)

    def send(self, packet: bytes) -> None:
        self.socket.send(packet)

    async def receive(self) -> bytes:
        async with asyncio.timeout(WAIT_SECONDS):
            return await asyncio.get_running_loop().sock_recv(self.socket, 4096)

    async def ask(self, packet: bytes) -> bytes:
        self.send(packet)
        return await self.receive()

    async def connect(self) -> bytes:
        """A connection id."""
        reply = await self.ask(CONNECT)
        assert len(reply) == 16
        return reply[8:]

    async def is_ignored(self, packet: bytes) -> bool:
        """Whether the next reply is to a later request: replies on loopback keep their order."""
        self.send(packet)
        return (await self.ask(CONNECT))[:8] == bytes.fromhex("0000000011223344")


@dataclass
class Served:
    tracker: RecordingTracker
    address: tuple[Any, ...]
    family: int
    clock: Clock
    timer: Clock
    counted: Counter[str] = field(default_factory=Counter)
    flush: Callable[[], None] = lambda: None
    clients: list[Client] = field(default_factory=list)

    def client(self, source: str = "") -> Client:
        made = Client(self.address, self.family, source)
        self.clients.append(made)
        return made

    def counts(self) -> dict[str, int]:
        self.flush()
        return dict(self.counted)


@asynccontextmanager
async def serving(
    listen: str = "127.0.0.1:0", tracker: RecordingTracker | None = None, **sections: dict[str, Any]
) -> AsyncIterator[Served]:
    tracker = RecordingTracker() if tracker is None else tracker
    settings = LiveSettings(Settings.model_validate(sections))
    ((opened,),) = await open_datagram_sockets([listen], 65536)
    address = opened.socket.getsockname()
    served = Served(tracker, address, opened.socket.family, Clock(NOW), Clock(0.0))

    def count(*names: str, by: int = 1, at: float | None = None) -> None:
        del at
        served.counted.update(dict.fromkeys(names, by))

    tracker.count = count
    try:
        async with serve_udp(
            tracker, settings, [opened], secret=SECRET, clock=lambda: served.clock.now, timer=lambda: served.timer.now
        ) as flush:
            served.flush = flush
            yield served
    finally:
        for client in served.clients:
            client.socket.close()


def error_text(reply: bytes) -> str:
    assert int.from_bytes(reply[:4], "big") == udp.ERROR
    return reply[8:].decode()
