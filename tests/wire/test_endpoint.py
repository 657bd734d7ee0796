import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Address, unmap
from tracker.wire.endpoint import format_address, format_endpoint, pack_address, pack_endpoint, split_endpoints

LOOPBACK6 = Address(bytes(15) + b"\1")
addresses = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "packed"),
        [
            ("1.2.3.4", b"\1\2\3\4"),
            ("::1", LOOPBACK6),
            ("2001:DB8::1", bytes.fromhex("20010db8000000000000000000000001")),
            ("::ffff:1.2.3.4", b"\1\2\3\4"),
            ("::FFFF:102:304", b"\1\2\3\4"),
        ],
    )
    def test_an_address_packs_to_its_bytes(self, text: str, packed: bytes) -> None:
        assert pack_address(text) == packed

    @pytest.mark.parametrize(
        "text",
        [
            *("", " ", "1.2.3", "1.2.3.4.5", "256.1.1.1", "01.2.3.4", "0x1.2.3.4", "1.2.3.4 ", "16909060"),
            *(":", ":::", "1::2::3", "[::1]", "fe80::1%eth0", "::1\0", "1.2.3.4\0", "localhost", "é", "\udcff"),
        ],
    )
    def test_invalid_text_packs_to_none(self, text: str) -> None:
        assert pack_address(text) is None

    @given(st.text())
    def test_packing_never_raises(self, text: str) -> None:
        pack_address(text)

    @given(addresses)
    def test_a_formatted_address_packs_to_the_same_bytes(self, packed: bytes) -> None:
        assert pack_address(format_address(packed)) == unmap(packed)


class TestEndpoints:
    def test_an_endpoint_is_the_address_then_the_port(self) -> None:
        """BEP 23 and BEP 7: the port is big-endian."""
        assert pack_endpoint(Address(b"\1\2\3\4"), 6881) == b"\1\2\3\4\x1a\xe1"
        assert pack_endpoint(LOOPBACK6, 1) == LOOPBACK6 + b"\0\1"

    def test_endpoints_have_readable_forms(self) -> None:
        assert format_endpoint(b"\1\2\3\4\x1a\xe1") == "1.2.3.4:6881"
        assert format_endpoint(LOOPBACK6 + b"\x1a\xe1") == "[::1]:6881"

    @given(st.lists(st.tuples(addresses, st.integers(0, 65535))))
    def test_a_packed_list_splits_into_its_endpoints(self, peers: list[tuple[bytes, int]]) -> None:
        for size in (6, 18):
            family = [(address, port) for address, port in peers if len(address) == size - 2]
            packed = b"".join(pack_endpoint(Address(address), port) for address, port in family)
            assert list(split_endpoints(packed, size)) == family
            assert list(split_endpoints(packed + b"cut", size)) == family
