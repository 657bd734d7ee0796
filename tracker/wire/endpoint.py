"""Packed addresses and endpoints (BEP 23 for IPv4, BEP 7 for IPv6), and their readable forms. All functions are pure:
none resolves a name or opens a socket."""

from collections.abc import Iterator
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import NamedTuple

from tracker.bittorrent import Address, Endpoint, unmap

ENDPOINT_LENGTH = 6
ENDPOINT6_LENGTH = 18
SOCKET_LENGTH = 25
"""The endpoint of a WebSocket: its address as IPv6 (16 bytes), its process (4) and its number there (5)."""
_V4_MAPPED = b"\0" * 10 + b"\xff\xff"


def pack_address(text: str) -> Address | None:
    """``"1.2.3.4"`` or ``"2001:db8::1"`` -> packed bytes; IPv4-mapped IPv6 is IPv4. ``None`` for anything else: names,
    short or octal forms, zones, brackets, white space. Never raises."""
    try:
        return unmap(inet_pton(AF_INET6 if ":" in text else AF_INET, text))
    except (OSError, ValueError):
        return None


def format_address(address: bytes) -> str:
    """Packed bytes -> the canonical text. Raises ValueError unless there are 4 or 16 bytes."""
    return inet_ntop(AF_INET if len(address) == 4 else AF_INET6, address)


def pack_endpoint(address: Address, port: int) -> Endpoint:
    """Raises OverflowError for a port outside 0 to 65535."""
    return Endpoint(address + port.to_bytes(2, "big"))


def format_endpoint(endpoint: bytes) -> str:
    """``"1.2.3.4:6881"`` or ``"[2001:db8::1]:6881"``, as in URLs."""
    address, port = endpoint[:-2], int.from_bytes(endpoint[-2:], "big")
    text = format_address(address)
    return f"{text}:{port}" if len(address) == 4 else f"[{text}]:{port}"


class SocketId(NamedTuple):
    """A WebSocket: the number of the process that has it, and its number there."""

    process: int
    number: int


def pack_socket(address: Address, socket: SocketId) -> Endpoint:
    mapped = address if len(address) == 16 else _V4_MAPPED + address
    return Endpoint(mapped + socket.process.to_bytes(4, "big") + socket.number.to_bytes(5, "big"))


def sockets_of(packed: bytes) -> list[SocketId]:
    """Those of a packed list of endpoints of WebSockets."""
    return [
        SocketId(int.from_bytes(packed[at : at + 4], "big"), int.from_bytes(packed[at + 4 : at + 9], "big"))
        for at in range(16, len(packed), SOCKET_LENGTH)
    ]


def endpoints_of(packed: bytes) -> tuple[Endpoint, ...]:
    """Those of a peer to which others can connect: one, or IPv4 and IPv6; none of a peer that has only a WebSocket."""
    if len(packed) >= SOCKET_LENGTH:
        packed = packed[:-SOCKET_LENGTH]
    v4 = packed[:ENDPOINT_LENGTH] if len(packed) in (6, 24) else b""
    v6 = packed[-ENDPOINT6_LENGTH:] if len(packed) in (18, 24) else b""
    return tuple(Endpoint(part) for part in (v4, v6) if part)


def split_endpoints(packed: bytes, size: int) -> Iterator[tuple[Address, int]]:
    """Each address and port of a packed list; ``size`` is 6 (IPv4) or 18 (IPv6). Ignores an incomplete last one."""
    for end in range(size, len(packed) + 1, size):
        yield Address(packed[end - size : end - 2]), int.from_bytes(packed[end - 2 : end], "big")


def split_address(address: str) -> tuple[str, int]:
    """(host without brackets, port) of a listen address; raises ValueError. With port 0 the system chooses."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    usable = colon and host and (bracketed or ":" not in host)
    if not usable or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("write host:port, [ipv6]:port or unix:/path")
    return host.strip("[]"), int(port)
