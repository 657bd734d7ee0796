"""D12: node ids that belong to an address (BEP 42)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Address
from tracker.dht.node_id import crc32c, fits_address, id_for_address, random_id_within, shared_bits, to_id, to_number
from tracker.wire.endpoint import pack_address

VECTORS = [
    ("124.31.75.21", 1, "5fbfb8"),
    ("21.75.31.124", 86, "5a3ce8"),
    ("65.23.51.170", 22, "a5d430"),
    ("84.124.73.14", 65, "1b0320"),
    ("43.213.53.83", 90, "e56f68"),
    ("2001:db8::1", 7, "5f88f0"),
    ("2001:db8:100:0:d5c8:db3f:995e:c0f7", 90, "bbcca8"),
]


def packed(text: str) -> Address:
    address = pack_address(text)
    assert address
    return address


def test_the_checksum_has_the_check_value_of_its_definition() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@pytest.mark.parametrize(("text", "last", "start"), VECTORS)
@pytest.mark.parametrize("low_bits", range(8))
def test_ids_of_the_specification(text: str, last: int, start: str, low_bits: int) -> None:
    random_bytes = bytes((99, 99, 0xF8 | low_bits, *range(16), last))
    id = id_for_address(packed(text), random_bytes)
    assert id[:3] == (int(start, 16) | low_bits).to_bytes(3, "big")
    assert id[3:] == random_bytes[3:]
    assert fits_address(id, packed(text))


@given(st.sampled_from(("124.31.75.21", "2a00:1450::7")), st.binary(min_size=20, max_size=20))
def test_another_start_does_not_fit(text: str, random_bytes: bytes) -> None:
    address = packed(text)
    right = id_for_address(address, random_bytes)
    assert fits_address(right, address)
    for bit in range(21):
        wrong = to_id(to_number(right) ^ 1 << (159 - bit))
        assert not fits_address(wrong, address)


@pytest.mark.parametrize("text", ["10.0.0.1", "127.0.0.1", "192.168.1.2", "169.254.1.1", "::1", "fe80::1", "fd00::1"])
def test_any_id_fits_a_local_address(text: str) -> None:
    assert fits_address(bytes(20), packed(text))


@given(st.integers(0, 2**160 - 1), st.integers(0, 159), st.integers(0, 2**160 - 1))
def test_a_random_id_falls_into_the_wanted_bucket(own: int, bits: int, random_bits: int) -> None:
    id = random_id_within(own, bits, random_bits)
    assert 0 <= id < 2**160 and shared_bits(id ^ own) == bits


def test_ids_that_share_all_bits_are_equal() -> None:
    assert shared_bits(0) == 160 and shared_bits(1) == 159 and shared_bits(1 << 159) == 0
    assert to_number(to_id(7)) == 7
