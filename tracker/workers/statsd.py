"""Figures for a StatsD server: text lines in UDP packets.

UDP has no answer: what was handed to the network counts as taken, unless the other host says at once that nobody listens.
"""

import asyncio
import random
import re
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

from tracker.counting import Count
from tracker.settings import StatsDSettings
from tracker.store.connection import Connection
from tracker.store.outbox import Outbox
from tracker.workers.figures import TAKEN, Answer, Figure, Sender, Verdict, short_name

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


class _Refusals(asyncio.DatagramProtocol):
    """What the other host, or the way to it, says of packets that were sent."""

    def __init__(self) -> None:
        self.error = ""
        self.came = asyncio.Event()

    def error_received(self, error: Exception) -> None:
        self.error = type(error).__name__
        self.came.set()


class _Line:
    """The way to the server, found by the first batch: the first of its addresses where nobody refuses."""

    def __init__(self, host: str, port: int, prefix: str) -> None:
        self._host = host
        self._port = port
        self._prefix = prefix
        self._open: tuple[asyncio.DatagramTransport, _Refusals] | None = None

    async def post(self, figures: Sequence[Figure]) -> Answer:
        parts = list(packets(line_of(self._prefix, figure) for figure in figures))
        if self._open is not None:
            return await _send(*self._open, parts)
        try:
            addresses = await self._addresses()
        except (OSError, UnicodeError) as error:  # OSError: TimeoutError is one
            return _unusable(error)
        answer = _unusable(OSError())
        for address in addresses:
            try:
                self._open = await _connect(*address)
            except OSError as error:  # such as an IPv6 address where there is no IPv6
                answer = _unusable(error)
                continue
            answer = await _send(*self._open, parts)
            if answer is TAKEN:
                break
            self.close()
        return answer

    async def _addresses(self) -> Sequence[tuple[int, int, int, str, Any]]:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            return await asyncio.get_running_loop().getaddrinfo(
                self._host, self._port, type=socket.SOCK_DGRAM
            )

    def close(self) -> None:
        if self._open is not None:
            self._open[0].close()
            self._open = None


async def _connect(
    family: int, kind: int, protocol: int, _: str, address: Any
) -> tuple[asyncio.DatagramTransport, _Refusals]:
    """Connected, for only then does a socket hear of refusals."""
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.connect(address)
        return await asyncio.get_running_loop().create_datagram_endpoint(_Refusals, sock=sock)
    except BaseException:
        sock.close()
        raise


def _unusable(error: Exception) -> Answer:
    return Answer(Verdict.FAILED, f"its address cannot be used ({type(error).__name__})")


async def _send(transport: asyncio.DatagramTransport, refusals: _Refusals, parts: Sequence[bytes]) -> Answer:
    for packet in parts:
        transport.sendto(packet)
    try:  # also keeps a long queue from flooding the receiver's buffer
        async with asyncio.timeout(_REFUSAL_SECONDS):
            await refusals.came.wait()
    except TimeoutError:
        return TAKEN
    return Answer(Verdict.FAILED, f"nobody listens ({refusals.error})")


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
