"""The client's address behind a proxy: X-Forwarded-For, Forwarded (RFC 7239), and the PROXY protocol, v1 and v2.

Any client can send a forwarding header, so only entries appended by trusted proxies count. Each proxy appends the
address of its client on the right. The entries are read from the right, up to the first address that is not a trusted
proxy. Entries further left are that client's own, and ignored.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from tracker.bittorrent import Address, unmap
from tracker.wire.endpoint import pack_address

MAX_PROXY_HEADER_LENGTH = 16 + 536
"""A v2 header and the 536 bytes that every receiver must accept after it. A v1 header has at most 107 bytes."""

_V1_START = b"PROXY "
_V1_LIMIT = 107
_V2_START = b"\r\n\r\n\0\r\nQUIT\n"
_V2_LENGTH = 16
# Family and transport of v2 -> (length of the source address, length of all addresses). Length 0: no address is used.
_V2_FAMILIES = {
    **{0x00: (0, 0), 0x11: (4, 12), 0x12: (4, 12), 0x21: (16, 36), 0x22: (16, 36)},
    **{0x31: (0, 216), 0x32: (0, 216)},
}

_PARAMETER = re.compile(r"""\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=("(?:[^"\\]|\\.)*"|[^\s;,"]*)\s*(?:;|$)""")
_NODE = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::(?:[0-9]{1,5}|_[A-Za-z0-9._-]+))?")


class Networks:
    """A set of networks, such as those of trusted proxies. ``address in networks`` is fast."""

    def __init__(self, networks: Iterable[IPv4Network | IPv6Network] = ()) -> None:
        prefixes: dict[tuple[int, int], set[int]] = {}
        for network in networks:
            bits = network.max_prefixlen - network.prefixlen
            numbers = prefixes.setdefault((network.max_prefixlen // 8, bits), set())
            numbers.add(int(network.network_address) >> bits)
        self._prefixes = [(length, bits, frozenset(numbers)) for (length, bits), numbers in prefixes.items()]

    def __bool__(self) -> bool:
        return bool(self._prefixes)

    def __contains__(self, address: Address) -> bool:
        if not self._prefixes:
            return False
        number, size = int.from_bytes(address, "big"), len(address)
        return any(size == length and number >> bits in numbers for length, bits, numbers in self._prefixes)


class TrustedProxies(Networks):
    """The trusted networks, and clients on a unix socket, whose address is empty."""

    def __contains__(self, address: Address) -> bool:
        return not address or super().__contains__(address)


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A complete PROXY header. The request begins after its ``length`` bytes."""

    length: int
    source: Address | None
    """The client; ``None`` for the proxy's own connections (LOCAL, UNKNOWN) and for unix sockets."""


def client_address(
    connection: Address, forwarded_for: Sequence[str], forwarded: Sequence[str], trusted: Networks
) -> Address:
    """The rightmost hop that is not a trusted proxy; the leftmost where all are trusted. Never raises. ``connection``
    is the peer address of the socket. ``forwarded_for`` and ``forwarded`` are the lines of the headers X-Forwarded-For
    and Forwarded, in order. Those of an untrusted connection are ignored. An invalid or hidden hop (``unknown``,
    ``_name``) ends the search at the proxy that reported it.

    Where X-Forwarded-For is present it alone counts: nearly every proxy sets it, and passes on its client's Forwarded
    unchanged. A proxy that sets only Forwarded must remove X-Forwarded-For, which a client can forge."""
    hop, hops = unmap(connection), _hops(forwarded_for, forwarded)
    while hop in trusted and (reported := next(hops, None)) is not None:
        hop = reported
    return hop


def named_client(
    connection: Address, forwarded_for: Sequence[str], forwarded: Sequence[str], trusted: Networks
) -> Address:
    """The same for a connection of a trusted proxy; empty where it states no address, as it is not the client."""
    client = client_address(connection, forwarded_for, forwarded, trusted)
    stated = next(_hops(forwarded_for, forwarded), None)
    return Address(b"") if stated is None and client == unmap(connection) else client


def begins_proxy_header(received: bytes) -> bool:
    """Whether the first bytes of a connection are those of a PROXY header, and of no HTTP request."""
    return received.startswith((_V1_START, _V2_START))


def parse_proxy_header(buffer: bytes) -> ProxyHeader | None:
    """The PROXY header at the start of ``buffer``; ``None`` while it is incomplete. Raises ValueError where it is
    missing, invalid, or longer than MAX_PROXY_HEADER_LENGTH. TLVs after the addresses of v2 are skipped."""
    if buffer.startswith(_V1_START):
        return _parse_v1(buffer)
    if buffer.startswith(_V2_START):
        return _parse_v2(buffer)
    if _V1_START.startswith(buffer) or _V2_START.startswith(buffer):
        return None
    raise ValueError("not a PROXY header")


def _hops(forwarded_for: Sequence[str], forwarded: Sequence[str]) -> Iterator[Address | None]:
    for line in reversed(forwarded_for):
        for entry in reversed(line.split(",")):
            yield _node_address(entry.strip())
    for line in () if forwarded_for else reversed(forwarded):
        for element in _elements_from_the_right(line):
            yield _forwarded_for(element)


def _elements_from_the_right(line: str) -> Iterator[str]:
    """The elements between commas outside of quotes, last one first. Splitting begins at the right, where the trusted
    proxy appended. So a quote that a client left open cannot include the proxy's element."""
    end, quoted = len(line), False
    for at in range(len(line) - 1, -1, -1):
        if line[at] == '"' and not (quoted and _is_escaped(line, at)):
            quoted = not quoted
        elif line[at] == "," and not quoted:
            yield line[at + 1 : end]
            end = at
    yield line[:end]


def _is_escaped(line: str, at: int) -> bool:
    """Whether an odd number of backslashes precedes it."""
    start = at
    while start and line[start - 1] == "\\":
        start -= 1
    return (at - start) % 2 == 1


def _forwarded_for(element: str) -> Address | None:
    """The only ``for`` of ``for=…;by=…;proto=…``; ``None`` for an element that breaks the grammar."""
    nodes, at = [], 0
    while at < len(element):
        if not (match := _PARAMETER.match(element, at)):
            return None
        if match[1].lower() == "for":
            nodes.append(match[2])
        at = match.end()
    if len(nodes) != 1:
        return None
    return _node_address(re.sub(r"\\(.)", r"\1", nodes[0].strip('"')))


def _node_address(node: str) -> Address | None:
    """An address with or without port and brackets; ``None`` for a name, an obfuscated identifier or invalid text."""
    if (address := pack_address(node)) is not None:
        return address
    if not (match := _NODE.fullmatch(node)):
        return None
    return pack_address(match[1] or match[2] or "")


def _parse_v1(buffer: bytes) -> ProxyHeader | None:
    end = buffer.find(b"\r\n", 0, _V1_LIMIT)
    if end < 0:
        if len(buffer) >= _V1_LIMIT:
            raise ValueError("PROXY line too long")
        return None
    words = buffer[:end].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return ProxyHeader(end + 2, None)
    if len(words) != 6 or not (_is_port(words[4]) and _is_port(words[5])):
        raise ValueError("invalid PROXY line")
    _, family, *addresses = words[:4]
    source, destination = map(pack_address, addresses)
    if family not in ("TCP4", "TCP6") or source is None or destination is None:
        raise ValueError("invalid PROXY line")
    if any((":" in each) != (family == "TCP6") for each in addresses):
        raise ValueError("addresses of the PROXY line do not match its family")
    return ProxyHeader(end + 2, source)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535


def _parse_v2(buffer: bytes) -> ProxyHeader | None:
    if len(buffer) < _V2_LENGTH:
        return None
    version_and_command, family = buffer[12], buffer[13]
    length = _V2_LENGTH + int.from_bytes(buffer[14:16], "big")
    if version_and_command not in (0x20, 0x21):
        raise ValueError("not a PROXY header of version 2")
    if length > MAX_PROXY_HEADER_LENGTH:
        raise ValueError("PROXY header too long")
    if len(buffer) < length:
        return None
    if version_and_command == 0x20:
        return ProxyHeader(length, None)
    if family not in _V2_FAMILIES:
        raise ValueError("PROXY header of an unknown family")
    address_length, needed = _V2_FAMILIES[family]
    if length - _V2_LENGTH < needed:
        raise ValueError("PROXY header too short for its family")
    source = buffer[_V2_LENGTH : _V2_LENGTH + address_length]
    return ProxyHeader(length, unmap(source) if source else None)
