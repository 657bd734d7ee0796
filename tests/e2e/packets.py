"""Records the UDP datagrams of a network namespace that has nothing but ``lo``."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

_ETH_P_IP = 0x0800
_UDP = 17
_READ_BYTES = 65_536


class Packet(NamedTuple):
    seconds: float
    """Since the start of the recording."""
    source: tuple[str, int]
    target: tuple[str, int]
    data: bytes


class Recorder:
    """``packets``: all so far, in order; those of IPv4 only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.packets: list[Packet] = []
        self._clock = clock
        self._began = clock()
        self._ended = False
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_IP))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**24)
        self._socket.settimeout(0.1)
        self._thread = threading.Thread(target=self._record)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._thread.join()
        self._socket.close()

    def _record(self) -> None:
        while not self._ended:
            try:
                data, (_, _, kind, *_) = self._socket.recvfrom(_READ_BYTES)
            except TimeoutError:
                continue
            # Each packet on `lo` is seen twice: as it leaves and as it arrives.
            if kind == socket.PACKET_HOST and data[9] == _UDP:
                self.packets.append(self._parsed(data))

    def _parsed(self, data: bytes) -> Packet:
        start = 4 * (data[0] & 15)
        source, target, length = struct.unpack_from("!HHH", data, start)
        return Packet(
            self._clock() - self._began,
            (socket.inet_ntoa(data[12:16]), source),
            (socket.inet_ntoa(data[16:20]), target),
            data[start + 8 : start + length],
        )
