"""Basic types and errors: info hashes, IPv4-mapped addresses, routable addresses, labels."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import (
    MAX_COUNT,
    Address,
    Announce,
    Event,
    InfoHash,
    PeerId,
    is_routable,
    parse_info_hash,
    unmap,
)
from tracker.errors import ClientError


def packed(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


def test_an_info_hash_is_40_hex_digits() -> None:
    raw = bytes(range(20))
    assert parse_info_hash(raw.hex()) == parse_info_hash(raw.hex().upper()) == raw


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        "0" * 39,
        "0" * 41,
        "g" * 40,
        "0x" + "0" * 38,
        "00 " * 13 + "0",
        " " + "0" * 38 + " ",
        "０" * 40,
        "0" * 64,
    ],
)
def test_other_texts_are_no_info_hash(text: str) -> None:
    with pytest.raises(ClientError, match="40 hexadecimal digits"):
        parse_info_hash(text)


def test_mapped_addresses_become_ipv4() -> None:
    assert unmap(packed("::ffff:192.0.2.1")) == packed("192.0.2.1")
    for text in ("192.0.2.1", "::", "::192.0.2.1", "::fffe:192.0.2.1", "2001:db8::1"):
        assert unmap(packed(text)) == packed(text)


class TestRoutable:
    @pytest.mark.parametrize(
        "text",
        [
            *("0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "169.254.1.1", "172.16.0.1"),
            *("172.31.255.255", "192.168.1.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.19.255.255"),
            *("198.51.100.7", "203.0.113.7", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
            *(
                "2002:a00:1::1",
                "2002:7f00:1::",
                "2002:c0a8:101::1",
                "2002:e000:1::1",
            ),  # 6to4 with an unroutable IPv4 address
            *("2001::1", "2001:0:a00:1::1", "64:ff9b::10.0.0.1", "64:ff9b:1::a00:1", "::10.0.0.1"),  # Teredo, NAT64
            *("::", "::1", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "ff0e::1", "2001:db8::1", "3fff::1"),
            *("64:ff9b::1.2.3.4", "100::1", "4000::1", "5f00::1", "192.88.99.1", "192.0.0.9", "64:ff9b::808:808"),
        ],
    )
    def test_special_purpose_addresses_are_not_routable(self, text: str) -> None:
        assert not is_routable(packed(text))

    @pytest.mark.parametrize(
        "text",
        [
            *("1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1"),
            *("192.0.1.1", "198.17.255.255", "198.20.0.0", "223.255.255.255"),
            *("2001:4860::8888", "2a00::1", "2606:4700::1111", "3ffe::1"),
            *("2002:808:808::1", "2001:200::1"),
        ],
    )
    def test_addresses_beside_special_blocks_are_routable(self, text: str) -> None:
        assert is_routable(packed(text))

    @given(st.integers(0, 0xFFFFFF))
    def test_routable_ipv4_equals_the_standard_librarys(self, prefix: int) -> None:
        known = ipaddress.ip_address(prefix << 8 | 77)
        if not str(known).startswith("192.88.99."):  # 6to4 relays, deprecated: unknown to the library
            expected = known.is_global and not known.is_multicast
            assert is_routable(known.packed) is expected

    @given(st.binary())
    def test_any_bytes_are_routable_or_not(self, junk: bytes) -> None:
        assert isinstance(is_routable(junk), bool)

    def test_a_mapped_address_is_not_routable(self) -> None:
        assert not is_routable(packed("::ffff:8.8.8.8"))


def test_the_largest_count_is_exact_in_lua() -> None:
    assert float(MAX_COUNT) == MAX_COUNT and float(MAX_COUNT + 2) != float(MAX_COUNT)


def test_basic_types_are_immutable() -> None:
    announce = Announce(InfoHash(b"i" * 20), PeerId(b"p" * 20), 6881)
    assert (announce.event, announce.bytes_left, announce.peers_wanted, announce.compact) == (
        Event.UPDATE,
        None,
        None,
        True,
    )
    with pytest.raises(AttributeError):
        announce.port = 1  # type: ignore[misc]  # assignment must fail
    assert Address(b"1234") == b"1234"
