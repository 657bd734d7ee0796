"""Figures for a StatsD server: text lines in UDP packets.

UDP has no answer: what was handed to the network counts as taken, unless the other host says at once that nobody listens.
"""

import asyncio
import random
import re
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from tracker.settings import StatsDSettings
from tracker.store.connection import Connection
from tracker.store.outbox import Outbox
from tracker.workers.figures import TAKEN, Answer, Count, Figure, Sender, Verdict, short_name

PACKET_BYTES = 1432
"""What fits into an Ethernet frame, also over IPv6 and a tunnel."""
_RESOLVE_SECONDS = 5.0
_REFUSAL_SECONDS = 0.02
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")


class StatsD:
    """Sends the outbox to a StatsD server when ``flush`` is called; does nothing without an address."""

    def __init__(
        self,
        settings: StatsDSettings,
        outbox: Outbox,
        connection: Connection,
        *,
        torrents: Callable[[], Awaitable[int]],
        count: Count,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._sender = Sender(
            "StatsD",
            outbox,
            connection,
            timeout=_RESOLVE_SECONDS,
            torrents=torrents,
            count=count,
            clock=clock,
            chance=chance,
        )

    @property
    def wanted(self) -> bool:
        """Is there an address?"""
        return self._settings.endpoint is not None

    async def flush(self, _payload: object = None) -> None:
        """As StatHat.flush; the address is resolved anew each time."""
        endpoint = self._settings.endpoint
        if endpoint is None:
            return
        line = _Line(*endpoint, self._settings.prefix)
        try:
            await self._sender.flush(line.post)
        finally:
            line.close()


class _Line(asyncio.DatagramProtocol):
    """A socket to the server, opened by the first batch."""

    def __init__(self, host: str, port: int, prefix: str) -> None:
        self._host = host
        self._port = port
        self._prefix = prefix
        self._transport: asyncio.DatagramTransport | None = None
        self._error = ""
        self._refused = asyncio.Event()

    async def post(self, figures: Sequence[Figure]) -> Answer:
        try:
            if self._transport is None:
                self._transport = await self._open()
        except (OSError, UnicodeError) as error:  # OSError: TimeoutError is one
            return Answer(Verdict.FAILED, f"its address cannot be used ({type(error).__name__})")
        for packet in packets(line_of(self._prefix, figure) for figure in figures):
            self._transport.sendto(packet)
        try:  # also keeps a long queue from flooding the receiver's buffer
            async with asyncio.timeout(_REFUSAL_SECONDS):
                await self._refused.wait()
        except TimeoutError:
            return TAKEN
        return Answer(Verdict.FAILED, f"nobody listens ({self._error})")

    async def _open(self) -> asyncio.DatagramTransport:
        """Raises OSError when the name is unknown, or no way leads to any of its addresses."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_RESOLVE_SECONDS):
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)
        transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=_connected(found))
        return transport

    def error_received(self, error: Exception) -> None:
        self._error = type(error).__name__
        self._refused.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _connected(found: Iterable[tuple[int, int, int, str, object]]) -> socket.socket:
    problem = OSError("no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.connect(address)  # type: ignore[arg-type]  # as getaddrinfo gave it
        except OSError as error:  # such as IPv6 where there is none
            sock.close()
            problem = error
        else:
            return sock
    raise problem


def line_of(prefix: str, figure: Figure) -> bytes:
    """``name:number|c`` for a count, ``|g`` for a value; StatsD has no time, so it counts as of now."""
    name = short_name(_UNSAFE.sub("_", prefix + figure.statistic))
    return f"{name}:{figure.number}|{'c' if figure.kind == 'count' else 'g'}".encode()


def packets(lines: Iterable[bytes]) -> Iterator[bytes]:
    """``lines`` joined into as few packets as hold them, none larger than 1432 bytes."""
    packet = b""
    for line in lines:
        if packet and len(packet) + 1 + len(line) > PACKET_BYTES:
            yield packet
            packet = b""
        packet = packet + b"\n" + line if packet else line
    if packet:
        yield packet
