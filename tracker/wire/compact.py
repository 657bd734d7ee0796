"""Packed addresses and endpoints (BEP 23 for IPv4, BEP 7 for IPv6), and their readable forms.

The rest of ``wire`` stands on this module, as the store's modules stand on its keys. Everything here is
a pure function: nothing resolves a name or opens a socket.
"""

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from tracker.bittorrent import Address, Endpoint, unmap

ENDPOINT_LENGTH = 6
ENDPOINT6_LENGTH = 18

# IANA's special-purpose registries, the blocks that are no host's address on the public internet.
_UNROUTABLE = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
    *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    *("2001::/23", "2001:db8::/32", "3fff::/20"),
)
_GLOBAL_UNICAST6 = "2000::/3"


def pack_address(text: str) -> Address | None:
    """``"1.2.3.4"`` or ``"2001:db8::1"`` -> packed bytes; IPv4-mapped IPv6 is IPv4.

    Strict (no names, no short or octal forms, no zone, brackets or blanks) and never raises: anything
    else is ``None``.
    """
    try:
        return unmap(inet_pton(AF_INET6 if ":" in text else AF_INET, text))
    except (OSError, ValueError):
        return None


def format_address(address: bytes) -> str:
    """Packed bytes -> the shortest text. Raises ValueError unless there are 4 or 16 of them."""
    return inet_ntop(AF_INET if len(address) == 4 else AF_INET6, address)


def pack_endpoint(address: Address, port: int) -> Endpoint:
    """Raises OverflowError for a port outside 0 to 65535."""
    return Endpoint(address + port.to_bytes(2, "big"))


def format_endpoint(endpoint: bytes) -> str:
    """``"1.2.3.4:6881"`` or ``"[2001:db8::1]:6881"``, as people and URLs write it."""
    address, port = endpoint[:-2], int.from_bytes(endpoint[-2:], "big")
    text = format_address(address)
    return f"{text}:{port}" if len(address) == 4 else f"[{text}]:{port}"


def split_endpoints(packed: bytes, size: int) -> Iterator[tuple[Address, int]]:
    """Each address and port of a packed list; ``size`` is 6 (IPv4) or 18 (IPv6). A cut last one is left out."""
    for start in range(0, len(packed) - size + 1, size):
        yield (
            Address(packed[start : start + size - 2]),
            int.from_bytes(packed[start + size - 2 : start + size], "big"),
        )


def is_routable(address: bytes) -> bool:
    """Whether a packed address may be a host on the public internet (global unicast).

    Private, loopback, link-local, shared (CGNAT), multicast, documentation and reserved ones are not,
    nor is anything that is not 4 or 16 bytes.
    """
    if len(address) == 4:
        return _is_routable_prefix(address[:3], 4)
    return len(address) == 16 and _is_routable_prefix(address[:8], 16)


@lru_cache(maxsize=65536)
def _is_routable_prefix(prefix: bytes, length: int) -> bool:
    """No block in the table is smaller than an IPv4 /24 or an IPv6 /64, so one answer serves each of those."""
    first = int.from_bytes(prefix.ljust(length, b"\0"), "big")
    if length == 4:
        return not _within(first, _UNROUTABLE4)
    return _within(first, (_GLOBAL6,)) and not _within(first, _UNROUTABLE6)


def _span(network: IPv4Network | IPv6Network) -> tuple[int, int]:
    return int(network.network_address), int(network.broadcast_address)


def _within(number: int, spans: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= number <= high for low, high in spans)


_UNROUTABLE4 = tuple(_span(ip_network(text)) for text in _UNROUTABLE if ":" not in text)
_UNROUTABLE6 = tuple(_span(ip_network(text)) for text in _UNROUTABLE if ":" in text)
_GLOBAL6 = _span(ip_network(_GLOBAL_UNICAST6))
