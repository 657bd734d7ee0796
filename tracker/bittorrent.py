"""The nouns of BitTorrent trackers: what a request says and what an answer holds.

Info hashes and peer ids are 20 raw bytes; hex appears only in keys, logs and on the command line.
Addresses are packed network-order bytes (4 for IPv4, 16 for IPv6), and an endpoint is such an address
followed by a big-endian port: 6 or 18 bytes, the compact form of BEP 23 and BEP 7.
"""

import enum
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import NamedTuple, NewType

from tracker.errors import ClientError

InfoHash = NewType("InfoHash", bytes)
PeerId = NewType("PeerId", bytes)
Address = NewType("Address", bytes)
"""A packed IP address: 4 bytes (IPv4) or 16 (IPv6). IPv4-mapped IPv6 is always unmapped first."""
Endpoint = NewType("Endpoint", bytes)
"""A packed address and port: 6 bytes (IPv4) or 18 (IPv6)."""
Digits = NewType("Digits", bytes)
"""A number from 0 to MAX_COUNT in decimal, without leading zeros: the way a peer's byte counts come in and go into the store.
Nobody computes with them in between, and to make numbers of them and back would cost as much as to write the whole answer."""

HASH_LENGTH = 20
MAX_COUNT = 2**53 - 1
"""The largest byte count kept exactly: Lua numbers are doubles. Larger input is clamped to it."""

_V4_MAPPED = b"\0" * 10 + b"\xff\xff"

# IANA's special-purpose registries, the blocks that are no host's address on the public internet.
_UNROUTABLE = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
    *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    *("2001::/23", "2001:db8::/32", "3fff::/20"),
)
_GLOBAL_UNICAST6 = "2000::/3"
_6TO4 = b"\x20\x02"
"""What these addresses begin with; the IPv4 address of their router follows (RFC 3056)."""


class Event(enum.StrEnum):
    """What an announce reports (BEP 3, and ``paused`` from BEP 21). Unknown and empty ones are updates.

    Strings, because what finds a plain member in a dictionary is Python code, which every announce would run.
    """

    UPDATE = ""
    STARTED = "started"
    COMPLETED = "completed"
    STOPPED = "stopped"
    PAUSED = "paused"


class Announce(NamedTuple):
    """One announce as the client said it; nothing here is believed yet but the shapes and ranges.

    A named tuple, as are the other nouns that every announce makes anew: as immutable as a frozen dataclass, and made
    in a quarter of the time.
    """

    info_hash: InfoHash
    peer_id: PeerId
    port: int
    """1 to 65535; 0 on ``stopped`` only."""
    uploaded: Digits = Digits(b"0")
    downloaded: Digits = Digits(b"0")
    bytes_left: Digits | None = None
    """``None`` when the client did not say: it counts as a leecher."""
    event: Event = Event.UPDATE
    peers_wanted: int | None = None
    """``None`` for the tracker's default; 0 is honoured."""
    key: bytes = b""
    """The client's secret, up to 64 raw bytes, empty when it has none."""
    compact: bool = True
    no_peer_id: bool = False
    stated_address: Address | None = None
    """The ``ip`` parameter, honoured only from those who may speak for others."""


class AnnounceReply(NamedTuple):
    """What an accepted announce is told. ``peers`` and ``peers6`` are packed endpoints without the caller's."""

    interval_seconds: int
    min_interval_seconds: int
    seeders: int
    leechers: int
    completions: int
    peers: bytes = b""
    peers6: bytes = b""
    peer_ids: bytes = b""
    """20 bytes for each endpoint in ``peers``, in order; empty unless the client wants the long form."""
    peer_ids6: bytes = b""
    external_address: Address | None = None
    """The address the tracker saw (BEP 24)."""
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class ScrapeFile:
    """One torrent's figures (BEP 48; ``downloaders`` from BEP 21 leaves out partial seeds)."""

    seeders: int = 0
    leechers: int = 0
    completions: int = 0
    downloaders: int = 0


@dataclass(frozen=True, slots=True)
class Scrape:
    """The torrents asked for; none at all asks for every torrent (a full scrape)."""

    info_hashes: tuple[InfoHash, ...] = ()


@dataclass(frozen=True, slots=True)
class ScrapeReply:
    files: dict[InfoHash, ScrapeFile] = field(default_factory=dict)
    min_request_interval_seconds: int = 900


def unmap(address: bytes) -> Address:
    """IPv4-mapped IPv6 (``::ffff:a.b.c.d``) is IPv4."""
    if len(address) == 16 and address.startswith(_V4_MAPPED):
        return Address(address[12:])
    return Address(address)


def parse_info_hash(text: str) -> InfoHash:
    """40 hex digits -> 20 bytes; raises ClientError for anything else."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != HASH_LENGTH or len(text) != 2 * HASH_LENGTH:
        raise ClientError("an info hash is 40 hexadecimal digits", retry_in="never")
    return InfoHash(raw)


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
    if prefix.startswith(_6TO4) and not _is_routable_prefix(prefix[2:5], 4):
        return False
    return _within(first, (_GLOBAL6,)) and not _within(first, _UNROUTABLE6)


def _span(network: IPv4Network | IPv6Network) -> tuple[int, int]:
    return int(network.network_address), int(network.broadcast_address)


def _within(number: int, spans: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= number <= high for low, high in spans)


_UNROUTABLE4 = tuple(_span(ip_network(text)) for text in _UNROUTABLE if ":" not in text)
_UNROUTABLE6 = tuple(_span(ip_network(text)) for text in _UNROUTABLE if ":" in text)
_GLOBAL6 = _span(ip_network(_GLOBAL_UNICAST6))
