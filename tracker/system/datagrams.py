"""Datagram sockets: UDP over IPv4 and IPv6.

IPv6 sockets take IPv6 only, as those of listeners.py do. Each process has a socket of its own for each address, and the
kernel spreads clients over them by address and port, so the packets of one client stay in order. The parent opens all
sockets and keeps them: a process that replaces another finds the packets that waited.
"""

import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracker.system.listeners import bind_all, bound

Ancillary = list[tuple[int, int, bytes]]
"""Control messages of one datagram: (level, type, data)."""

_LINUX = sys.platform == "linux"
KNOWS_DESTINATION = _LINUX
"""Whether a socket bound to all addresses answers from the address that was asked."""
_IP_PKTINFO = 8
"""Linux's number; the socket module of Python 3.11 has no name for it."""
_RECEIVE_DESTINATION4 = (socket.IPPROTO_IP, _IP_PKTINFO)
_RECEIVE_DESTINATION6 = (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO)
_WILDCARDS = ("0.0.0.0", "::")
_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
_MEMINFO = struct.Struct("@9I")
_PKTINFO4, _PKTINFO6 = struct.Struct("@I4s4s"), struct.Struct("@16sI")
"""(interface, address to answer from, destination); (address, interface)."""
_ANCILLARY_BYTES = socket.CMSG_SPACE(max(_PKTINFO4.size, _PKTINFO6.size))


@dataclass(frozen=True, slots=True)
class DatagramSocket:
    """A bound socket; ``address`` is written as in the settings, with the real port."""

    socket: socket.socket
    address: str

    @property
    def ipv6(self) -> bool:
        return self.socket.family == socket.AF_INET6

    @property
    def ancillary_bytes(self) -> int:
        """Bytes to read with each datagram for ``reply_control``: 0 unless the socket is bound to all addresses."""
        is_wildcard = self.socket.getsockname()[0] in _WILDCARDS
        return _ANCILLARY_BYTES if KNOWS_DESTINATION and is_wildcard else 0

    @property
    def receive_buffer(self) -> int:
        """The bytes that the system granted. Linux doubles what it was asked for, and counts 832 bytes for each waiting
        datagram of up to 600 bytes."""
        return self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // (2 if _LINUX else 1)

    @property
    def dropped(self) -> int:
        """Datagrams that the system dropped because the buffer was full, since the socket was opened; modulo 2^32."""
        return self._memory()[8] if _LINUX else 0

    @property
    def fill(self) -> float:
        """How full the buffer is with datagrams that wait to be read, from 0 to 1; 0 if the system does not tell."""
        waiting, size, *_ = self._memory() if _LINUX else (0, 1)
        return waiting / size

    def _memory(self) -> tuple[int, ...]:
        return _MEMINFO.unpack(self.socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))

    def close(self) -> None:
        self.socket.close()


def reply_control(ancillary: Ancillary) -> Ancillary:
    """The control messages that send a reply from the address that a datagram was sent to; empty if unknown. Otherwise
    a socket bound to all addresses of a host with several answers from the wrong one, and clients drop that."""
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_IP and kind == _IP_PKTINFO and len(data) >= _PKTINFO4.size:
            source = _PKTINFO4.unpack_from(data)[1]
            return [(level, kind, _PKTINFO4.pack(0, source, bytes(4)))]
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO and len(data) >= _PKTINFO6.size:
            source = _PKTINFO6.unpack_from(data)[0]
            return [(level, kind, _PKTINFO6.pack(source, 0))]
    return []


async def open_datagram_sockets(
    listen: Sequence[str], receive_buffer: int, processes: int = 1
) -> list[list[DatagramSocket]]:
    """Opens all addresses (``host:port``, ``[ipv6]:port``) once for each process; raises StartupError and opens none.
    Returns the sockets of each process. On a system without IPv6, IPv6 addresses are skipped with a warning.
    ``receive_buffer`` is asked for in bytes; the system may grant less."""
    groups: list[list[DatagramSocket]] = []

    def open_group(family: int, address: Any) -> None:
        groups.append(_open_group(family, address, processes))

    try:
        for text in listen:
            await bind_all(text, socket.SOCK_DGRAM, open_group)
        for each in (each for group in groups for each in group):
            _grow_buffer(each, receive_buffer)
    except BaseException:
        close_all(groups)
        raise
    return [[group[number] for group in groups] for number in range(processes)]


def close_all(sockets: Sequence[Sequence[DatagramSocket]]) -> None:
    for each in (each for mine in sockets for each in mine):
        each.close()


def _open_group(family: int, address: Any, processes: int) -> list[DatagramSocket]:
    """Sockets of one address. Several share its port; so would another program's, hence the first try alone."""
    alone = _bound(family, address)
    if processes == 1:
        return [alone]
    address = alone.socket.getsockname()
    alone.close()
    group: list[DatagramSocket] = []
    try:
        group.extend(_bound(family, address, (socket.SOL_SOCKET, socket.SO_REUSEPORT)) for _ in range(processes))
    except BaseException:
        close_all([group])
        raise
    return group


def _bound(family: int, address: Any, *options: tuple[int, int]) -> DatagramSocket:
    if KNOWS_DESTINATION and address[0] in _WILDCARDS:
        options += (_RECEIVE_DESTINATION6 if family == socket.AF_INET6 else _RECEIVE_DESTINATION4,)
    return DatagramSocket(*bound(family, socket.SOCK_DGRAM, address, *options))


def _grow_buffer(opened: DatagramSocket, wanted: int) -> None:
    """Asks for a receive buffer of ``wanted`` bytes. It never shrinks."""
    if opened.receive_buffer < wanted:
        try:
            opened.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE if _LINUX else socket.SO_RCVBUF, wanted)
        except OSError:  # that needs a privilege
            opened.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
