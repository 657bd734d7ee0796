"""Counts of peers without their addresses: Bloom filters of 2,048 bits with two hashes (BEP 33). The union of the
filters of several nodes counts every peer once."""

import math
from collections.abc import Iterable
from hashlib import sha1

from tracker.wire.krpc import FILTER_LENGTH

_BITS = 8 * FILTER_LENGTH


def filter_of(addresses: Iterable[bytes], start: bytes = bytes(FILTER_LENGTH)) -> bytes:
    """``start`` with packed addresses added."""
    bits = bytearray(start)
    for address in addresses:
        for index in _indexes(address):
            bits[index // 8] |= 1 << index % 8
    return bytes(bits)


def contains(bits: bytes, address: bytes) -> bool:
    """May be true for an address that was not added."""
    return all(bits[index // 8] >> index % 8 & 1 for index in _indexes(address))


def union(first: bytes, second: bytes) -> bytes:
    both = int.from_bytes(first, "big") | int.from_bytes(second, "big")
    return both.to_bytes(FILTER_LENGTH, "big")


def estimate(bits: bytes) -> float:
    """How many addresses were added. Good up to some thousands; a full filter stands for 7,800."""
    zeros = _BITS - int.from_bytes(bits, "big").bit_count()
    if zeros == _BITS:
        return 0.0
    return math.log(max(min(_BITS - 1, zeros), 1) / _BITS) / (2 * math.log(1 - 1 / _BITS))


def _indexes(address: bytes) -> tuple[int, int]:
    digest = sha1(address, usedforsecurity=False).digest()
    return (digest[0] | digest[1] << 8) % _BITS, (digest[2] | digest[3] << 8) % _BITS
