"""A receiver: a StatsD server. Samples are text lines in UDP packets.

UDP has no reply. A packet counts as accepted unless the other host reports at once that the port is closed.
"""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tracker.settings.background import StatsDSettings
from tracker.workers.push.sender import ACCEPTED, Outcome, Result, Sample, Send, shorten

MAX_PACKET_BYTES = 1432
"""Fits into an Ethernet frame, also over IPv6 and through a tunnel."""
_RESOLVE_SECONDS = 5.0
_ERROR_SECONDS = 0.02
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")


class StatsD:
    """Enabled by an address."""

    name = "StatsD"
    timeout_seconds = _RESOLVE_SECONDS

    def __init__(self, settings: StatsDSettings) -> None:
        self._settings = settings

    @property
    def enabled(self) -> bool:
        return self._settings.endpoint is not None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Send]:
        """The first batch resolves the name and chooses an address; all others go to the same one."""
        assert self._settings.endpoint is not None
        host, port = self._settings.endpoint
        connected: _Socket | None = None

        async def send(samples: Sequence[Sample]) -> Result:
            nonlocal connected
            packets = list(to_packets(to_line(self._settings.prefix, sample) for sample in samples))
            if connected is not None:
                return await connected.send(packets)
            result, connected = await _send_first(host, port, packets)
            return result

        try:
            yield send
        finally:
            if connected is not None:
                connected.close()


class _Socket(asyncio.DatagramProtocol):
    """A connected socket: only a connected one receives the errors of its packets."""

    def __init__(self) -> None:
        self._error = ""
        self._failed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def error_received(self, exc: Exception) -> None:
        self._error = type(exc).__name__
        self._failed.set()

    async def send(self, packets: Iterable[bytes]) -> Result:
        for packet in packets:
            self._transport.sendto(packet)
        try:  # the wait also keeps a large outbox from flooding the receiver's buffer
            async with asyncio.timeout(_ERROR_SECONDS):
                await self._failed.wait()
        except TimeoutError:
            return ACCEPTED
        return Result(Outcome.UNAVAILABLE, f"port closed ({self._error})")

    def close(self) -> None:
        self._transport.close()


async def _send_first(host: str, port: int, packets: Sequence[bytes]) -> tuple[Result, _Socket | None]:
    """Sends to the host's addresses in turn until one accepts: the result, and the socket of that one."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
        return _unusable(error), None
    result = _unusable(OSError())
    for family, kind, protocol, _, address in addresses:
        try:
            connected = await _connect(socket.socket(family, kind, protocol), address)
        except OSError as error:  # such as an IPv6 address on a host without IPv6
            result = _unusable(error)
            continue
        try:
            result = await connected.send(packets)
        except BaseException:
            connected.close()
            raise
        if result is ACCEPTED:
            return result, connected
        connected.close()
    return result, None


async def _connect(sock: socket.socket, address: Any) -> _Socket:
    try:
        sock.setblocking(False)
        sock.connect(address)
        return (await asyncio.get_running_loop().create_datagram_endpoint(_Socket, sock=sock))[1]
    except BaseException:
        sock.close()
        raise


def _unusable(error: Exception) -> Result:
    return Result(Outcome.UNAVAILABLE, f"address unusable ({type(error).__name__})")


def to_line(prefix: str, sample: Sample) -> bytes:
    """``name:number|c`` for a count, ``|g`` for a gauge. StatsD has no time: a count is taken as of now."""
    name = shorten(_UNSAFE.sub("_", prefix + sample.name))
    return f"{name}:{sample.number}|{sample.kind[0]}".encode()


def to_packets(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Joins ``lines`` into packets of at most 1432 bytes, each as full as the order allows."""
    packet = b""
    for line in lines:
        if packet and len(packet) + 1 + len(line) > MAX_PACKET_BYTES:
            yield packet
            packet = b""
        packet = packet + b"\n" + line if packet else line
    if packet:
        yield packet
