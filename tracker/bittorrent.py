"""The nouns of BitTorrent trackers: types of requests and replies. Info hashes and peer ids are 20 raw bytes; hex
appears only in keys, logs and on the command line."""

import enum
import re
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_network
from typing import Literal, NamedTuple, NewType

from tracker.errors import ClientError

InfoHash = NewType("InfoHash", bytes)
PeerId = NewType("PeerId", bytes)
Address = NewType("Address", bytes)
"""A packed IP address in network order: 4 bytes (IPv4) or 16 (IPv6). IPv4-mapped IPv6 is always unmapped first."""
Endpoint = NewType("Endpoint", bytes)
"""A packed address and its port, big-endian: 6 bytes (IPv4, BEP 23) or 18 (IPv6, BEP 7)."""
Digits = NewType("Digits", bytes)
"""A number from 0 to MAX_COUNT in decimal, without leading zeros, as peers send it and the store keeps it. It stays
text, because converting it twice would cost as much as encoding the whole reply."""

Accounts = Literal["off", "optional", "required"]
"""Whether announces belong to users: none; those with a known passkey; all, so that others are refused."""

HASH_LENGTH = 20
_HEX = re.compile(rb"[0-9a-f]{40}")
MAX_COUNT = 2**53 - 1
"""The largest byte count kept exactly: Lua numbers are doubles. Larger input is clamped to it."""

_V4_MAPPED = b"\0" * 10 + b"\xff\xff"


def _spans(*networks: str) -> tuple[tuple[int, int], ...]:
    """The first and the last address of each network, as numbers."""
    return tuple((int(network[0]), int(network[-1])) for network in map(ip_network, networks))


# IANA's special-purpose registries: blocks without addresses of hosts on the public internet.
_UNROUTABLE4 = _spans(
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
    *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
)
_UNROUTABLE6 = _spans("2001::/23", "2001:db8::/32", "3fff::/20")
_GLOBAL6 = _spans("2000::/3")
"""Global unicast."""
_6TO4 = b"\x20\x02"
"""The prefix of 6to4 addresses; the IPv4 address of their router follows (RFC 3056)."""


class Event(enum.StrEnum):
    """The event of an announce (BEP 3, and ``paused`` from BEP 21). Unknown and empty ones are updates. A string enum,
    because hashing a plain member runs Python code, at every announce."""

    UPDATE = ""
    STARTED = "started"
    COMPLETED = "completed"
    STOPPED = "stopped"
    PAUSED = "paused"


class Announce(NamedTuple):
    """One announce as the client sent it. Only shapes and ranges are checked. A named tuple, like every noun created
    per announce: immutable like a frozen dataclass, and created in a quarter of the time."""

    info_hash: InfoHash
    peer_id: PeerId
    port: int
    """1 to 65535; 0 on ``stopped`` only."""
    uploaded: Digits = Digits(b"0")
    downloaded: Digits = Digits(b"0")
    bytes_left: Digits | None = None
    """``None`` when missing: the peer counts as a leecher."""
    key: bytes = b""
    """The client's secret, up to 64 raw bytes; empty when missing."""
    event: Event = Event.UPDATE
    peers_wanted: int | None = None
    """``None`` for the tracker's default; 0 is honoured."""
    compact: bool = True
    no_peer_id: bool = False
    stated_address: Address | None = None
    """The ``ip`` parameter, honoured only from trusted networks."""
    own_family: bool = False
    """Whether only peers of the sender's address family are wanted."""


class AnnounceWithAgent(Announce):
    """With what the client calls itself in its request, where that is kept. Other announces have no field for it."""

    user_agent: bytes = b""


def with_agent(announce: Announce, user_agent: bytes) -> Announce:
    """The announce with a user agent, if there is one."""
    if not user_agent:
        return announce
    named = AnnounceWithAgent(*announce)
    named.user_agent = user_agent
    return named


class AnnounceOverSocket(Announce):
    """An announce over a WebSocket. No peer can connect to its address; others reach it through the tracker."""

    endpoint: Endpoint
    """The address and the WebSocket (tracker/wire/endpoint.py)."""


class AnnounceReply(NamedTuple):
    """The reply to an accepted announce. ``peers`` and ``peers6`` are packed endpoints, without the caller's own."""

    interval_seconds: int
    min_interval_seconds: int
    seeders: int
    leechers: int
    completions: int
    peers: bytes = b""
    peers6: bytes = b""
    peer_ids: bytes = b""
    """20 bytes for each endpoint in ``peers``, in order; empty unless the client asks for the long form."""
    peer_ids6: bytes = b""
    external_address: Address | None = None
    """The address the tracker saw (BEP 24)."""
    warning: str | None = None


Reply = tuple[int, int, int, int, int, bytes, bytes, bytes, bytes, Address | None, str | None]
"""The fields of an AnnounceReply: a plain tuple is made and read in a third of the time."""


@dataclass(frozen=True, slots=True)
class ScrapeFile:
    """One torrent's counts (BEP 48; ``downloaders``, from BEP 21, excludes partial seeds)."""

    seeders: int = 0
    leechers: int = 0
    completions: int = 0
    downloaders: int = 0


@dataclass(frozen=True, slots=True)
class Scrape:
    """The requested torrents; none requests every torrent (a full scrape)."""

    info_hashes: tuple[InfoHash, ...] = ()
    complete: bool = False
    """Whether a reply must have every torrent: over UDP its counts have no other name than their place."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ScrapeReply:
    files: dict[InfoHash, ScrapeFile] = field(default_factory=dict)
    min_request_interval_seconds: int = 900


def unmap(address: bytes) -> Address:
    """Converts IPv4-mapped IPv6 (``::ffff:a.b.c.d``) to IPv4."""
    if len(address) == 16 and address.startswith(_V4_MAPPED):
        return Address(address[12:])
    return Address(address)


def info_hash_of(text: bytes | None) -> InfoHash | None:
    """Parses 40 lowercase hex digits. None for anything else."""
    return InfoHash(bytes.fromhex(text.decode())) if text is not None and _HEX.fullmatch(text) else None


def parse_info_hash(text: str) -> InfoHash:
    """40 hex digits -> 20 bytes; raises ClientError for anything else."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != HASH_LENGTH or len(text) != 2 * HASH_LENGTH:
        raise ClientError("an info hash is 40 hexadecimal digits")
    return InfoHash(raw)


def is_of_a_host(address: bytes) -> bool:
    """Whether a packed address may be that of a host anywhere, also in a private network: it is not unspecified,
    multicast, broadcast or reserved."""
    if len(address) == 4:
        return 0 < address[0] < 224
    return len(address) == 16 and any(address) and address[0] != 0xFF


def is_routable(address: bytes) -> bool:
    """Whether 4 or 16 bytes may be the address of a host on the public internet (global unicast). False for private,
    loopback, link-local, shared (CGNAT), multicast, documentation and reserved addresses."""
    if len(address) == 4:
        return _is_routable_prefix(address[:3], 4)
    return len(address) == 16 and _is_routable_prefix(address[:8], 16)


@lru_cache(maxsize=65536)
def _is_routable_prefix(prefix: bytes, length: int) -> bool:
    """Cached per IPv4 /24 and IPv6 /64: no block in the table is smaller."""
    first = int.from_bytes(prefix.ljust(length, b"\0"), "big")
    if length == 4:
        return not _within(first, _UNROUTABLE4)
    if prefix.startswith(_6TO4) and not _is_routable_prefix(prefix[2:5], 4):
        return False
    return _within(first, _GLOBAL6) and not _within(first, _UNROUTABLE6)


def _within(number: int, spans: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= number <= high for low, high in spans)
