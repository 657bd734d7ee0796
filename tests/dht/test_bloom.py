"""Counts of peers without their addresses (BEP 33)."""

from hashlib import sha1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.dht.bloom import contains, estimate, filter_of, union

EMPTY = bytes(256)
SPECIFIED = [bytes((192, 0, 2, host)) for host in range(256)] + [
    bytes.fromhex("20010db8") + bytes(10) + host.to_bytes(2, "big") for host in range(0x3E8)
]


def test_an_address_sets_two_bits() -> None:
    number = int.from_bytes(filter_of([bytes((192, 168, 1, 1))]), "little")
    assert number == 1 << 1711 | 1 << 1831


def test_the_filter_of_the_specification() -> None:
    bits = filter_of(SPECIFIED)
    assert bits.hex().startswith("f6c3f5eaa07ffd91") and bits.hex().endswith("feee76b6fd8f72ef")
    assert sha1(bits, usedforsecurity=False).hexdigest() == "e4dabf3c822dcd0030ee21df8369bfef2594b52b"
    assert estimate(bits) == pytest.approx(1224.9309, abs=0.0001)


def test_the_extremes() -> None:
    assert estimate(EMPTY) == 0
    assert estimate(b"\xff" * 256) == pytest.approx(7805.7, abs=0.1)
    assert estimate(filter_of([b"abcd"])) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("count", [5, 12, 50, 200, 1000])
def test_estimates_are_close(count: int) -> None:
    bits = filter_of(number.to_bytes(4, "big") for number in range(count))
    assert estimate(bits) == pytest.approx(count, rel=0.1)


@given(st.sets(st.binary(min_size=4, max_size=4)), st.sets(st.binary(min_size=16, max_size=16)))
def test_a_union_is_the_filter_of_both(first: set[bytes], second: set[bytes]) -> None:
    both = union(filter_of(first), filter_of(second))
    assert both == filter_of(first | second) == filter_of(second, filter_of(first))
    assert all(contains(both, address) for address in first | second)
    assert not contains(EMPTY, b"abcd")
