"""A receiver: a StatsD server. Samples are text lines in UDP packets. UDP has no reply. A packet counts as accepted
unless the other host reports at once that the port is closed."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager

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
        with ExitStack() as stack:
            connected: socket.socket | None = None

            async def send(samples: Sequence[Sample]) -> Result:
                nonlocal connected
                packets = list(to_packets(to_line(self._settings.prefix, sample) for sample in samples))
                if connected is not None:
                    return await _send(connected, packets)
                result, connected = await _send_first(host, port, packets, stack)
                return result

            yield send


async def _send(connected: socket.socket, packets: Iterable[bytes]) -> Result:
    """A connected socket receives the errors of its packets."""
    try:
        for packet in packets:
            await asyncio.get_running_loop().sock_sendall(connected, packet)
        await asyncio.sleep(_ERROR_SECONDS)  # this also keeps a large outbox from flooding the receiver's buffer
        if number := connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(number, "")  # as send() raises it
    except OSError as error:
        return Result(Outcome.UNAVAILABLE, f"port closed ({type(error).__name__})")
    return ACCEPTED


async def _send_first(
    host: str, port: int, packets: Sequence[bytes], stack: ExitStack
) -> tuple[Result, socket.socket | None]:
    """Sends to the host's addresses in turn until one accepts: the result, and the socket of that one, which ``stack``
    closes."""
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
        return _unusable(error), None
    result = _unusable(OSError())
    for family, kind, protocol, _, address in addresses:
        try:
            connected = stack.enter_context(socket.socket(family, kind, protocol))
            connected.setblocking(False)
            connected.connect(address)
        except OSError as error:  # such as an IPv6 address on a host without IPv6
            result = _unusable(error)
            continue
        result = await _send(connected, packets)
        if result is ACCEPTED:
            return result, connected
    return result, None


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
