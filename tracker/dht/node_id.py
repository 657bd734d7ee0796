"""Node ids: distance, ids that belong to an address, and this node's own external address (BEP 42). Ids are 20 bytes in
messages, and numbers of 160 bits in tables. The distance of two is their XOR."""

from tracker.bittorrent import Address, Endpoint, is_of_a_host, is_routable
from tracker.wire.krpc import NodeId

ID_BITS = 160

_MASK4 = bytes.fromhex("030f3fff")
_MASK6 = bytes.fromhex("0103070f1f3f7fff")
_CASTAGNOLI = 0x82F63B78
MIN_PORT = 1024
"""Lower ports belong to other services: neither peers nor nodes are looked for there."""
VOTES = 5
MAX_CANDIDATES = 16
MIN_CHANGE_SECONDS = 3600


def to_number(id: bytes) -> int:
    return int.from_bytes(id, "big")


def to_id(number: int) -> NodeId:
    return NodeId(number.to_bytes(ID_BITS // 8, "big"))


def shared_bits(distance: int) -> int:
    """How many leading bits two ids of this distance share: 0 to 160."""
    return ID_BITS - distance.bit_length()


def random_id_within(own: int, bits: int, random_bits: int) -> int:
    """An id that shares exactly the first ``bits`` bits with ``own``. ``random_bits`` has 160 bits."""
    tail = ID_BITS - bits
    different = own ^ (1 << (tail - 1))
    return different >> (tail - 1) << (tail - 1) | random_bits & ((1 << (tail - 1)) - 1)


def network_of(address: bytes, bits4: int, bits6: int) -> bytes:
    """The leading bytes of an address. ``bits4`` and ``bits6`` are multiples of 8."""
    return address[: (bits4 if len(address) == 4 else bits6) // 8]


def is_usable(endpoint: Endpoint, *, private_addresses: bool) -> bool:
    """Whether a peer or node may be there. ``private_addresses``: also at a private or loopback address."""
    address = endpoint[:-2]
    if int.from_bytes(endpoint[-2:], "big") < MIN_PORT:
        return False
    return is_routable(address) or (private_addresses and is_of_a_host(address))


def id_for_address(address: bytes, random_bytes: bytes) -> NodeId:
    """The id of a node with this external address. ``random_bytes``: 20 bytes."""
    checksum = _checksum(address, random_bytes[-1])
    start = (checksum >> 8 & 0xFFFFF8 | random_bytes[2] & 7).to_bytes(3, "big")
    return NodeId(start + random_bytes[3:])


def fits_address(id: bytes, address: Address) -> bool:
    """Whether a node with this address may have this id. Any id fits an address that is not public."""
    if not is_routable(address):
        return True
    return int.from_bytes(id[:3], "big") >> 3 == _checksum(address, id[-1]) >> 11


def _checksum(address: bytes, last: int) -> int:
    mask = _MASK4 if len(address) == 4 else _MASK6
    masked = bytearray(byte & bits for byte, bits in zip(address, mask, strict=False))
    masked[0] |= (last & 7) << 5
    return crc32c(masked)


def crc32c(data: bytes | bytearray) -> int:
    """The checksum of Castagnoli, which zlib does not have."""
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum = _TABLE[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_CASTAGNOLI if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_table_entry, range(256)))


class ExternalAddress:
    """The external address of this node in one family, by what other nodes see (BEP 42). One node may lie, and so may
    all of one network. An address counts when answers from five networks name it before any other address has as
    many."""

    def __init__(self, address: Address | None = None, *, fixed: bool = False) -> None:
        """``fixed``: the operator says so, and votes change nothing."""
        self.address = address
        self._fixed = fixed
        self._changed: float | None = None
        self._votes: dict[Address, set[bytes]] = {}

    def vote(self, seen: Address, voter: Address, now: float) -> bool:
        """``voter`` sees this node at ``seen``. Returns whether the external address has changed, which takes a new
        node id. It changes once an hour at most."""
        if self._fixed or len(seen) != len(voter):
            return False
        if seen not in self._votes and len(self._votes) >= MAX_CANDIDATES:
            del self._votes[min(self._votes, key=lambda each: len(self._votes[each]))]
        voters = self._votes.setdefault(seen, set())
        voters.add(network_of(voter, 16, 32))
        if len(voters) < VOTES:
            return False
        self._votes.clear()
        if seen == self.address or (self._changed is not None and now - self._changed < MIN_CHANGE_SECONDS):
            return False
        self.address, self._changed = seen, now
        return True
